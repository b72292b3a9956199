// Metrics of evaluations besides the loss. Every metric is a function of sums over the samples,
// which the evaluation graph computes (lib/ops/metric_sums.cpp) and which are summed over ranks, so
// a metric does not depend on the batches.
//
// Perplexity is the exponential of the mean of −log p(label) over the labels that count, whatever
// the loss adds (label smoothing, class weights, z-loss).
//
// All are scikit-learn's. Of a class: precision = TP/(TP+FP), recall = TP/(TP+FN), F1 =
// 2TP/(2TP+FP+FN), 0 where the divisor is 0. `macro` is the mean over the classes that occur as
// target or as answer, `weighted` the mean weighted by how often they occur as target. One output
// of a binary loss has two classes, 0 and 1; of several outputs each is a class of its own, all of
// them count in `macro`, and `accuracy` is the share of right elements (1 − hamming_loss).
//
// Of numbers: the mean over the outputs of a sample of each output's error or R². Where the targets
// of an output do not vary, its R² is 1 if all answers are right and 0 otherwise.
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

// A sum over the samples: f64, of one or more elements.
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
  double support = 0;  // how often it occurs as target
};

struct ClassReport {
  std::vector<ClassScores> classes;  // of labels, of 0 and 1, or of each output of a binary loss
  // Row by row: targets × answers, where `confusion` was asked for. Of several outputs of a binary
  // loss: true negatives, false positives, false negatives, true positives of each.
  std::vector<double> confusion;
  ClassScores macro, weighted;
};

struct MetricReport {
  std::vector<std::pair<std::string, double>> values;  // in the order of the names
  ClassReport classes;                                 // empty where nothing asked for it
};

// A finished sum, found by its label.
struct SummedMetric {
  std::string label;
  std::vector<double> sums;
};

// Computes the metrics. `valid`: the number of targets that count.
MetricReport finish_metrics(const std::vector<std::string>& names, TargetKind kind,
                            const std::vector<SummedMetric>& sums, double valid);

}  // namespace dltrain
