// Ops of GaLore (optim/galore.h; Zhao et al. 2024).
//
// galore_projection(step_state, g [m, n], P [rank, min(m, n)]): in update t (StepResults::updates),
//   if (t − 1) mod gap = 0, the rows of P become the leading singular vectors of g: left ones if
//   m < n, else right ones, in the order of their singular values. The element of a vector with the
//   greatest magnitude is positive, so that they are unique. They are computed in f64 as
//   eigenvectors of g·gᵀ (or gᵀ·g), so vectors whose singular value is below 1e-8 of the greatest
//   are arbitrary; with `randomized` by two steps of subspace iteration from rank + 8 random
//   vectors (Halko, Martinsson & Tropp 2011, algorithm 4.4). A step that is not finite changes
//   nothing. Attributes: gap, randomized (boolean).
// step_view(step_state): a copy of the state for other update ops: with `unit_rate` the learning
//   rate is 1, with `plain_gradient` gradients are neither scaled nor clipped.
#include "ops/galore.h"

#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

void check_projection(SpecSpan inputs, const Attributes& attributes) {
  const Shape &g = inputs[1].shape, &p = inputs[2].shape;
  check_internal(p[1] == std::min(g[0], g[1]) && p[0] < p[1] && attributes.integer("gap") > 0,
                 "galore_projection: {} of a gradient of shape {}", to_string(p), to_string(g));
}

}  // namespace

size_t projection_scratch_bytes(SpecSpan inputs, const Attributes& attributes) {
  const int64_t rank = inputs[2].shape[0], side = inputs[2].shape[1];
  const int64_t width = std::min(side, rank + kMoreVectors);
  const int64_t block = side * kProjectionBlock;
  const int64_t numbers = attributes.boolean("randomized")
                              ? block + 5 * side * width + 2 * width * width
                              : block + 2 * side * side + side * rank;
  return sizeof(double) * static_cast<size_t>(numbers);
}

constinit const OpDef kGaloreProjectionOp{
    .name = "galore_projection",
    .doc = "leading singular vectors of a gradient, every `gap` updates",
    .signature = "step g[M,N] projection[R,K] -> projection!",
    .check = check_projection,
    .has_effect = true};
constinit const OpDef kStepViewOp{.name = "step_view",
                                  .doc = "the step state with other factors for updates",
                                  .signature = "step",
                                  .infer = same_as_first};

}  // namespace dltrain
