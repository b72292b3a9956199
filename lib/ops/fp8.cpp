// Products of FP8 operands (passes/fp8.h). Operands are rounded to FP8 (kernels/shared/fp8.h) and
// stay in the dtype of the layer, which holds every FP8 number times its scale, a power of two: the
// product of rounded operands with sums in f32 is that of FP8 tensor cores but for order and
// precision of the sums.
//
// fp8_counts(x) → counts [256]: 1 at the place of the scale that the largest |x| needs, 0
//   elsewhere; of x = 0 nothing. Sums over ranks, micro-batches and updates keep the greatest: the
//   last place that is not 0.
// fp8_round(x, [counts]) → y, lost: y = x rounded, with the scale of `counts` (larger values become
//   the largest), or without `counts` with a scale for each block of rows and columns of x (its
//   last axis). Attributes: block, integers [rows, columns]; the last block may be smaller. lost,
//   f64 [3]: the shares of elements that became the largest number, or 0 without being 0; and 1.
// fp8_scale_update(step_state, counts, history [window], scale [256]): the scale of the next step
//   is the greatest of the last `window` updates (delayed scaling; NVIDIA's Transformer Engine).
//   Not in a step that is not finite.
// Attribute of the first two: format, e4m3 (4 bits of exponent, 3 of fraction, up to 448) or e5m2
//   (up to 57344). Without gradients: the pass rounds the operands of the backward as well.
//
// On devices that multiply FP8 the pass emits these ops instead; a code is an FP8 number, one byte:
//
// fp8_codes(x, [counts]) → codes, scales, lost: codes · scales is the y of fp8_round. Attributes:
//   format; transpose: x is flattened to [rows, last], and codes are [last, rows rounded up to a
//   multiple of 16], with zeros at the end; without `counts` block, the rows and columns of *codes*
//   that share a scale: [1, 128], [128, 128] or [1, 32]. For the first two, scales have the dtype
//   of sums; for [1, 32] they are bytes, n + 127 of 2ⁿ (E8M0). Their order is what cuBLASLt reads:
//   Fp8Scales of kernels/shared/fp8.h.
// fp8_values(codes, scales) → codes · scales in `output_dtype`. Attributes: format; block.
// fp8_matmul(a [..., M, K], b [N, K], scales_a, scales_b, bias [N]) → y [..., M, N]: the product of
//   the values of a and bᵀ (+ bias). Attributes: format_a, format_b; block_a, block_b; output_dtype
//   (default: that of the bias, or of the scales, or f32).
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr int64_t kPlaces = 256;
constexpr int64_t kFp8Grain = 16;  // of the sum of tensor cores

SpecList infer_fp8_counts(SpecSpan inputs, const Attributes&) {
  return {{Shape{kPlaces}, accumulation_dtype(inputs[0].dtype)}};
}

void check_fp8_round(SpecSpan inputs, const Attributes& attributes) {
  const bool has_counts = inputs.size() > 1 && !is_absent(inputs[1]);
  check_internal(attributes.has("block") != has_counts, "fp8: counts or blocks");
  if (has_counts) expect_shape("fp8", "the counts", inputs[1].shape, Shape{kPlaces});
}

void check_fp8_scale_update(SpecSpan inputs, const Attributes&) {
  expect_shape("fp8_scale_update", "the counts", inputs[1].shape, Shape{kPlaces});
}

int64_t rounded_up(int64_t x, int64_t grain) {
  return (x + grain - 1) / grain * grain;
}

TensorSpec fp8_scales(const Shape& codes, const std::vector<int64_t>& block, DType dtype) {
  if (block.empty()) return {Shape{1}, dtype};
  const int64_t rows = codes.elements(0, codes.rank() - 1);
  const int64_t across = (codes[-1] + block[1] - 1) / block[1];
  if (block[1] == 32) return {Shape{rounded_up(rows, 128), rounded_up(across, 4)}, DType::u8};
  if (block[0] == 1) return {Shape{across, rows}, dtype};
  return {Shape{(rows + block[0] - 1) / block[0], rounded_up(across, 4)}, dtype};
}

SpecList infer_fp8_codes(SpecSpan inputs, const Attributes& attributes) {
  const TensorSpec& x = inputs[0];
  check_fp8_round(inputs, attributes);
  const std::vector<int64_t> block = attributes.integers("block");
  const int64_t last = x.shape[-1], rows = x.shape.elements(0, x.shape.rank() - 1);
  const Shape codes =
      attributes.boolean("transpose") ? Shape{last, rounded_up(rows, kFp8Grain)} : x.shape;
  return {{codes, DType::u8},
          fp8_scales(codes, block, accumulation_dtype(x.dtype)),
          {Shape{3}, DType::f64}};
}

SpecList infer_fp8_matmul(SpecSpan inputs, const Attributes& attributes) {
  const bool has_bias = inputs.size() > 4 && !is_absent(inputs[4]);
  Shape y = inputs[0].shape;
  y[-1] = inputs[1].shape[0];
  if (has_bias) expect_shape("fp8_matmul", "the bias", inputs[4].shape, Shape{y[-1]});
  for (const auto& [codes, block] : {std::pair(0, "block_a"), {1, "block_b"}}) {
    const TensorSpec& scales = inputs[codes + 2];
    expect_shape("fp8_matmul", "the scales", scales.shape,
                 fp8_scales(inputs[codes].shape, attributes.integers(block), scales.dtype).shape);
  }
  const std::string name = attributes.text("output_dtype");
  const DType dtype = inputs[has_bias ? 4 : 2].dtype;
  return {{y, !name.empty()        ? dtype_from_name(name).value()
              : is_floating(dtype) ? dtype
                                   : DType::f32}};
}

Cost cost_fp8_matmul(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  const auto k = static_cast<double>(inputs[1].shape[1]);
  return {2 * k * static_cast<double>(outputs[0].shape.elements()), bytes_moved(inputs, outputs)};
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
constinit const OpDef kFp8CodesOp{.name = "fp8_codes",
                                  .doc = "x rounded to FP8, in codes of a byte and their scales",
                                  .signature = "x[*] counts[N]:sum?",
                                  .infer = infer_fp8_codes};
constinit const OpDef kFp8ValuesOp{.name = "fp8_values",
                                   .doc = "the numbers of FP8 codes, times their scales",
                                   .signature = "codes[*]:u8 scales[.]:any -> y[*]:output_dtype"};
constinit const OpDef kFp8MatmulOp{
    .name = "fp8_matmul",
    .doc = "y = a·bᵀ (+ bias) of FP8 codes with scales",
    .signature = "a[*,K]:u8 b[N,K]:u8 scales_a[.]:any scales_b[.]:any bias[N]:any?",
    .infer = infer_fp8_matmul,
    .cost = cost_fp8_matmul};

}  // namespace dltrain
