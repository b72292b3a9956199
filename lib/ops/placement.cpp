// Changes of placement along one axis of the mesh, for graphs that are differentiated after they
// are partitioned (passes/partition.h). They are lowered to collectives before kernels are chosen,
// so engines have no kernels for them. Attribute of all: over (the axes, ops' kOver).
//
// all_reduce(x): partial → replicated, the sum over the ranks. The gradient is dy as it is.
// all_gather(x): sharded → replicated, the shards of the ranks in a row along `dimension`.
//   Attributes: dimension, ranks, rank, extent (of the whole dimension). The gradient is the rank's
//   slice of dy.
// all_reduce_gradient(x): x, replicated, for ops of which every rank computes a part: the gradient
//   is the sum of those of the ranks.
#include "ops/definitions.h"

namespace dltrain {
namespace {

SpecList infer_all_gather(SpecSpan inputs, const Attributes& attributes) {
  TensorSpec y = inputs[0];
  y.shape[static_cast<int>(attributes.integer("dimension"))] = attributes.integer("extent");
  return {y};
}

std::vector<ValueId> gradient_all_reduce(const GradientRequest& r) {
  return {r.output_gradients[0]};
}

std::vector<ValueId> gradient_all_reduce_gradient(const GradientRequest& r) {
  return {r.emitter.emit1("all_reduce", {r.output_gradients[0]}, r.attributes)};
}

std::vector<ValueId> gradient_all_gather(const GradientRequest& r) {
  const Shape x = r.emitter.spec(r.inputs[0]).shape;
  const int dimension = static_cast<int>(r.attributes.integer("dimension"));
  const int64_t extent = r.attributes.integer("extent"), ranks = r.attributes.integer("ranks");
  std::vector<int64_t> before(static_cast<size_t>(x.rank()), 0), after = before;
  const auto at = static_cast<size_t>(dimension);
  before[at] = (extent + ranks - 1) / ranks * r.attributes.integer("rank");
  after[at] = extent - before[at] - x[dimension];
  return {
      r.emitter.emit1("slice", {r.output_gradients[0]}, {{"before", before}, {"after", after}})};
}

}  // namespace

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
                                {.name = "all_reduce_gradient",
                                 .doc = "x, whose gradient is summed over ranks",
                                 .signature = "x[*]:any -> x!",
                                 .gradient = gradient_all_reduce_gradient}};
  return kOps;
}

}  // namespace dltrain
