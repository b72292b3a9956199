#include "nn/metrics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

constexpr const char* kPerplexity = "perplexity";
constexpr const char* kCrossEntropy = "softmax_cross_entropy";
constexpr int64_t kMaxConfused = 4096;  // classes, whose matrix has 128 MiB
constexpr int64_t kDefaultF1Classes = 1000;
constexpr int64_t kDefaultTopClasses = 100;
constexpr double kConstant = 1e-12;  // variation of constant targets relative to their squares

// Returns the k of "top_k".
std::optional<int64_t> top_k(const std::string& name) {
  if (!name.starts_with("top_")) return {};
  const auto k = parse_number<int64_t>(std::string_view(name).substr(4));
  return k >= 1 ? k : std::nullopt;
}

bool is_class_metric(const std::string& name) {
  return name == "precision" || name == "recall" || name == "f1" || name == "confusion";
}
bool is_number_metric(const std::string& name) {
  return name == "mae" || name == "mse" || name == "rmse" || name == "r2";
}

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

ClassScores scores(double both, double taken, double wanted) {
  return {.precision = ratio(both, taken),
          .recall = ratio(both, wanted),
          .f1 = ratio(2 * both, taken + wanted),
          .support = wanted};
}

// Adds the means. `classes`: the number of classes that occur; the others contribute 0.
void add_means(ClassReport& report, double classes) {
  double support = 0;
  for (const ClassScores& c : report.classes) {
    support += c.support;
    report.macro.precision += c.precision;
    report.macro.recall += c.recall;
    report.macro.f1 += c.f1;
    report.weighted.precision += c.support * c.precision;
    report.weighted.recall += c.support * c.recall;
    report.weighted.f1 += c.support * c.f1;
  }
  const auto divide = [](ClassScores& sum, double by) {
    sum.precision = ratio(sum.precision, by);
    sum.recall = ratio(sum.recall, by);
    sum.f1 = ratio(sum.f1, by);
  };
  divide(report.macro, classes);
  divide(report.weighted, support);
  report.macro.support = report.weighted.support = support;
}

ClassReport of_confusion(const std::vector<double>& matrix) {
  const auto n = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(matrix.size()))));
  ClassReport report;
  double occurring = 0;
  for (size_t k = 0; k < n; ++k) {
    double taken = 0, wanted = 0;
    for (size_t i = 0; i < n; ++i) {
      taken += matrix[i * n + k];
      wanted += matrix[k * n + i];
    }
    report.classes.push_back(scores(matrix[k * n + k], taken, wanted));
    occurring += taken + wanted > 0 ? 1 : 0;
  }
  add_means(report, occurring);
  return report;
}

// `counts` has true negatives, false positives, false negatives and true positives of each output.
// With one output they are the confusion matrix of two classes.
ClassReport of_binary_counts(const std::vector<double>& counts) {
  if (counts.size() == 4) return of_confusion(counts);
  ClassReport report;
  report.of_outputs = true;
  for (size_t i = 0; i < counts.size(); i += 4) {
    const double both = counts[i + 3];
    report.classes.push_back(scores(both, both + counts[i + 1], both + counts[i + 2]));
  }
  add_means(report, static_cast<double>(report.classes.size()));
  return report;
}

// Returns R² of one output. Targets that vary by less than the rounding error count as constant.
double r2(double squared, double variation, double targets_squared) {
  if (variation > kConstant * targets_squared) return 1 - squared / variation;
  return squared == 0 ? 1 : 0;
}

// Returns the mean over the outputs that have targets, of R² at least two.
double number_metric(const std::string& name, const std::vector<double>& sums) {
  double total = 0, outputs = 0;
  for (size_t i = 0; i < sums.size(); i += 5) {
    const double count = sums[i], squared = sums[i + 2], targets = sums[i + 3];
    if (count < (name == "r2" ? 2 : 1)) continue;
    outputs += 1;
    if (name == "mae") total += sums[i + 1] / count;
    if (name == "mse") total += squared / count;
    if (name == "rmse") total += std::sqrt(squared / count);
    if (name == "r2") total += r2(squared, sums[i + 4] - targets * targets / count, sums[i + 4]);
  }
  return total / outputs;
}

const std::vector<double>& find(const std::vector<SummedMetric>& sums, std::string_view label) {
  for (const SummedMetric& sum : sums) {
    if (sum.label == label) return sum.sums;
  }
  fail(ExitCode::internal, "no sum is named {}", label);
}

}  // namespace

std::string metric_name_problem(const std::string& name) {
  if (name == "accuracy" || name == kPerplexity || name == kBitsPerByte || top_k(name) ||
      is_class_metric(name) || is_number_metric(name)) {
    return {};
  }
  for (const char* metric : {"precision", "recall", "f1"}) {
    if (!contains(metric_labels({metric}), name)) continue;
    return fmt::format("unknown metric '{}'; did you mean '{}'?", name, metric);
  }
  const std::string known[] = {"accuracy",  kPerplexity, kBitsPerByte, "top_5",
                               "precision", "recall",    "f1",         "confusion",
                               "mae",       "mse",       "rmse",       "r2"};
  const std::string near = nearest_name(name, known);
  return fmt::format("unknown metric '{}'; {}", name,
                     near.empty() ? "the metrics are " + join_names(known)
                                  : fmt::format("did you mean '{}'?", near));
}

std::string metric_problem(const std::string& name, TargetKind kind, const TensorSpec& output) {
  const bool numbers = kind == TargetKind::numbers;
  if (is_number_metric(name) != numbers) {
    return fmt::format("{} cannot be computed: targets are {}", name,
                       numbers ? "numbers, not classes" : "classes, not numbers");
  }
  const auto k = top_k(name);
  const bool of_one_label = k || name == kPerplexity || name == kBitsPerByte;
  if (of_one_label && kind != TargetKind::labels) return name + " needs one label a target";
  if (k && *k > output.shape[-1]) return fmt::format("{} of {} classes", name, output.shape[-1]);
  if (is_class_metric(name) && kind == TargetKind::distributions) {
    return name + " needs labels; targets are distributions";
  }
  if (is_class_metric(name) && kind == TargetKind::labels && output.shape[-1] > kMaxConfused) {
    return fmt::format("{} needs a matrix over {} classes; at most {} are supported", name,
                       output.shape[-1], kMaxConfused);
  }
  return {};
}

std::vector<std::string> default_metrics(TargetKind kind, const TensorSpec& output,
                                         bool labels_are_tokens) {
  if (kind == TargetKind::numbers) return {"mae", "rmse"};
  if (kind == TargetKind::labels && labels_are_tokens) return {"accuracy", kPerplexity};
  std::vector<std::string> names{"accuracy"};
  if (kind == TargetKind::binary) names.push_back("f1");
  if (kind == TargetKind::labels) {
    const int64_t classes = output.shape[-1];
    if (classes >= kDefaultTopClasses) names.push_back("top_5");
    if (classes <= kDefaultF1Classes) names.push_back("f1");
  }
  return names;
}

std::vector<std::string> metric_labels(const std::vector<std::string>& names) {
  std::vector<std::string> labels;
  for (const std::string& name : names) {
    if (name == "f1") {
      labels.insert(labels.end(), {"f1_macro", "f1_weighted"});
    } else if (name == "precision" || name == "recall") {
      labels.push_back(name + "_macro");
    } else if (name != "confusion") {
      labels.push_back(name);
    }
  }
  return labels;
}

std::string_view metric_op(const std::string& name, TargetKind kind) {
  if (top_k(name)) return "top_k_correct";
  if (name == kPerplexity || name == kBitsPerByte) return kCrossEntropy;
  if (is_number_metric(name)) return "regression_sums";
  if (!is_class_metric(name)) return "";
  return kind == TargetKind::binary ? "binary_counts" : "confusion_matrix";
}

namespace {

// Returns the sum of −log p(label). The loss's own sum is reused if it has no further terms.
ValueId cross_entropy_sum(GraphBuilder& builder, ValueId output, ValueId targets) {
  const std::vector<ValueId> inputs{output, targets};
  for (const Node& node : builder.graph().nodes) {
    if (node.op->name == kCrossEntropy && node.inputs == inputs &&
        node.attributes.number("label_smoothing") == 0 && node.attributes.number("z_loss") == 0) {
      return node.outputs[0];
    }
  }
  return builder.emit(kCrossEntropy, inputs, {{"ignore_index", int64_t{-100}}})[0];
}

}  // namespace

std::vector<MetricSum> emit_metric_sums(GraphBuilder& builder,
                                        const std::vector<std::string>& names, TargetKind kind,
                                        ValueId output, ValueId targets) {
  std::vector<MetricSum> out;
  for (const std::string& name : names) {
    const std::string_view op = metric_op(name, kind);
    if (op.empty()) continue;
    // Each top_k has its own sum; the other metrics of an op share one.
    const auto k = top_k(name);
    std::string label = k ? name : std::string(op);
    if (std::any_of(out.begin(), out.end(), [&](const auto& sum) { return sum.label == label; })) {
      continue;
    }
    if (label == kCrossEntropy) {
      out.push_back({std::move(label), cross_entropy_sum(builder, output, targets)});
      continue;
    }
    const Attributes attributes = k ? Attributes{{"k", *k}} : Attributes{};
    out.push_back({std::move(label), builder.emit1(op, {output, targets}, attributes)});
  }
  return out;
}

MetricReport finish_metrics(const std::vector<std::string>& names, TargetKind kind,
                            const std::vector<SummedMetric>& sums, double valid) {
  MetricReport report;
  if (std::ranges::any_of(names, is_class_metric)) {
    const bool binary = kind == TargetKind::binary;
    std::vector<double> counts = find(sums, metric_op("f1", kind));
    // The op writes true positives first.
    for (size_t i = 0; binary && i < counts.size(); i += 4) std::swap(counts[i], counts[i + 3]);
    report.classes = binary ? of_binary_counts(counts) : of_confusion(counts);
    if (contains(names, "confusion")) report.classes.confusion = counts;
  }
  const ClassScores &macro = report.classes.macro, &weighted = report.classes.weighted;
  for (const std::string& name : names) {
    const auto add = [&](const std::string& label, double value) {
      report.values.emplace_back(label, value);
    };
    if (name == "accuracy" || top_k(name)) add(name, find(sums, name)[0] / valid);
    if (name == kPerplexity) add(name, std::exp(find(sums, kCrossEntropy)[0] / valid));
    if (name == kBitsPerByte) {
      add(name, find(sums, kCrossEntropy)[0] / std::numbers::ln2 / find(sums, kTextBytes)[0]);
    }
    if (is_number_metric(name)) add(name, number_metric(name, find(sums, metric_op(name, kind))));
    if (name == "precision") add("precision_macro", macro.precision);
    if (name == "recall") add("recall_macro", macro.recall);
    if (name == "f1") {
      add("f1_macro", macro.f1);
      add("f1_weighted", weighted.f1);
    }
  }
  return report;
}

}  // namespace dltrain
