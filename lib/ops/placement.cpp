// Changes of placement along one axis of the mesh, for graphs that are differentiated after they
// are partitioned (passes/partition.h). They are lowered to collectives before kernels are chosen,
// so engines have no kernels for them. Attribute of all: over (the axes, ops' kOver).
//
// all_reduce(x): partial → replicated, the sum over the ranks. The gradient is dy as it is.
// all_gather(x): sharded → replicated, the shards of the ranks in a row along `dimension`.
//   Attributes: dimension, ranks, rank, parts (extent and length of each, see ops/placement.h). The
//   gradient is the rank's slice of dy.
// all_to_all(x [, sent, received]): the ranks' parts of x, exchanged (ops/expert_places.cpp). The
//   gradient goes the same way back.
// gather_tokens(x): the tokens of the ranks (ops/token_runs.h) along `axis`, in the order of the
//   text. The gradient is scatter_tokens.
// scatter_tokens(x): the tokens of this rank of the sum of x over the ranks. The gradient is
//   gather_tokens.
// all_reduce_gradient(x): x, replicated, for ops of which every rank computes a part: the gradient
//   is the sum of those of the ranks.
#include "ops/definitions.h"
#include "ops/gathered_parts.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_all_gather(SpecSpan inputs, const Attributes& attributes) {
  TensorSpec y = inputs[0];
  y.shape[static_cast<int>(attributes.integer("dimension"))] =
      whole_extent(gathered_parts(attributes));
  return {y};
}

std::vector<ValueId> gradient_all_reduce(const GradientRequest& r) {
  return {r.output_gradients[0]};
}

std::vector<ValueId> gradient_all_reduce_gradient(const GradientRequest& r) {
  return {r.emitter.emit1("all_reduce", {r.output_gradients[0]}, r.attributes)};
}

std::vector<ValueId> gradient_all_gather(const GradientRequest& r) {
  const auto rank = static_cast<int>(r.attributes.integer("rank"));
  return {emit_ranges(r.emitter, r.output_gradients[0],
                      static_cast<int>(r.attributes.integer("dimension")),
                      cut_ranges(gathered_parts(r.attributes), rank))};
}

std::vector<ValueId> gradient_all_to_all(const GradientRequest& r) {
  return {r.emitter.emit1("all_to_all", {r.output_gradients[0], r.inputs[2], r.inputs[1]},
                          r.attributes),
          kNoValue, kNoValue};
}

SpecList infer_tokens(SpecSpan inputs, const Attributes& attributes, bool gathers) {
  TensorSpec y = inputs[0];
  int64_t& tokens = y.shape[static_cast<int>(attributes.integer("axis"))];
  const int ranks = TokenCut(attributes).ranks;
  tokens = gathers ? tokens * ranks : tokens / ranks;
  return {y};
}
SpecList infer_gather_tokens(SpecSpan inputs, const Attributes& attributes) {
  return infer_tokens(inputs, attributes, true);
}
SpecList infer_scatter_tokens(SpecSpan inputs, const Attributes& attributes) {
  return infer_tokens(inputs, attributes, false);
}

std::vector<ValueId> gradient_gather_tokens(const GradientRequest& r) {
  return {r.emitter.emit1("scatter_tokens", {r.output_gradients[0]}, r.attributes)};
}

std::vector<ValueId> gradient_scatter_tokens(const GradientRequest& r) {
  return {r.emitter.emit1("gather_tokens", {r.output_gradients[0]}, r.attributes)};
}

// Along another axis x may be sharded over other ranks.
std::optional<std::vector<Placement>> place_tokens(SpecSpan, const Attributes& attributes,
                                                   std::span<const Placement> p) {
  const bool other =
      p[0].kind == Placement::sharded && p[0].dimension != attributes.integer("axis");
  return other ? std::optional(std::vector{p[0]}) : std::nullopt;
}

}  // namespace

CutParts gathered_parts(const Attributes& attributes) {
  const auto numbers = attributes.integers("parts");
  CutParts out;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) out.push_back({numbers[i], numbers[i + 1], 1});
  return out;
}

void set_gathered_parts(Attributes& attributes, const CutParts& parts) {
  std::vector<int64_t> numbers;
  for (const CutPart& part : parts) {
    numbers.push_back(part.extent);
    numbers.push_back(part.length);
  }
  attributes.set("parts", numbers);
}

ValueId emit_ranges(OpEmitter& emitter, ValueId x, int dimension,
                    std::span<const CutRange> ranges) {
  const Shape shape = emitter.spec(x).shape;
  std::vector<ValueId> slices;
  for (const CutRange& range : ranges) {
    std::vector<int64_t> before(static_cast<size_t>(shape.rank()), 0), after = before;
    before[static_cast<size_t>(dimension)] = range.offset;
    after[static_cast<size_t>(dimension)] = shape[dimension] - range.offset - range.extent;
    slices.push_back(emitter.emit1("slice", {x}, {{"before", before}, {"after", after}}));
  }
  if (slices.size() == 1) return slices[0];
  return emitter.emit1("concat", slices, {{"axis", int64_t{dimension}}});
}

std::span<const OpDef> placement_ops() {
  static constexpr OpDef kOps[]{{.name = "all_reduce",
                                 .doc = "the sum over ranks",
                                 .signature = "x[*] -> y[*]",
                                 .gradient = gradient_all_reduce},
                                {.name = "all_gather",
                                 .doc = "the shards of the ranks along a dimension",
                                 .signature = "x[*]:any",
                                 .infer = infer_all_gather,
                                 .gradient = gradient_all_gather},
                                {.name = "all_to_all",
                                 .doc = "parts of the ranks, exchanged",
                                 .signature = "x[*]:any sent[P]:i32? received[P]:i32?",
                                 .infer = same_as_first,
                                 .gradient = gradient_all_to_all},
                                {.name = "gather_tokens",
                                 .doc = "the tokens of the ranks in the order of the text",
                                 .signature = "x[*]:any",
                                 .infer = infer_gather_tokens,
                                 .gradient = gradient_gather_tokens,
                                 .place = place_tokens},
                                {.name = "scatter_tokens",
                                 .doc = "a rank's tokens of the sum over ranks",
                                 .signature = "x[*]",
                                 .infer = infer_scatter_tokens,
                                 .gradient = gradient_scatter_tokens},
                                {.name = "all_reduce_gradient",
                                 .doc = "x, whose gradient is summed over ranks",
                                 .signature = "x[*]:any -> x!",
                                 .gradient = gradient_all_reduce_gradient}};
  return kOps;
}

}  // namespace dltrain
