// The initial values of all state.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/base_weights.h"
#include "config/paths.h"
#include "data/classes.h"
#include "run/device_ranks.h"
#include "run/session.h"

namespace dltrain {
namespace {

// The parameter emitted last, if it is a bias of `outputs` values.
const ParameterInfo& last_bias(const ModelConfig& model, const StepGraph& graph, int64_t outputs) {
  const ParameterInfo* last = nullptr;
  for (const ParameterInfo& info : graph.parameters) {
    if (info.role == Role::parameter && info.adaptation != Adaptation::adapter) last = &info;
  }
  if (last == nullptr || !last->name.ends_with("bias") || !(last->spec.shape == Shape{outputs})) {
    fail_at(model, "final_bias_from_data",
            "the model does not end in a bias of {} values; give its last layer a bias, or take "
            "final_bias_from_data: false",
            outputs);
  }
  return *last;
}

std::vector<double> log_frequencies(const Dataset& data, size_t classes) {
  std::vector<int64_t> labels = count_labels(data);
  labels.resize(classes);
  const double total = std::max<double>(
      static_cast<double>(std::accumulate(labels.begin(), labels.end(), int64_t{0})), 1);
  std::vector<double> out;
  for (int64_t count : labels) {
    out.push_back(std::log(std::max(static_cast<double>(count), 0.5) / total));
  }
  return out;
}

// The mean targets without the NaN of targets that do not count. Reads some thousands at a time.
std::vector<double> means(const Dataset& data, size_t outputs) {
  constexpr int64_t kChunk = 4096;
  std::vector<double> sums(outputs), counts(outputs);
  std::vector<float> targets;
  std::vector<int64_t> samples;
  for (int64_t first = 0; first < data.size(); first += kChunk) {
    samples.resize(static_cast<size_t>(std::min(kChunk, data.size() - first)));
    std::iota(samples.begin(), samples.end(), first);
    targets.resize(samples.size() * outputs);
    data.gather(data.target_field(), samples, std::as_writable_bytes(std::span(targets)).data());
    for (size_t i = 0; i < targets.size(); ++i) {
      if (std::isnan(targets[i])) continue;
      sums[i % outputs] += targets[i];
      ++counts[i % outputs];
    }
  }
  for (size_t i = 0; i < outputs; ++i) sums[i] /= std::max(counts[i], 1.0);
  return sums;
}

// model.final_bias_from_data: sets the bias of the last layer to the best constant prediction:
// logarithms of the class frequencies of the training data (a class that does not occur counts as
// half a sample), the logits of the mean targets for binary_cross_entropy, else the mean targets.
// Throws ConfigError if the model does not end in a bias with one value per output, or a sample has
// several targets for one output.
void set_final_bias(Session& session) {
  const Experiment& experiment = *session.experiment;
  const StepGraph& graph = session.executor->training();
  const int64_t outputs = graph.output_spec.shape[-1];
  const ParameterInfo& bias = last_bias(experiment.model, graph, outputs);
  const Dataset& data = *session.data.train;
  const TensorSpec& target = data.fields()[static_cast<size_t>(data.target_field())].sample;
  std::vector<double> values;
  if (target.dtype == DType::i32 && experiment.loss->classes(graph.output_spec) > 0) {
    values = log_frequencies(data, static_cast<size_t>(outputs));
  } else if (target.dtype == DType::f32 && target.shape.elements() == outputs) {
    values = means(data, static_cast<size_t>(outputs));
    if (experiment.loss->kind == "cross_entropy") {
      for (double& p : values) p = std::log(std::max(p, 1e-6));
    } else if (experiment.loss->kind == "binary_cross_entropy") {
      for (double& p : values) {
        p = std::clamp(p, 1e-6, 1 - 1e-6);
        p = std::log(p / (1 - p));
      }
    }
  } else {
    fail_at(experiment.model, "final_bias_from_data",
            "targets {} do not give one value for each of {} outputs", to_string(target), outputs);
  }
  if (bias.spec.dtype == DType::f64) {
    session.executor->write_state(bias.name, std::as_bytes(std::span(values)));
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    session.executor->write_state(bias.name, std::as_bytes(std::span(narrow)));
  }
}

}  // namespace

void check_final_bias(const Session& session) {
  const StepGraph& graph = session.executor->training();
  if (session.experiment->model.final_bias_from_data) {
    last_bias(session.experiment->model, graph, graph.output_spec.shape[-1]);
  }
}

std::optional<LoadedWeights> start_session(Session& session, const CheckpointState* follows) {
  const Experiment& experiment = *session.experiment;
  session.executor->allocate();
  // Weights that the checkpoint lacks are those of its run, whatever the seed is now.
  const int64_t seed = follows != nullptr ? follows->seed : experiment.seed;
  initialize_weights(*session.executor, static_cast<uint64_t>(seed));
  for (size_t i = 0; i < session.teachers.size(); ++i) {
    const std::string prefix = teacher_name(i, session.teachers.size()) + ".";
    std::vector<ParameterInfo> own;
    for (const ParameterInfo& info : session.executor->training().constants) {
      if (info.name.starts_with(prefix)) own.push_back(info);
    }
    load_trained(*session.executor, own, session.teachers[i]->checkpoint, prefix);
  }
  if (experiment.model.final_bias_from_data && follows == nullptr) set_final_bias(session);
  std::optional<LoadedWeights> report;
  const bool base_elsewhere = has_base_elsewhere(experiment.model);
  if (experiment.model.init_from && (follows == nullptr || base_elsewhere)) {
    const std::string& path = *experiment.model.init_from;
    refuse_missing_paths(ObjectRef::of(session.experiment->model), ExitCode::storage);
    // A run may write a newer checkpoint before another rank looks for it.
    const auto find = [&] { return location_of_weights(path).string(); };
    const SessionOptions& options = session.options;
    const std::string from = options.agree("weights of " + path, find);
    if (options.agreement != nullptr) {
      check_same_on_ranks(options, "the file " + path, sample_of_weights(from));
    }
    const auto hash = [&] { return fingerprint_of_weights(from); };
    if (base_elsewhere) session.base = options.agree("hash of " + path, hash);
    if (follows != nullptr) check_base(experiment.model, *follows, session.base);
    if (follows == nullptr) warn_of_other_data(session, from);
    report =
        load_weights(*session.executor, from, experiment.model.rename, experiment.model.strict);
  } else if (follows != nullptr && base_elsewhere) {
    check_base(experiment.model, *follows, "");
  }
  const LoraConfig* lora = follows != nullptr ? nullptr : experiment.model.adapters();
  if (lora != nullptr && lora->variant == LoraVariant::dora) start_magnitudes(*session.executor);
  if (lora != nullptr && lora->init_from) {
    refuse_missing_paths(ObjectRef::of(*session.experiment->model.lora), ExitCode::storage);
    load_adapters(*session.executor, *lora->init_from);
  }
  start_averages(*session.executor);
  session.executor->set_progress({.loss_scale = session.first_loss_scale()});
  return report;
}

}  // namespace dltrain
