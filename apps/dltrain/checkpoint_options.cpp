#include "dltrain/checkpoint_options.h"

#include "config/paths.h"
#include "config/scalar.h"
#include "dltrain/new_data.h"
#include "nn/huggingface/folder.h"
#include "run/resume.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

// Returns the run folder of the configuration, or latest or best in it, which are links.
std::filesystem::path checkpoint_location(const std::string& given, const Experiment& experiment) {
  const auto run = std::filesystem::path("runs") / experiment.name;
  return given.empty() ? run : run / "checkpoints" / given;
}

// `model`: a run folder or a folder of a Hugging Face model; `trained`: the identity of its
// tokenizer, "" if it is unknown.
void warn_of_other_tokenizer(const Session& session, const std::filesystem::path& model,
                             const std::string& trained) {
  const auto used = session.data.train->tokenizer();
  if (!used || used->identity() == trained || !holds_tokenizer(model)) return;
  const std::string difference = tokenizer_difference(*load_tokenizer(model), *used);
  if (difference.empty()) return;
  print_message(
      fmt::format("warning: {} was trained with another tokenizer than that of the data: {}",
                  model.string(), difference));
}

}  // namespace

void CheckpointOptions::add_to(CLI::App& command) {
  config.add_to(
      command, ConfigOptions::Use::model, "MODEL",
      "Run folder, checkpoint or folder of a Hugging Face model, optionally followed by a file "
      "or folder of new data; or experiment files (YAML)");
  command
      .add_option("--checkpoint", checkpoints,
                  "Checkpoint or run folder, or latest or best of runs/<name> (default: "
                  "runs/<name>); without CONFIG its own configuration is used. Several form "
                  "an ensemble, whose predictions are averaged")
      ->allow_extra_args(false);
}

ModelArguments CheckpointOptions::arguments() const {
  ModelArguments out{.configs = {}, .models = checkpoints, .data = {}};
  for (const std::string& text : config.files) {
    const bool yaml = text.ends_with(".yaml") || text.ends_with(".yml");
    const bool model = out.models.empty() && !std::filesystem::is_regular_file(text);
    if (yaml) {
      out.configs.push_back(text);
    } else if (model) {
      if (!std::filesystem::exists(text) && text != "latest" && text != "best") {
        fail(ExitCode::usage,
             "there is no {}{}; give a run folder, a checkpoint or a folder of a Hugging Face "
             "model",
             text, suggest_path(text));
      }
      out.models.push_back(text);
    } else if (out.data.empty()) {
      out.data = text;
    } else {
      fail(ExitCode::usage,
           "{} and {}: give one file or folder of data; several files of text are a pattern in "
           "quotes, such as 'texts/*.txt'",
           out.data, text);
    }
  }
  if (out.models.empty() && out.configs.empty() && config.also_files.empty()) {
    fail(ExitCode::usage,
         "no model is given{}: name a run folder (runs/NAME), a checkpoint, a folder of a Hugging "
         "Face model or an experiment file (YAML)",
         out.data.empty() ? "" : " before " + out.data);
  }
  for (const std::string& model : out.models) {
    if ((model != "latest" && model != "best") || !out.configs.empty() ||
        !config.also_files.empty()) {
      continue;
    }
    fail(ExitCode::usage,
         "{0}: of which run? Give runs/NAME/checkpoints/{0}, or the configuration of the run too: "
         "exp.yaml --checkpoint {0}",
         model);
  }
  return out;
}

TrainedModel CheckpointOptions::open(size_t i, bool train, bool targets) const {
  const ModelArguments arguments = this->arguments();
  const std::string given = arguments.models.empty() ? std::string() : arguments.models[i];
  const bool foreign = !given.empty() && is_hugging_face_folder(given);
  ConfigOptions own = config;
  own.files = arguments.configs;
  TrainedModel out;
  if (foreign) {
    out.checkpoint.checkpoint = given;
    out.checkpoint.state.data.class_names = class_names_of(given);
    if (arguments.configs.empty() && own.also_files.empty() && arguments.data.empty()) {
      fail(ExitCode::usage,
           "{} contains no data: give a file of text or a folder of images after it", given);
    }
  } else if (given.empty() || given == "latest" || given == "best") {
    out.checkpoint = find_checkpoint(checkpoint_location(given, own.load()), Verify::when_loaded);
  } else {
    refuse_sweep(given);
    out.checkpoint = find_checkpoint(given, Verify::when_loaded);
    if (own.files.empty() && own.also_files.empty()) {
      own.files.push_back((out.checkpoint.checkpoint / "config.yaml").string());
    }
  }
  const DataSchema& schema = out.checkpoint.state.data;
  std::optional<int64_t> samples;
  std::vector<std::string> overrides = one_rank_overrides();
  if (!foreign) {
    // They may name metrics that evaluation.metrics leaves out here.
    overrides.insert(overrides.end(), {"checkpoint.metric=null", "training.early_stopping=null"});
  }
  out.experiment = std::make_unique<Experiment>(own.load(overrides, [&](ConfigNode& tree) {
    if (foreign) use_hugging_face_model(tree, given);
    if (arguments.data.empty()) {
      if (!foreign) use_kept_tokenizer(tree, out.checkpoint);
      return;
    }
    NewData data{
        .path = arguments.data, .tokenizer = {}, .classes = schema.class_names, .targets = targets};
    if (!foreign && run_tokenizer(out.checkpoint) != nullptr) {
      data.tokenizer =
          std::filesystem::canonical(out.checkpoint.checkpoint).parent_path().parent_path();
    }
    use_new_data(tree, data);
    // A configuration needs an eval split for this key; here the new data is what it limits.
    ConfigNode* evaluation = tree.find("evaluation");
    const ConfigNode* limit = evaluation != nullptr ? evaluation->find("samples") : nullptr;
    samples = limit != nullptr ? as_integer(*limit) : std::nullopt;
    if (samples.value_or(0) > 0) evaluation->erase("samples");
  }));
  accumulate_on_one_rank(out.experiment->training);
  if (samples) out.experiment->evaluation.samples = samples;
  out.session =
      open_session(*out.experiment, {.engines = engines(),
                                     .teacher = false,
                                     .evaluate_train_split = train || !arguments.data.empty(),
                                     .trained = std::make_shared<const DataSchema>(schema),
                                     .targets = targets});
  if (!out.session.has_evaluation()) {
    fail(ExitCode::usage,
         "the configuration has no eval split (data.eval or data.eval_fraction); give a file of "
         "data after the model");
  }
  if (!foreign) check_same_data(out.session, schema, out.checkpoint.checkpoint);
  warn_of_other_tokenizer(
      out.session, foreign ? std::filesystem::path(given) : run_of(out.checkpoint.checkpoint),
      out.checkpoint.state.tokenizer);
  const bool held_out = !foreign && !train && arguments.data.empty() &&
                        out.experiment->data.eval_fraction.has_value();
  if (held_out && !data_changes(out.checkpoint.state, *out.session.data.train).empty()) {
    print_message(
        fmt::format("warning: the data is not that with which {} was trained, and eval_fraction "
                    "holds out other samples of it: it may have been trained on these",
                    out.checkpoint.checkpoint.string()));
  }
  start_session(out.session, foreign ? nullptr : &out.checkpoint.state);
  if (!foreign) {
    const std::string damage = load_chosen(*out.session.executor, out.checkpoint, nullptr);
    if (!damage.empty()) instead_of_damaged(out.checkpoint, damage);  // throws
  }
  return out;
}

Predictions predict_all(const CheckpointOptions& options, const TrainedModel& first,
                        std::optional<int64_t> limit, bool train, bool targets) {
  const size_t count = options.arguments().models.size();
  if (count <= 1) return predict(first.session, limit);
  MeanPredictions mean;
  mean.add(predict(first.session, limit));
  for (size_t i = 1; i < count; ++i) {
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
