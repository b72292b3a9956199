// Products of FP8 operands (passes/fp8.h). Operands are rounded to FP8 (kernels/shared/fp8.h) and
// stay in the dtype of the layer, which holds every FP8 number times its scale, a power of two: the
// product of rounded operands with sums in f32 is that of FP8 tensor cores but for the order of the
// sums.
//
// fp8_counts(x) → counts [256]: 1 at the place of the scale that the largest |x| needs, 0
//   elsewhere; of x = 0 nothing. Sums over ranks, micro-batches and updates keep the greatest: the
//   last place that is not 0.
// fp8_round(x, [counts]) → y, lost: y = x rounded, with the scale of `counts` (larger values become
// the
//   largest), or without `counts` with a scale for each block of rows and columns of x (its last
//   axis). Attributes: block, integers [rows, columns]; the last block may be smaller. lost, f64
//   [3]: the shares of elements that became the largest number, or 0 without being 0; and 1.
// fp8_scale_update(step_state, counts, history [window], scale [256]): the scale of the next step
// is
//   the greatest of the last `window` updates (delayed scaling; NVIDIA's Transformer Engine). Not
//   in a step that is not finite.
// Attribute of the first two: format, e4m3 (4 bits of exponent, 3 of fraction, up to 448) or e5m2
//   (up to 57344). Without gradients: the pass rounds the operands of the backward as well.
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr int64_t kPlaces = 256;

SpecList infer_fp8_counts(SpecSpan inputs, const Attributes&) {
  return {{Shape{kPlaces}, accumulation_dtype(inputs[0].dtype)}};
}

void check_fp8_round(SpecSpan inputs, const Attributes& attributes) {
  const bool has_counts = inputs.size() > 1 && !is_absent(inputs[1]);
  check_internal(attributes.has("block") != has_counts, "fp8_round: counts or blocks");
  if (has_counts) expect_shape("fp8_round", "the counts", inputs[1].shape, Shape{kPlaces});
}

void check_fp8_scale_update(SpecSpan inputs, const Attributes&) {
  expect_shape("fp8_scale_update", "the counts", inputs[1].shape, Shape{kPlaces});
}

}  // namespace

constinit const OpDef kFp8CountsOp{.name = "fp8_counts",
                                   .doc = "the FP8 scale that the largest element needs",
                                   .signature = "x[*]",
                                   .infer = infer_fp8_counts};
constinit const OpDef kFp8RoundOp{.name = "fp8_round",
                                  .doc = "x rounded to FP8, scaled by powers of two",
                                  .signature = "x[*] counts[N]:sum? -> y[*] lost[3]:f64",
                                  .check = check_fp8_round};
constinit const OpDef kFp8ScaleUpdateOp{
    .name = "fp8_scale_update",
    .doc = "FP8 scale of the next step, from the last ones",
    .signature = "step counts[N] history[W] scale[N] -> history! scale!",
    .check = check_fp8_scale_update,
    .has_effect = true};

}  // namespace dltrain
