// dequantize(codes, absmax, nested): expands a weight that is kept in 4 or 8 bits
// (tensor/weight_codes.h has the formats and the inputs).
//   w [N, K] of `output_dtype`: N `rows`, K `columns`. Attribute format: "nf4" or "int8". Computed
//   in the dtype of the scales (f32; f64 in tests), then rounded. Without a gradient: the weight is
//   frozen.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "tensor/weight_codes.h"

namespace dltrain {
namespace {

void check_dequantize(SpecSpan inputs, const Attributes& a) {
  const bool nested = inputs.size() > 2 && !is_absent(inputs[2]);
  const WeightCodes codes{a.text("format") == "int8" ? WeightFormat::int8 : WeightFormat::nf4,
                          nested};
  const auto parts = coded_parts(codes, a.integer("rows"), a.integer("columns"));
  check_internal(parts.size() == (nested ? 3u : 2u), "dequantize: int8 has no nested scales");
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorSpec& spec = parts[i].spec;
    expect_shape("dequantize", parts[i].kind, inputs[i].shape, spec.shape);
    if (inputs[i].dtype != DType::f64) {
      expect_dtype("dequantize", parts[i].kind, inputs[i], spec.dtype);
    }
  }
}

}  // namespace

constinit const OpDef kDequantizeOp{
    .name = "dequantize",
    .doc = "w = code · absmax of its block (nf4) or row (int8)",
    .signature =
        "codes[.]:u8 absmax[B]:any nested[M]:any? -> w[N,K]:output_dtype; N=rows; K=columns",
    .check = check_dequantize};

}  // namespace dltrain
