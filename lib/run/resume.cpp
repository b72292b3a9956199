#include "run/resume.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "config/dump.h"
#include "config/load.h"
#include "run/memory_fit.h"
#include "run/run_record.h"

namespace dltrain {
namespace {

// Returns whether a setting may change without --allow-changes: it does not affect what a step
// computes. `same_samples`: some samples have been compared.
bool may_change(const ConfigDifference& difference, bool same_samples) {
  const std::string& key = difference.path;
  const auto in = [&](std::string_view section) { return key.starts_with(section); };
  if (!in("model") && !in("loss") && !in("data")) return true;
  // The checkpoint has the weights.
  if (in("model.init_from") || in("model.rename") || in("model.strict")) return true;
  if (in("model.pad_vocab_to")) return true;  // changes no result
  if (in("data.workers")) return true;
  if (in("data") && key.ends_with(".on_error")) return true;  // the samples are compared
  if (in("loss.teacher") && !in("loss.teacher_weights"))
    return true;  // its fingerprint is compared
  // Files may have been moved, or their delimiter may now be detected; the samples are compared.
  const bool paths = plain_value(difference.before).starts_with('/') &&
                     plain_value(difference.after).starts_with('/');
  return in("data") && (paths || key.ends_with(".delimiter")) && same_samples;
}

std::vector<ConfigDifference> changes_of(const ResumeChoice& choice, const Session& session) {
  const auto before =
      load_config<Experiment>({.files = {choice.checkpoint / "config.yaml"}, .overrides = {}});
  return diff_dumps(dump_config(before), dump_config(*session.experiment));
}

// Throws Error(usage) if the tokenizer is not the one that the checkpoint was trained with.
void check_tokenizer(const ResumeChoice& choice, const Session& session) {
  const auto now = session.data.train->tokenizer();
  const bool same = now && now->identity() == choice.state.tokenizer;
  if (same && !holds_tokenizer(run_of(choice.checkpoint))) return;  // it is saved again
  const auto saved = run_tokenizer(choice);
  if (!now || !saved || saved->identity() == now->identity()) return;
  fail(ExitCode::usage,
       "{} was trained with the tokenizer in {}, which differs from that of this configuration",
       choice.checkpoint.string(), run_of(choice.checkpoint).string());
}

// Throws Error(usage) if the scales of FP8 that `recipe: delayed` keeps in checkpoints are others.
void check_fp8(const std::string& location, const PrecisionConfig& now,
               std::vector<ConfigDifference> changes) {
  std::erase_if(changes, [](const auto& c) { return !c.path.starts_with("precision.fp8"); });
  const auto was_delayed = [](const ConfigDifference& c) {
    return c.before.find("delayed") != std::string::npos;
  };
  const bool is_delayed = now.fp8 && now.fp8->recipe == Fp8Recipe::delayed;
  if (changes.empty() || (!is_delayed && std::ranges::none_of(changes, was_delayed))) return;
  fail(ExitCode::usage,
       "{} was saved with another precision.fp8, and recipe: delayed keeps the scales of earlier "
       "steps in checkpoints:\n{}\nResume with the same keys, or start a new run with "
       "model.init_from: {}",
       location, describe_differences(changes), location);
}

// Throws Error(usage) if changed keys give the state of the optimizer other names or shapes.
void check_optimizer_state(const ResumeChoice& choice, const Session& session,
                           std::vector<ConfigDifference> changes) {
  std::erase_if(changes, [](const ConfigDifference& change) {
    return !change.path.starts_with("optimizer") && !change.path.starts_with("training.freeze") &&
           !change.path.starts_with("precision");
  });
  if (changes.empty() || has_state_of(*session.executor, choice.checkpoint, Role::moment)) return;
  fail(ExitCode::usage,
       "{} has the state of an optimizer with other settings, which cannot go on with these, even "
       "with --allow-changes:\n{}\nmodel.init_from: {} starts a new run with its weights and new "
       "moments",
       choice.checkpoint.string(), describe_differences(changes), choice.checkpoint.string());
}

// The changes that need --allow-changes. `samples`: how the training data differs.
std::vector<ConfigDifference> other_run(const ResumeChoice& choice, const Session& session,
                                        const std::vector<ConfigDifference>& changes,
                                        const std::vector<ConfigDifference>& samples) {
  std::vector<ConfigDifference> out;
  for (const ConfigDifference& change : changes) {
    if (!may_change(change, samples.empty())) out.push_back(change);
  }
  out.insert(out.end(), samples.begin(), samples.end());
  const int64_t batch = choice.state.global_batch;
  if (batch != session.batch.global_batch) {
    out.push_back({"training.global_batch_size", std::to_string(batch),
                   std::to_string(session.batch.global_batch)});
  }
  const std::string& teacher = choice.state.teacher;
  if (!session.teachers.empty() && !teacher.empty() && teacher != session.teacher_fingerprint()) {
    out.push_back(
        {"weights of the teacher", choice.state.teacher_checkpoint, session.teacher_checkpoints()});
  }
  return out;
}

}  // namespace

DataFingerprint fingerprint(const Dataset& data) {
  constexpr int64_t kSamples = 16;
  Hasher inputs, targets;
  const int field = data.target_field();
  std::vector<std::byte> target(data.fields()[static_cast<size_t>(field)].sample.bytes());
  try {
    const int64_t count = std::min(kSamples, data.size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = i * data.size() / count;
      data.hash_inputs(sample, inputs);
      data.gather(field, {&sample, 1}, target.data());
      targets.update(target);
    }
  } catch (const Error&) {
    return {};  // the step that needs the sample reports the error
  }
  return {inputs.hex(), targets.hex()};
}

std::vector<ConfigDifference> data_changes(const CheckpointState& saved, const Dataset& now) {
  std::vector<ConfigDifference> out;
  // Earlier versions saved no hash, or none of the targets.
  const auto compare = [&](const char* what, const std::string& before, const std::string& after) {
    if (before.empty() || after.empty() || before == after) return;
    out.push_back({fmt::format("hash of some {} of data.train", what), before, after});
  };
  const DataFingerprint data = fingerprint(now);
  compare("inputs", saved.data_fingerprint, data.inputs);
  compare("targets", saved.targets_fingerprint, data.targets);
  if (saved.train_samples != now.size()) {
    out.push_back(
        {"samples of data.train", std::to_string(saved.train_samples), std::to_string(now.size())});
  }
  return out;
}

std::vector<ConfigDifference> check_resume(const ResumeChoice& choice, Session& session,
                                           bool allow_changes) {
  const CheckpointState& state = choice.state;
  const std::string location = choice.checkpoint.string();
  const auto differs = [&](const char* key, int64_t saved, int64_t now) {
    if (saved == now) return;
    fail(ExitCode::usage,
         "{} was saved with {} {}, this configuration has {}; it cannot change when a run is "
         "resumed",
         location, key, saved, now);
  };
  differs("seed", state.seed, session.experiment->seed);
  // The order of these samples depends on the size of the batches.
  const bool buckets = session.lengths && session.lengths->buckets() != nullptr;
  const bool streams = session.experiment->data.train->sampling == Sampling::streams;
  const int64_t samples = state.position().cursor, batch = session.batch.global_batch;
  if ((buckets || streams) && samples != state.step * batch) {
    fail(ExitCode::usage,
         "{} has seen {} samples in {} steps; {} needs batches of the same size in all steps, this "
         "configuration has global_batch_size {}",
         location, samples, state.step, buckets ? "data.length_buckets" : "data.sampling: streams",
         batch);
  }
  if (const int64_t last = session.last_step_from(state.position()); state.step > last) {
    fail(ExitCode::usage,
         "{} is at step {}, the run ends at step {}; training.max_steps must be at least "
         "the step of the checkpoint",
         location, state.step, last);
  }
  if (!state.made_by.empty()) {
    fail(ExitCode::usage,
         "{} was made by `dltrain {}` and has weights only; start a new run with model.init_from: "
         "{}",
         location, state.made_by, location);
  }
  const std::string& optimizer = session.experiment->optimizer->kind;
  if (!state.optimizer.empty() && state.optimizer != optimizer) {
    fail(ExitCode::usage,
         "{} was saved with the optimizer {}, this configuration has {}; to use another optimizer, "
         "start a new run with model.init_from: {}",
         location, state.optimizer, optimizer, location);
  }
  check_tokenizer(choice, session);
  std::string statistics;
  if (const DataSchema now = session.data_schema(); only_statistics_differ(state.data, now)) {
    statistics = schema_difference(state.data, now);
    read_by_schema(session, state.data);
  }
  try {
    check_same_data(session, state.data, choice.checkpoint);
  } catch (const Error& error) {
    fail(error.code(), "{}; a run cannot go on with it, even with --allow-changes", error.what());
  }
  auto changes = changes_of(choice, session);
  const auto samples_differ = data_changes(state, *session.data.train);
  const auto other = other_run(choice, session, changes, samples_differ);
  if (!other.empty() && !has_state_of(*session.executor, choice.checkpoint, Role::parameter)) {
    fail(ExitCode::usage,
         "{} was saved with another model, loss, data or batch:\n{}\nIts parameters have other "
         "names or shapes than those of this model, so the run cannot be resumed with it; start a "
         "new run, with --name NAME or --output-dir and without --resume",
         location, describe_differences(other));
  }
  if (!other.empty() && !allow_changes) {
    fail(ExitCode::usage,
         "{} was saved with another model, loss, data or batch:\n{}{}{}\nUse --allow-changes to "
         "resume anyway, or "
         "start a new run with its weights only (model.init_from: {}; in place of model.from take "
         "the model section of {})",
         location, describe_differences(other), statistics.empty() ? "" : "\n  ", statistics,
         location, (choice.checkpoint / "config.yaml").string());
  }
  const bool is_leader = session.options.ranks.is_leader();
  const bool has_other_data =
      !samples_differ.empty() || std::ranges::any_of(other, [](const ConfigDifference& difference) {
        const auto ends_with = [&](const char* key) { return difference.path.ends_with(key); };
        return difference.path.starts_with("data.") &&
               (ends_with("path") || ends_with("eval_fraction") || ends_with("split_seed") ||
                ends_with("eval_split") || ends_with("rows"));
      });
  if (has_other_data && is_leader) {
    log_warning(
        "the run continues with other data: samples that are held out now may have been trained "
        "on, and its evaluations are not comparable with those until here, the best included");
  }
  const auto is_of_sources = [](const ConfigDifference& difference) {
    return difference.path.starts_with("data.train.sources");
  };
  if (is_leader && std::ranges::any_of(other, is_of_sources)) {
    log_warning(
        "the mixture of data.train.sources has changed: each source continues at the position that "
        "the new mixture has after {} samples, so some of its samples are repeated or left out",
        samples);
  }
  if (!statistics.empty() && is_leader) {
    log_warning("{}; the inputs are normalized with the statistics of the checkpoint", statistics);
  }
  check_fp8(location, session.experiment->precision, changes);
  check_optimizer_state(choice, session, changes);
  return changes;
}

void keep_saved_defaults(Experiment& experiment, const std::filesystem::path& folder, int world) {
  DataConfig& data = experiment.data;
  const bool split = data.eval_fraction && !data.given("eval_split");
  const bool order = data.train->kind == "tensors" && !data.train->given("shuffle");
  TrainingConfig& training = experiment.training;
  const bool batch = training.chooses_micro_batch() && world > 0;
  if (!split && !order && !batch) return;
  for (const auto& location : {folder, folder / "latest", folder / "checkpoints" / "latest"}) {
    if (!std::filesystem::exists(location / "state.json")) continue;
    try {
      const auto saved =
          load_config<Experiment>({.files = {location / "config.yaml"}, .overrides = {}});
      if (split) data.eval_split = saved.data.eval_split;
      if (order) data.train->shuffle = saved.data.train->shuffle;
      const auto size = saved.training.given_micro_batch();
      if (!batch || !size || training.global_batch_size != saved.training.global_batch_size) return;
      const auto sizes = possible_micro_batches(experiment, world);
      if (std::ranges::find(sizes, *size) != sizes.end()) training.micro_batch_size = *size;
    } catch (const ConfigError&) {
      // The error is reported when the checkpoint is read.
    }
    return;
  }
}

void check_sources(const Session& session, const std::filesystem::path& run_folder, bool discards) {
  const ModelConfig& model = session.experiment->model;
  const LoraConfig* lora = model.adapters();
  for (const auto& from : {model.init_from, lora != nullptr ? lora->init_from : std::nullopt}) {
    if (!discards || !from || !is_inside(*from, run_folder)) continue;
    fail(ExitCode::usage,
         "the initial weights {} lie in the run folder {}, which --overwrite would discard; use "
         "--output-dir or --name to write the run to another folder",
         *from, run_folder.string());
  }
  for (const auto& teacher : session.teachers) {
    if (!is_inside(teacher->checkpoint, run_folder)) continue;
    fail(ExitCode::usage,
         "loss.teacher: {} lies in the run folder {} itself; use --output-dir or --name to write "
         "the run to another folder",
         teacher->checkpoint.string(), run_folder.string());
  }
}

}  // namespace dltrain
