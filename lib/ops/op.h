// What the compiler knows of an op. An op has a shape rule, a gradient rule that emits other ops, a
// split rule (how it behaves when its inputs are split over ranks), a cost, and one kernel per
// backend (ops/kernel.h). Ops are rows of the explicit table in ops/registry.cpp; layers only emit
// ops and no layer writes a backward.
//
// Shapes: images are [samples, height, width, channels]; everything is dense and row-major.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attributes.h"
#include "tensor/shape.h"

namespace dltrain {

using ValueId = int32_t;                 // a value of one graph
inline constexpr ValueId kNoValue = -1;  // an absent optional input, or no gradient

// Where gradient rules emit ops; implemented by the graph builder.
class OpEmitter {
 public:
  virtual ~OpEmitter() = default;
  // Appends a node, infers its outputs, and returns them.
  virtual std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                                    Attributes attributes = {}) = 0;
  // By value: emitting moves what the emitter keeps.
  virtual TensorSpec spec(ValueId value) const = 0;
  // The graph's one StepState value.
  virtual ValueId step_state() = 0;

  ValueId emit1(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return emit(op, std::move(inputs), std::move(attributes)).front();
  }
};

struct GradientRequest {
  OpEmitter& emitter;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  std::span<const ValueId> output_gradients;  // kNoValue where nothing flows back
  const std::vector<bool>& wanted;            // per input: is its gradient needed?
  const Attributes& attributes;
};

// How one tensor is laid out over the ranks of a mesh axis.
struct Placement {
  enum Kind : uint8_t { replicated, split, partial };
  Kind kind = replicated;
  int axis = -1;  // of a split; a partial tensor is the sum over the ranks

  bool operator==(const Placement&) const = default;
};

struct Cost {
  double flops = 0;  // multiply-adds count twice
  double bytes = 0;  // read and written at least once
};

using SpecList = std::vector<TensorSpec>;
using SpecSpan = std::span<const TensorSpec>;

struct OpDef {
  std::string_view name;
  std::string_view doc;  // one line: "y = a·b (+ bias)"

  // Specs of the outputs. Throws Error(usage) naming expected and found shapes.
  SpecList (*infer)(SpecSpan inputs, const Attributes& attributes) = nullptr;

  // Emits the gradient; returns one value per input, kNoValue where there is none. nullptr: nothing
  // flows back through this op.
  std::vector<ValueId> (*gradient)(const GradientRequest& request) = nullptr;

  // Placements of the outputs when every rank runs the op on its own part of the inputs; nothing
  // when that is not possible without communication first. Not asked when all inputs are
  // replicated (so is every output then). nullptr: only replicated inputs.
  std::optional<std::vector<Placement>> (*split)(SpecSpan inputs, const Attributes& attributes,
                                                 std::span<const Placement> placements) = nullptr;

  // Absent: no flops, every input and output moved once.
  Cost (*cost)(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) = nullptr;

  // In-place writers: for each output the index of the input whose storage it is, or -1. Used by
  // state updates (the output is the state's new value) and by reshape (no copy).
  std::vector<int> (*aliases)(SpecSpan inputs, const Attributes& attributes) = nullptr;

  // Outputs may take the memory of a dying input of the same size (element-wise ops).
  bool in_place_allowed = false;

  // Works element by element on operands of one shape: may join a fused group
  // (kernels/shared/elementwise.h has its arithmetic).
  bool elementwise = false;

  // An update whose elements do not depend on each other: it can work on parts of tensors.
  bool independent_elements = false;

  // Writes memory that outlives the step, or talks to other ranks: never removed as dead.
  bool has_effect = false;

  // Reads the sums of every micro-step in order to combine them (tree_sum): these then overwrite
  // in each micro-step instead of adding.
  bool combines_micro_steps = false;

  // Has an output of dtype u8 in which a kernel keeps what it likes for the kernel of the same
  // engine that is the op's gradient; or is that gradient, which may overwrite it: nobody else, and
  // nobody later, reads it.
  bool keeps_bytes = false;
};

// The registry: ops in table order.
std::span<const OpDef> all_ops();
// nullptr when there is no such op.
const OpDef* find_op(std::string_view name);

// Cost with the default of OpDef::cost applied.
Cost op_cost(const OpDef& op, SpecSpan inputs, SpecSpan outputs, const Attributes& attributes);

}  // namespace dltrain
