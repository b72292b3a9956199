// Small helpers that shape, placement and gradient rules share.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace dltrain {

// Throws Error(usage) "matmul: expects 2 or 3 inputs, got 1".
void expect_inputs(std::string_view op, SpecSpan inputs, size_t least, size_t most);
// Throws Error(usage) with both shapes unless they are equal.
void expect_shape(std::string_view op, std::string_view what, const Shape& found,
                  const Shape& expected);
// Throws Error(usage) unless the rank is within [least, most].
void expect_rank(std::string_view op, std::string_view what, const Shape& found, int least,
                 int most);
// Throws Error(usage) unless every present input is a floating tensor of one dtype.
void expect_one_float_dtype(std::string_view op, SpecSpan inputs);

// Throws Error(usage) unless the tensor is of that dtype.
void expect_dtype(std::string_view op, std::string_view what, const TensorSpec& found,
                  DType expected);
// Throws Error(usage) unless the input is a StepState: u8[sizeof(StepState)].
void expect_step_state(std::string_view op, const TensorSpec& found);

// Returns true for the spec of an absent optional input.
bool is_absent(const TensorSpec& spec);

// Returns the dtype of sums, statistics and weight gradients: f64 for f64, else f32.
DType accumulation_dtype(DType compute);

// Returns the value in that dtype: itself, or a cast.
ValueId cast_to(OpEmitter& emitter, ValueId value, DType dtype);

// Returns true for ops that are matrix products, convolutions, attention or recurrent networks, or
// gradients of these; not for the forms that the fuse pass makes.
bool is_product(const OpDef& op);

// Returns true for products of f32 operands that are rounded to TF32 (attribute `math`, set by
// passes/tf32.h; to_tf32 in tensor/low_precision.h). Sums are those of f32.
bool rounds_to_tf32(const Attributes& attributes);

// The attribute of a matmul whose operands passes/fp8.h rounds to FP8: a letter for each, x (input
// of the layer), w (weight) or g (gradient of the output). The gradients of such a product are too.
inline constexpr const char* kFp8Operands = "fp8_operands";

// Returns the broadcast shape by numpy's rules; throws Error(usage) naming both shapes.
Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b);

// The gradient of a broadcast: sums `gradient` over the broadcast axes down to `shape`. A sum has
// the accumulation dtype; the reverse pass casts it to the operand's where that is not a parameter.
ValueId reduce_to_shape(OpEmitter& emitter, ValueId gradient, const Shape& shape);

// Returns the number of columns of the logits that are classes (lib/ops/softmax_cross_entropy.cpp).
int64_t cross_entropy_classes(const TensorSpec& logits, const Attributes& attributes);

// Returns the extent of a pooled or convolved axis; throws Error(usage) when no window fits.
int64_t window_extent(std::string_view op, int64_t input, int64_t kernel, int64_t stride,
                      int64_t padding, int64_t dilation);

// Returns the attributes of a node with its first input's shape, for the gradient of that.
Attributes with_input_shape(const GradientRequest& r);

// The shape rule of ops whose output is like their first input, and OpDef::aliases of those whose
// output has its memory.
inline SpecList same_as_first(SpecSpan inputs, const Attributes&) {
  return {inputs[0]};
}
inline std::vector<int> alias_first(SpecSpan, const Attributes&) {
  return {0};
}

// Returns the bytes of all inputs and outputs (Cost::bytes of an op that accesses each once).
double bytes_moved(SpecSpan inputs, SpecSpan outputs);

// Cost rule of an op with kFlops operations per element of its first input.
template <int kFlops>
Cost cost_an_element(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {kFlops * static_cast<double>(inputs[0].shape.elements()), bytes_moved(inputs, outputs)};
}

// The placement rule of element-wise ops: every operand is sharded on the same dimension of the
// output, except operands that are broadcast along it.
std::optional<std::vector<Placement>> place_elementwise(SpecSpan inputs, const Attributes&,
                                                        std::span<const Placement> placements);

// The placement rule of ops that work on each row of the last axis: the first input may be sharded
// on an axis before it, and with it all kOutputs outputs; the other inputs are replicated.
template <int kOutputs>
std::optional<std::vector<Placement>> place_rows(SpecSpan inputs, const Attributes&,
                                                 std::span<const Placement> p) {
  if (p[0].kind != Placement::sharded || p[0].dimension == inputs[0].shape.rank() - 1) return {};
  for (const Placement& other : p.subspan(1)) {
    if (other.kind != Placement::replicated) return {};
  }
  return std::vector<Placement>(kOutputs, p[0]);
}

// The placement rule of ops on images whose windows do not mix samples or channels: either may be
// sharded, in the input and all kOutputs outputs.
template <int kOutputs>
std::optional<std::vector<Placement>> place_windows(SpecSpan, const Attributes&,
                                                    std::span<const Placement> p) {
  const bool fits = p[0].kind == Placement::sharded && (p[0].dimension == 0 || p[0].dimension == 3);
  return fits ? std::optional(std::vector<Placement>(kOutputs, p[0])) : std::nullopt;
}

// Returns the placement of a tensor that is sharded as `placement` after a change of its shape;
// kReplicated if its shards are not ranges of a dimension then.
Placement reshaped(const Placement& placement, const Shape& from, const Shape& to);

// Records in the attributes where the shard of a rank lies in the whole output
// (ops/shard_position.h).
void localize_position(Attributes& attributes, const LocalNode& node);

inline const Placement kReplicated{Placement::replicated, -1, {}};
inline const Placement kPartial{Placement::partial, -1, {}};

}  // namespace dltrain
