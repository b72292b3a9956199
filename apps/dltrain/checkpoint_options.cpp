#include "dltrain/checkpoint_options.h"

namespace dltrain {
namespace {

// latest and best: links in the run folder that the configuration names.
std::filesystem::path checkpoint_place(const std::string& given, const Experiment& experiment) {
  const auto run = std::filesystem::path("runs") / experiment.name;
  if (given.empty()) return run;
  if (given == "latest" || given == "best") return run / "checkpoints" / given;
  return given;
}

}  // namespace

void CheckpointOptions::add_to(CLI::App& command) {
  config.add_to(command);
  command
      .add_option("--checkpoint", checkpoints,
                  "Checkpoint or run folder, or latest or best of runs/<name> (default: "
                  "runs/<name>); without CONFIG its own configuration is used. Several: an "
                  "ensemble, whose predictions are averaged")
      ->allow_extra_args(false);
}

TrainedModel CheckpointOptions::open(size_t i, bool train, bool targets) const {
  const std::string given = checkpoints.empty() ? std::string() : checkpoints[i];
  ConfigOptions own = config;
  const bool named = given == "latest" || given == "best";
  TrainedModel out;
  if (own.empty() && !given.empty() && !named) {
    out.checkpoint = find_checkpoint(given);
    own.files.push_back((out.checkpoint.checkpoint / "config.yaml").string());
  }
  out.experiment = std::make_unique<Experiment>(own.load({"parallelism.data=1"}));
  if (out.checkpoint.checkpoint.empty()) {
    out.checkpoint = find_checkpoint(checkpoint_place(given, *out.experiment));
  }
  out.session = open_session(
      *out.experiment, {.engines = engines(),
                        .teacher = false,
                        .evaluate_train_split = train,
                        .trained = std::make_shared<const DataSchema>(out.checkpoint.state.data),
                        .targets = targets});
  if (!out.session.has_evaluation()) {
    fail(ExitCode::usage, "the configuration has no eval split (data.eval or data.eval_fraction)");
  }
  check_same_data(out.session, out.checkpoint.state.data, out.checkpoint.checkpoint);
  start_session(out.session, /*weights_follow=*/true);
  load_checkpoint(*out.session.executor, out.checkpoint.checkpoint, out.checkpoint.state);
  return out;
}

Predictions predict_all(const CheckpointOptions& options, const TrainedModel& first,
                        std::optional<int64_t> limit, bool train, bool targets) {
  if (options.count() == 1) return predict(first.session, limit);
  MeanPredictions mean;
  mean.add(predict(first.session, limit));
  for (size_t i = 1; i < options.count(); ++i) {
    const TrainedModel member = options.open(i, train, targets);
    if (member.session.data.eval->class_names() != first.session.data.eval->class_names()) {
      fail(ExitCode::usage,
           "{} and {} were trained with different classes, or another order of them",
           first.checkpoint.checkpoint.string(), member.checkpoint.checkpoint.string());
    }
    mean.add(predict(member.session, limit));
  }
  return mean.mean();
}

}  // namespace dltrain
