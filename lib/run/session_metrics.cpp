#include "run/session_metrics.h"

#include "config/suggest.h"
#include "nn/metrics.h"
#include "ops/kernel.h"

namespace dltrain {
namespace {

// Returns whether the outputs are logits of a vocabulary: the data is text, or a head uses its
// size.
bool labels_are_tokens(const Experiment& experiment, const StepGraph& graph) {
  const Shape& output = graph.output_spec.shape;
  return output.rank() == 3 &&
         (experiment.data.train->has_tokens() ||
          (graph.asked_vocabulary && output[-1] == experiment.model.vocab_size));
}

}  // namespace

std::vector<std::string> choose_metrics(const Experiment& experiment, TargetKind kind,
                                        const StepGraph& graph, const Engine& engine,
                                        const Dataset& data) {
  const EvaluationConfig& evaluation = experiment.evaluation;
  const TensorSpec& output = graph.output_spec;
  const bool tokens = labels_are_tokens(experiment, graph);
  // WordPiece leaves out blanks: its tokens do not tell the bytes of their text.
  const bool has_bytes = kind == TargetKind::labels && tokens && data.tokenizer() &&
                         data.tokenizer()->kind() != "wordpiece" &&
                         !experiment.data.train->next_token_input().empty();
  if (!evaluation.metrics) {
    // Defaults that the engine has no kernel for are left out.
    std::vector<std::string> names = default_metrics(kind, output, tokens);
    if (has_bytes) names.emplace_back(kBitsPerByte);
    std::erase_if(names, [&](const std::string& name) {
      const std::string_view op = metric_op(name, kind);
      return !op.empty() && kernel_rows(engine, op).empty();
    });
    return names;
  }
  Diagnostics diagnostics;
  for (const std::string& name : *evaluation.metrics) {
    std::string problem = metric_problem(name, kind, output);
    if (problem.empty() && name == kBitsPerByte && !has_bytes) {
      problem =
          "bits_per_byte needs text whose next tokens are the targets, and its tokenizer, which "
          "must keep blanks (not WordPiece)";
    }
    if (!problem.empty()) diagnostics.add(evaluation, "metrics", problem);
  }
  diagnostics.throw_if_any();
  return *evaluation.metrics;
}

void check_metrics(const Experiment& experiment, const std::vector<std::string>& metrics,
                   const SourceMix* sources) {
  Diagnostics diagnostics;
  std::vector<std::string> labels = metric_labels(metrics);
  labels.insert(labels.begin(), "loss");
  const size_t of_all = labels.size();
  for (size_t k = 0; sources != nullptr && k < sources->sources().size(); ++k) {
    for (size_t i = 0; i < of_all; ++i) {
      labels.push_back(sources->sources()[k].name + "_" + labels[i]);
    }
  }
  const auto check = [&](const ConfigObject& owner, const std::string& metric) {
    if (contains(labels, metric)) return;
    diagnostics.add(owner, "metric",
                    "there is no metric '{}'; evaluations give {} (evaluation.metrics)", metric,
                    join_names(labels));
  };
  if (const auto& metric = experiment.checkpoint.metric) check(experiment.checkpoint, *metric);
  if (const auto& stopping = experiment.training.early_stopping) check(*stopping, stopping->metric);
  diagnostics.throw_if_any();
}

}  // namespace dltrain
