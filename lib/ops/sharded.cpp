// Ops on tensors in a unit of memory, of which every rank owns one part of equal size (graph.h:
// FlatGroup; passes/zero.h). Part r of `elements` elements begins at element r · elements.
// Attributes of all: slot (integer).
//
// reduce_scatter_begin(x₁ … xₙ): starts the sum of the unit over all ranks, of which this rank gets
//   its part [elements]. The x are the tensors of the unit in order; gaps between them are
//   zeroed first. Attributes: elements, ranks.
// reduce_scatter_end(part, x₁ … xₙ): later work waits for it; the x stay as they are until then.
// all_gather_begin(part [, x₁ … xₙ]): starts to gather the parts of all ranks. With x in place: the
//   part is among them. Without: into new tensors in the dtype of the part, with the shapes of the
//   attribute `shapes` (rank, then extents, one tensor after the other).
// all_gather_end(x₁ … xₙ [, part]): later work waits for the x. With the attribute `part` (boolean)
//   the part, an activation, stays as it is until then.
//
// sum_of_squares(x₁ … xₙ): f64 [1], in double over fixed chunks of each.
// gradient_norm_of(step_state, squares f64 [n]): like gradient_norm (update.cpp), but from the sums
//   of squares of all gradients.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_scatter(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("reduce_scatter", inputs, 1, SIZE_MAX);
  expect_one_float_dtype("reduce_scatter", inputs);
  return {{Shape{attributes.integer("elements")}, inputs[0].dtype}};
}
SpecList infer_scatter_end(SpecSpan inputs, const Attributes&) {
  expect_inputs("reduce_scatter", inputs, 2, SIZE_MAX);
  return {inputs[0]};
}

SpecList infer_gather(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("all_gather", inputs, 1, SIZE_MAX);
  const std::vector<int64_t> shapes = attributes.integers("shapes");
  if (shapes.empty()) return {inputs.begin() + 1, inputs.end()};
  SpecList out;
  for (size_t i = 0; i < shapes.size();) {
    const auto rank = static_cast<size_t>(shapes[i]);
    check_internal(i + rank < shapes.size(), "all_gather: shapes end early");
    out.push_back({Shape(std::span(shapes).subspan(i + 1, rank)), inputs[0].dtype});
    i += 1 + rank;
  }
  return out;
}
std::vector<int> aliases_gather(SpecSpan inputs, const Attributes& attributes) {
  const bool in_place = attributes.integers("shapes").empty();
  std::vector<int> out(in_place ? inputs.size() - 1 : infer_gather(inputs, attributes).size(), -1);
  for (size_t i = 0; in_place && i < out.size(); ++i) out[i] = static_cast<int>(i) + 1;
  return out;
}

SpecList infer_gather_end(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("all_gather", inputs, 1, SIZE_MAX);
  return {inputs.begin(), inputs.end() - (attributes.boolean("part") ? 1 : 0)};
}
std::vector<int> aliases_gather_end(SpecSpan inputs, const Attributes& attributes) {
  std::vector<int> out(infer_gather_end(inputs, attributes).size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i);
  return out;
}

SpecList infer_squares(SpecSpan inputs, const Attributes&) {
  expect_inputs("sum_of_squares", inputs, 1, SIZE_MAX);
  expect_one_float_dtype("sum_of_squares", inputs);
  return {{Shape{1}, DType::f64}};
}

}  // namespace

constinit const OpDef kReduceScatterBeginOp{.name = "reduce_scatter_begin",
                                            .doc = "starts a reduce-scatter over the ranks",
                                            .infer = infer_scatter,
                                            .has_effect = true,
                                            .message = MessageKind::reduce_scatter,
                                            .slot = SlotUse::begins};
constinit const OpDef kReduceScatterEndOp{.name = "reduce_scatter_end",
                                          .doc = "waits for a reduce-scatter",
                                          .infer = infer_scatter_end,
                                          .aliases = alias_first,
                                          .has_effect = true,
                                          .message = MessageKind::reduce_scatter,
                                          .slot = SlotUse::ends};
constinit const OpDef kAllGatherBeginOp{.name = "all_gather_begin",
                                        .doc = "starts an all-gather over the ranks",
                                        .infer = infer_gather,
                                        .aliases = aliases_gather,
                                        .has_effect = true,
                                        .message = MessageKind::all_gather,
                                        .slot = SlotUse::begins};
constinit const OpDef kAllGatherEndOp{.name = "all_gather_end",
                                      .doc = "waits for an all-gather",
                                      .infer = infer_gather_end,
                                      .aliases = aliases_gather_end,
                                      .has_effect = true,
                                      .message = MessageKind::all_gather,
                                      .slot = SlotUse::ends};
constinit const OpDef kSumOfSquaresOp{.name = "sum_of_squares",
                                      .doc = "sum of the squares of all elements",
                                      .infer = infer_squares,
                                      .combines_micro_steps = true};
constinit const OpDef kGradientNormOfOp{.name = "gradient_norm_of",
                                        .doc = "gradient_norm from a sum of squares",
                                        .signature = "step squares[N]:f64 -> step!",
                                        .has_effect = true};

}  // namespace dltrain
