// Sums from which metrics are computed (nn/metrics.h). They have no gradient. Ignored rows and
// elements (label −100, target NaN) add nothing.
//
// confusion_matrix(logits [..., C], labels i32 [...]) → f64 [C, C]: at [t, p] the number of
//   rows of label t whose greatest logit (the first, on ties; any, with a NaN) is at p.
// top_k_correct(logits [..., C], labels i32 [...]) → f64 [1]: rows whose label is among the
//   attribute `k` greatest logits (ties: the first; a NaN never is).
// regression_sums(output [N, ...], targets [N, ...]) → f64 [n, 5], n the elements of a sample: for
//   each of them count, Σ|d|, Σd², Σt, Σt², d = output − target.
// binary_counts(logits [N, ..., C], targets [N, ..., C]) → f64 [C, 4]: for each place in the last
//   dimension true positives, false positives, false negatives, true negatives; positive is
//   logit > 0, target > ½. Logits [N] have one place.
// source_sums(losses f64 [...], targets i32 [...], sources i32 [...]) → f64 [S, 2], S the attribute
//   `sources`: for each source of the data the sum of the losses of its rows, and their number.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

void check_top_k(SpecSpan, const Attributes& attributes) {
  check_internal(attributes.integer("k") >= 1, "top_k_correct without k");
}

SpecList infer_regression_sums(SpecSpan inputs, const Attributes&) {
  const Shape& x = inputs[0].shape;
  return {{Shape{x.elements(1, x.rank()), 5}, DType::f64}};
}

SpecList infer_binary_counts(SpecSpan inputs, const Attributes&) {
  const Shape& x = inputs[0].shape;
  return {{Shape{x.rank() > 1 ? x[-1] : 1, 4}, DType::f64}};
}

}  // namespace

constinit const OpDef kConfusionMatrixOp{
    .name = "confusion_matrix",
    .doc = "how often each label was taken for each class",
    .signature = "logits[*,C] labels[*]:i32 -> counts[C,C]:f64"};
constinit const OpDef kTopKCorrectOp{.name = "top_k_correct",
                                     .doc = "rows whose label is among the k largest logits",
                                     .signature = "logits[*,C] labels[*]:i32 -> correct[1]:f64",
                                     .check = check_top_k};
constinit const OpDef kRegressionSumsOp{.name = "regression_sums",
                                        .doc = "count, Σ|d|, Σd², Σt, Σt² of each output",
                                        .signature = "x[N,*] targets[N,*]:sum",
                                        .infer = infer_regression_sums};
constinit const OpDef kBinaryCountsOp{
    .name = "binary_counts",
    .doc = "true and false positives and negatives of each output",
    .signature = "logits[N,*] targets[N,*]:sum",
    .infer = infer_binary_counts};
constinit const OpDef kSourceSumsOp{
    .name = "source_sums",
    .doc = "sum and number of the losses of the rows of each source",
    .signature = "losses[*]:f64 targets[*]:i32 sources[*]:i32 -> sums[S,2]:f64; S=sources"};

}  // namespace dltrain
