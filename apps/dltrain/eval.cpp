// dltrain eval RUN DATA: evaluates a model, or the mean of the predictions of several models, on
// new data or on the eval split.
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "dltrain/checkpoint_options.h"
#include "run/class_report.h"

namespace dltrain {
namespace {

struct EvalOptions {
  CheckpointOptions models;
  std::string result;
};

ExitCode run_eval(const EvalOptions& options) {
  TrainedModel model = options.models.open(0);
  Session& session = model.session;
  const ResumeChoice& choice = model.checkpoint;
  const auto& limit = session.experiment->evaluation.samples;
  const ModelArguments arguments = options.models.arguments();
  const size_t others = std::max<size_t>(arguments.models.size(), 1) - 1;
  const EvaluationRecord record =
      others == 0 ? *evaluate(session, choice.state.step)
                  : evaluate_predictions(session, predict_all(options.models, model, limit),
                                         choice.state.step);
  fmt::print("{}{}: {} samples{}", choice.checkpoint.string(),
             others == 0 ? std::string() : fmt::format(" and {} more", others), record.samples,
             arguments.data.empty() ? std::string() : " of " + arguments.data);
  nlohmann::ordered_json json{{"checkpoint", choice.checkpoint.string()},
                              {"step", record.step},
                              {"samples", record.samples}};
  for (const auto& [label, value] : record.metrics) {
    fmt::print(", {} {:.9g}", label, value);
    json["eval_" + label] = value;
  }
  fmt::print("\n");
  const bool finite = record.metrics.empty() || std::isfinite(record.metrics.front().second);
  if (!finite) log_warning("the loss is not finite; the other metrics mean nothing");
  if (!record.classes.classes.empty()) {
    const auto names = session.data.eval->class_names();
    fmt::print("{}", print_class_report(record.classes, names));
    json.update(class_report_json(record.classes, names));
  }
  if (!options.result.empty()) write_file_atomically(options.result, json_text(json) + "\n");
  return finite ? ExitCode::ok : ExitCode::diverged;
}

}  // namespace

CommandBody add_eval(CLI::App& command) {
  auto options = std::make_shared<EvalOptions>();
  options->models.add_to(command);
  add_output(command, "--result", options->result, "Write the metrics to this file as JSON");
  return [options] { return run_eval(*options); };
}

}  // namespace dltrain
