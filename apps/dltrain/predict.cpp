// dltrain predict RUN DATA --output FILE: the predictions of a trained model for each sample of new
// data, or of a split of its own data.
#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/log.h"
#include "dltrain/checkpoint_options.h"
#include "run/prediction_file.h"

namespace dltrain {
namespace {

struct PredictOptions {
  CheckpointOptions models;
  std::string output, split;
  int64_t top = 1;
  size_t suspicious = 0;
  std::optional<int64_t> samples;
};

ExitCode run_predict(const PredictOptions& options) {
  const PredictionFormat format = prediction_format(options.output);
  const bool train = options.split == "train";
  const ModelArguments arguments = options.models.arguments();
  if (!arguments.data.empty() && !options.split.empty()) {
    fail(ExitCode::usage, "--split selects a split of the configuration's data, but {} is given",
         arguments.data);
  }
  const bool suspicious = options.suspicious > 0;
  if (suspicious && options.top > 1) {
    fail(ExitCode::usage, "--suspicious writes one class for each sample; leave --top-k out");
  }
  const TrainedModel first = options.models.open(0, train, /*targets=*/suspicious);
  const Predictions predictions =
      predict_all(options.models, first, options.samples, train, /*targets=*/suspicious);
  const auto is_wrong = [](float value) { return !std::isfinite(value); };
  if (const auto wrong = std::ranges::count_if(predictions.values, is_wrong); wrong > 0) {
    log_warning("{} of {} outputs of the model are not finite; predictions from them mean nothing",
                wrong, predictions.values.size());
  }
  const Dataset& dataset = *first.session.data.eval;
  write_file_atomically(
      options.output, suspicious
                          ? suspect_text(predictions, dataset,
                                         suspects(predictions, dataset, options.suspicious), format)
                          : prediction_text(predictions, dataset, format, options.top));
  const std::string of = arguments.data.empty()
                             ? fmt::format("the {} split", train ? "train" : "eval")
                             : arguments.data;
  fmt::print("{}: {}{} samples of {}, by {}", options.output,
             suspicious ? fmt::format("the {} most suspicious of ",
                                      std::min<size_t>(options.suspicious,
                                                       static_cast<size_t>(predictions.samples)))
                        : "",
             predictions.samples, of, first.checkpoint.checkpoint.string());
  if (arguments.models.size() > 1) fmt::print(" and {} more", arguments.models.size() - 1);
  fmt::print("\n");
  return ExitCode::ok;
}

}  // namespace

CommandBody add_predict(CLI::App& command) {
  auto options = std::make_shared<PredictOptions>();
  options->models.add_to(command);
  add_output(command, "-o,--output", options->output, "File to write: .csv or .jsonl")->required();
  command
      .add_option("--split", options->split,
                  "Of the configuration's data: eval (the default), or train (in file order, "
                  "unchanged)")
      ->check(CLI::IsMember({"eval", "train"}))
      ->take_last();
  add_number(command, "--top-k", options->top, int64_t{1}, int64_t{1} << 31,
             "Number of classes, the most likely first");
  add_number(command, "--suspicious", options->suspicious, size_t{1}, size_t{1} << 40,
             "Only so many samples, those whose targets the model contradicts most, with the loss; "
             "look there for wrong labels");
  add_number(command, "--samples", options->samples, int64_t{1}, int64_t{1} << 40,
             "Number of samples, from the beginning (default: all)");
  return [options] { return run_predict(*options); };
}

}  // namespace dltrain
