// Metrics of evaluations besides the loss. Every metric is a function of sums over the samples,
// which the evaluation graph computes (lib/ops/metric_sums.cpp) and which are summed over ranks, so
// a metric does not depend on the batches.
//
// Perplexity is the exponential of the mean of −log p(label) over the labels that count, whatever
// the loss adds (label smoothing, class weights, z-loss).
//
// Bits per byte is the same mean for text, in bits, times the ratio of tokens to bytes of text, and
// so comparable between tokenizers. Special tokens have no bytes.
//
// All metrics are scikit-learn's. For a class, precision = TP/(TP+FP), recall = TP/(TP+FN) and F1 =
// 2TP/(2TP+FP+FN), or 0 if the divisor is 0. `macro` is the mean over the classes that occur as
// target or prediction; `weighted` weights this mean by the number of targets. The outputs of a
// binary loss are the last dimension; its other dimensions (pixels, tokens) count as samples. One
// output has the classes 0 and 1. With several outputs, each is a class that counts in `macro`, and
// `accuracy` is the share of correct elements (1 − hamming_loss).
//
// For numbers, a metric is the mean of the errors or R² of all outputs of a sample. If the targets
// of an output are constant, its R² is 1 if all predictions are correct, otherwise 0. An output
// with fewer than two targets has no R²: it does not count, and without others the metric is NaN.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "nn/loss.h"

namespace dltrain {

// Returns why `name` is not a valid metric of evaluation.metrics, or an empty text.
std::string metric_name_problem(const std::string& name);
// Returns why a metric cannot be computed for such targets and outputs, or an empty text.
std::string metric_problem(const std::string& name, TargetKind kind, const TensorSpec& output);
// The default metrics. `labels_are_tokens`: the labels are tokens of a vocabulary, for which
// metrics per class are not useful.
std::vector<std::string> default_metrics(TargetKind kind, const TensorSpec& output,
                                         bool labels_are_tokens = false);

// The names of the values of these metrics: those of f1 are f1_macro and f1_weighted.
std::vector<std::string> metric_labels(const std::vector<std::string>& names);

// The op that computes the sums of a metric; "" if the loss's own sums are sufficient.
std::string_view metric_op(const std::string& name, TargetKind kind);

// A sum over the samples with one or more f64 elements.
struct MetricSum {
  std::string label;
  ValueId value = kNoValue;
};

// Emits the sums for the metrics `names` that the loss does not emit itself.
std::vector<MetricSum> emit_metric_sums(GraphBuilder& builder,
                                        const std::vector<std::string>& names, TargetKind kind,
                                        ValueId output, ValueId targets);

struct ClassScores {
  double precision = 0, recall = 0, f1 = 0;
  double support = 0;  // number of targets
};

struct ClassReport {
  std::vector<ClassScores> classes;  // of labels, of 0 and 1, or of each output of a binary loss
  // The rows of the matrix targets × predictions, if `confusion` is one of the metrics. For several
  // outputs of a binary loss: TN, FP, FN and TP of each.
  std::vector<double> confusion;
  bool of_outputs = false;  // the classes are several outputs of a binary loss
  ClassScores macro, weighted;
};

struct MetricReport {
  std::vector<std::pair<std::string, double>> values;  // in the order of the names
  ClassReport classes;                                 // empty without metrics of classes
};

// A finished sum, found by its label.
struct SummedMetric {
  std::string label;
  std::vector<double> sums;
};

inline constexpr const char* kBitsPerByte = "bits_per_byte";
inline constexpr const char* kTextBytes = "text_bytes";  // the label of the bytes of the targets

// Computes the metrics. `valid` is the number of targets that count.
MetricReport finish_metrics(const std::vector<std::string>& names, TargetKind kind,
                            const std::vector<SummedMetric>& sums, double valid);

}  // namespace dltrain
