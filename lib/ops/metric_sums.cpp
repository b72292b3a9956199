// Sums from which metrics are computed (nn/metrics.h). They have no gradient. Ignored rows and
// elements (label −100, target NaN) add nothing.
//
// confusion_matrix(logits [..., C], labels i32 [...]) → f64 [C, C]: at [t, p] the number of
//   rows of label t whose greatest logit (the first, on ties) is at p.
// top_k_correct(logits [..., C], labels i32 [...]) → f64 [1]: rows whose label is among the
//   attribute `k` greatest logits (ties: the first).
// regression_sums(output [N, ...], targets [N, ...]) → f64 [n, 5], n the elements of a sample: for
//   each of them count, Σ|d|, Σd², Σt, Σt², d = output − target.
// binary_counts(logits [N, ...], targets [N, ...]) → f64 [n, 4]: for each element of a sample true
//   positives, false positives, false negatives, true negatives; positive is logit > 0, target > ½.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

void expect_labels_metric_sums(std::string_view op, SpecSpan inputs) {
  expect_inputs(op, inputs, 2, 2);
  expect_rank(op, "logits", inputs[0].shape, 2, Shape::kMaxRank);
  expect_one_float_dtype(op, inputs.first(1));
  const auto rows = inputs[0].shape.dims().first(static_cast<size_t>(inputs[0].shape.rank() - 1));
  expect_shape(op, "labels", inputs[1].shape, Shape(rows));
  expect_dtype(op, "labels", inputs[1], DType::i32);
}

int64_t expect_numbers(std::string_view op, SpecSpan inputs) {
  expect_inputs(op, inputs, 2, 2);
  expect_rank(op, "the output", inputs[0].shape, 1, Shape::kMaxRank);
  expect_one_float_dtype(op, inputs.first(1));
  expect_shape(op, "targets", inputs[1].shape, inputs[0].shape);
  expect_dtype(op, "targets", inputs[1], accumulation_dtype(inputs[0].dtype));
  return inputs[0].shape.elements(1, inputs[0].shape.rank());
}

SpecList infer_confusion(SpecSpan inputs, const Attributes&) {
  expect_labels_metric_sums("confusion_matrix", inputs);
  return {{Shape{inputs[0].shape[-1], inputs[0].shape[-1]}, DType::f64}};
}

SpecList infer_top_k(SpecSpan inputs, const Attributes& attributes) {
  expect_labels_metric_sums("top_k_correct", inputs);
  check_internal(attributes.integer("k") >= 1, "top_k_correct without k");
  return {{Shape{1}, DType::f64}};
}

SpecList infer_regression(SpecSpan inputs, const Attributes&) {
  return {{Shape{expect_numbers("regression_sums", inputs), 5}, DType::f64}};
}

SpecList infer_metric_sums_binary(SpecSpan inputs, const Attributes&) {
  return {{Shape{expect_numbers("binary_counts", inputs), 4}, DType::f64}};
}

constexpr OpDef sums(std::string_view name, std::string_view doc,
                     SpecList (*infer)(SpecSpan, const Attributes&)) {
  return {.name = name, .doc = doc, .infer = infer};
}

}  // namespace

constinit const OpDef kConfusionMatrixOp =
    sums("confusion_matrix", "how often each label was taken for each class", infer_confusion);
constinit const OpDef kTopKCorrectOp =
    sums("top_k_correct", "rows whose label is among the k largest logits", infer_top_k);
constinit const OpDef kRegressionSumsOp =
    sums("regression_sums", "count, Σ|d|, Σd², Σt, Σt² of each output", infer_regression);
constinit const OpDef kBinaryCountsOp =
    sums("binary_counts", "true and false positives and negatives of each output",
         infer_metric_sums_binary);

}  // namespace dltrain
