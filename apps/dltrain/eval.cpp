// dltrain eval CONFIG --checkpoint PATH: measures saved weights on the eval split.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "dltrain/commands.h"
#include "train/class_report.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/trainer.h"

namespace dltrain {
namespace {

struct Options {
  ConfigOptions config;
  std::string checkpoint, result;
};

ExitCode run(const Options& options) {
  ConfigOptions config = options.config;
  // A run folder alone is enough: it has the configuration of the run.
  std::filesystem::path run = options.checkpoint;
  if (config.files.empty() && config.also_files.empty() && !options.checkpoint.empty()) {
    const auto found = find_checkpoint(options.checkpoint);
    config.files.push_back((found.checkpoint / "config.yaml").string());
  }
  const Experiment experiment = config.load({"parallelism.data=1"});
  if (run.empty()) run = std::filesystem::path("runs") / experiment.name;
  Session session = open_session(experiment, {.engines = engines()});
  if (!session.has_evaluation()) {
    fail(ExitCode::usage, "the configuration has no eval split (data.eval or data.eval_fraction)");
  }
  start_session(session);
  const ResumeChoice choice = find_checkpoint(run);
  load_checkpoint(*session.executor, choice.checkpoint, choice.state);
  const EvaluationRecord record = evaluate(session, choice.state.step);
  fmt::print("{}: {} samples", choice.checkpoint.string(), record.samples);
  nlohmann::ordered_json json{{"checkpoint", choice.checkpoint.string()},
                              {"step", record.step},
                              {"samples", record.samples}};
  for (const auto& [label, value] : record.metrics) {
    fmt::print(", {} {:.9g}", label, value);
    json["eval_" + label] = value;
  }
  fmt::print("\n");
  if (!record.classes.classes.empty()) {
    const auto names = session.data.eval->class_names();
    fmt::print("{}", print_class_report(record.classes, names));
    json.update(class_report_json(record.classes, names));
  }
  if (!options.result.empty()) write_file_atomically(options.result, json.dump() + "\n");
  return ExitCode::ok;
}

}  // namespace

CommandBody add_eval(CLI::App& command) {
  auto options = std::make_shared<Options>();
  options->config.add_to(command);
  command.add_option("--checkpoint", options->checkpoint,
                     "Checkpoint or run folder (default: runs/<name>)->take_last(); alone, its own "
                     "configuration is used");
  command.add_option("--result", options->result, "Write the metrics to this file as JSON")
      ->take_last();
  return [options] { return run(*options); };
}

}  // namespace dltrain
