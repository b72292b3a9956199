// The compiler's description of an op: a shape rule, a gradient rule that emits other ops, a
// placement rule (how its outputs are laid out over ranks if its inputs are), a cost, and one
// kernel per backend (ops/kernel.h). The table of ops is generated from the definitions in
// this folder (cmake/tables.cmake); layers only emit ops and never a backward.
//
// Shapes: images are [samples, height, width, channels]; everything is dense and row-major.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attributes.h"
#include "ops/placement.h"
#include "ops/signature.h"
#include "ops/token_runs.h"
#include "tensor/shape.h"

namespace dltrain {

using ValueId = int32_t;                 // a value of one graph
inline constexpr ValueId kNoValue = -1;  // an absent optional input, or no gradient

// Interface through which gradient rules emit ops; implemented by GraphBuilder.
class OpEmitter {
 public:
  virtual ~OpEmitter() = default;
  // Appends a node, infers its outputs, and returns them.
  virtual std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                                    Attributes attributes = {}) = 0;
  // Returns by value, since emitting invalidates references.
  virtual TensorSpec spec(ValueId value) const = 0;
  // The graph's one StepState value.
  virtual ValueId step_state() = 0;

  ValueId emit1(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return emit(op, std::move(inputs), std::move(attributes)).front();
  }
  // Returns x in this shape: itself if it has it already.
  ValueId reshape(ValueId x, const Shape& to) {
    return spec(x).shape == to ? x : emit1("reshape", {x}, {{"shape", to.list()}});
  }
  // Returns scale · x + shift.
  ValueId scaled(ValueId x, double scale, double shift = 0) {
    return emit1("affine", {x}, {{"scale", scale}, {"shift", shift}});
  }
};

struct GradientRequest {
  OpEmitter& emitter;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  std::span<const ValueId> output_gradients;  // kNoValue: none
  const std::vector<bool>& wanted;            // per input: is its gradient needed?
  const Attributes& attributes;
};

// A node that runs on shards (OpDef::localize).
struct LocalNode {
  SpecSpan inputs;          // whole
  const TensorSpec& whole;  // the first output, whole and that of this rank
  const TensorSpec& local;
  std::span<const Placement> placements;  // of the inputs
  const Placement& output;                // of the first output
  int rank = 0;
};

// A node for which communication is emitted (OpDef::emit_sharded).
struct ShardedNode {
  OpEmitter& emitter;
  SpecSpan inputs;                  // whole
  std::span<const ValueId> values;  // of this rank
  std::span<const Placement> placements;
  const Attributes& attributes;
  int rank;
  // Emits the gather of a value of this rank [rows, …] to [ranks · rows, …].
  std::function<ValueId(ValueId)> gathered_rows;
};

// The kind of a node of the update segment. Its inputs are the step state, then one tensor of
// each role in this order; a packed node (passes/pack_updates.h) has `count` tensors of each.
enum class UpdateKind : uint8_t {
  none,
  norm,       // of all gradients: not for each tensor
  sums,       // over whole tensors, which the optimizer's step needs: parameter, gradient, moments
  optimizer,  // parameter, gradient, moments … (after `sums`: as the op says), and with `copies`
              // the low-precision copy
  rounding,   // parameter, low-precision copy
  average,    // parameter or buffer, average
};

// The dtype in which an op computes under precision.compute below f32 (passes/autocast.h).
enum class CastPolicy : uint8_t {
  f32,           // every floating input in f32: small differences of large numbers, quick growth
  low,           // every floating input in the low dtype; sums within are f32
  follow,        // low when all its input activations are: the result is rounded anyway
  follow_first,  // likewise by its first input alone; scales, statistics and sums are f32
  logits,        // likewise, also in the loss: its first input need not be widened
  residual,      // f32; with a low residual stream its result counts as low
};

// Work that overlaps the nodes that follow (graph/slots.h).
enum class SlotUse : uint8_t { none, begins, ends };

// The operation between ranks that a node starts or ends.
enum class MessageKind : uint8_t {
  none,
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  send,
  receive
};

// The output has the elements of the input: in memory of its own, in another dtype, or in the same
// memory.
enum class SameElements : uint8_t { no, copy, cast, view };

// The axes along which the tensors of a node count the tokens of a text.
inline constexpr int kNoTokenAxis = -1;  // independent of the token: parameters, positions
inline constexpr int kMixesTokens = -2;  // outputs depend on other tokens
struct TokenAxes {
  SpecSpan inputs, outputs;
  const Attributes& attributes;
  std::vector<int> axes;  // of the inputs; at least one counts tokens
};

// A node that runs on the tokens of a rank (OpDef::localize_tokens): its first output counts them
// along `axis`.
struct TokenNode {
  const TensorSpec& whole;  // the first output
  int axis;
  const TokenCut& cut;
};

struct Cost {
  double flops = 0;  // multiply-adds count twice
  double bytes = 0;  // read and written at least once
};

struct OpDef {
  std::string_view name;
  std::string_view doc;  // one line: "y = a·b (+ bias)"

  // The shapes and dtypes that the inputs must have, and those of the outputs.
  Signature signature = {};
  // Further conditions, checked after the signature; throws Error(usage), or Error(internal) for
  // attributes that no layer sets.
  void (*check)(SpecSpan inputs, const Attributes& attributes) = nullptr;
  // Returns the specs of the outputs where the signature does not. Throws Error(usage) naming
  // expected and found shapes.
  SpecList (*infer)(SpecSpan inputs, const Attributes& attributes) = nullptr;

  // Emits the gradient; returns one value per input, kNoValue where there is none. nullptr: the op
  // has no gradient.
  std::vector<ValueId> (*gradient)(const GradientRequest& request) = nullptr;

  // Returns the placements of the outputs if every rank runs the op on its shards of the inputs, or
  // nullopt if that needs communication. Not called if all inputs are replicated (all outputs are
  // too). nullptr: only replicated inputs are supported. passes/partition.h uses it for the
  // forward; the ops of the backward need none.
  std::optional<std::vector<Placement>> (*place)(SpecSpan inputs, const Attributes& attributes,
                                                 std::span<const Placement> placements) = nullptr;
  // Changes the attributes to those with which a rank runs the op on its shards, where they differ:
  // extents, positions in the whole tensor.
  void (*localize)(Attributes& attributes, const LocalNode& node) = nullptr;
  // Emits the op, and messages, where it runs on shards that its placement rule does not allow;
  // returns its outputs, which are replicated, or none if it does not.
  std::vector<ValueId> (*emit_sharded)(const ShardedNode& node) = nullptr;
  // Returns the placements of the inputs for which the op runs on shards but which do not follow
  // from its inputs (heads): the partition cuts the parameters that they come from accordingly.
  // Throws Error(usage) if the op cannot be divided among so many ranks.
  std::vector<Placement> (*wanted)(SpecSpan inputs, const Attributes& attributes,
                                   int ranks) = nullptr;

  // Absent: no flops, every input and output moved once.
  Cost (*cost)(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) = nullptr;

  // In-place writers whose signature does not say so: returns for each output the index of the
  // input whose memory it uses, or -1. For state updates (the output is the state's new value) and
  // reshape (no copy).
  std::vector<int> (*aliases)(SpecSpan inputs, const Attributes& attributes) = nullptr;

  // The first output may reuse the memory of an input of the same size after its last use
  // (element-wise ops).
  bool in_place_allowed = false;

  // Element-wise on operands of one shape: may join a fused group (arithmetic:
  // kernels/shared/elementwise.h).
  bool elementwise = false;

  UpdateKind update = UpdateKind::none;
  // The elements of the update are independent, so it can work on parts of tensors; with the
  // attribute `block` on parts that begin at multiples of it.
  bool independent_elements = false;

  // Writes memory that outlives the step, or communicates with other ranks: never dead code.
  bool has_effect = false;

  // Combines the sums of the micro-steps (tree_sum), which are then overwritten in each micro-step
  // instead of accumulated.
  bool combines_micro_steps = false;

  // Has a u8 output with data in a kernel-specific format for the gradient's kernel of the same
  // engine; or is that gradient, its only reader, which may overwrite the data.
  bool keeps_bytes = false;

  CastPolicy autocast = CastPolicy::f32;

  // Returns the axis along which the outputs count tokens (ops/token_axis.h). nullptr: the op mixes
  // tokens, so that models that use it cannot generate text.
  int (*token_axis)(const TokenAxes& node) = nullptr;
  // Changes the attributes to those with which a rank runs the op on its tokens, where they differ.
  void (*localize_tokens)(Attributes& attributes, const TokenNode& node) = nullptr;
  // Its f64 outputs are sums over all rows of its inputs, which are aligned at their first axes.
  bool sums_rows = false;
  bool makes_tokens = false;  // its output counts tokens along axis 1, whatever its inputs do

  MessageKind message = MessageKind::none;
  SlotUse slot = SlotUse::none;
  SameElements same_elements = SameElements::no;

  // Its kernels can apply an activation to the result (attribute `activation`); is such an
  // activation.
  bool takes_activation = false, ends_product = false;

  // Its results for a sample depend on the other samples of the micro-batch.
  bool mixes_samples = false;

  // The index of an optional input that is added to the result (a bias); 0: none. It is added
  // elsewhere if the result is partial.
  int added_input = 0;

  // The shape rule: signature, check and infer.
  SpecList output_specs(SpecSpan inputs, const Attributes& attributes) const;
  // For each of `count` outputs the index of the input whose memory it uses, or −1.
  std::vector<int> output_aliases(SpecSpan inputs, const Attributes& attributes,
                                  size_t count) const;
};

// The registry: the ops of engines in table order, without those of ops/placement.cpp and of
// plug-ins.
std::span<const OpDef> all_ops();
// Adds the ops of a plug-in (nn/plugin.h), which must stay in memory; added_ops() returns them.
void add_ops(std::span<const OpDef> ops);
std::span<const OpDef* const> added_ops();
// Returns nullptr when there is no such op.
const OpDef* find_op(std::string_view name);

// Returns the op's cost, or the default that OpDef::cost describes.
Cost op_cost(const OpDef& op, SpecSpan inputs, SpecSpan outputs, const Attributes& attributes);

}  // namespace dltrain
