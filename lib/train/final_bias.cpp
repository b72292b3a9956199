#include "train/final_bias.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace dltrain {
namespace {

[[noreturn]] void refuse_final_bias(const ModelConfig& model, std::string message) {
  Problems problems;
  problems.add(model, "final_bias_from_data", std::move(message));
  throw ConfigError(std::move(problems));
}

// The parameter emitted last, if it is a bias of `outputs` values.
const ParameterInfo& last_bias(const ModelConfig& model, const StepGraph& graph, int64_t outputs) {
  const ParameterInfo* last = nullptr;
  for (const ParameterInfo& info : graph.parameters) {
    if (info.role == Role::parameter) last = &info;
  }
  if (last == nullptr || !last->name.ends_with("bias") || !(last->spec.shape == Shape{outputs})) {
    refuse_final_bias(model, fmt::format("the model does not end in a bias of {} values", outputs));
  }
  return *last;
}

// Calls use(target of one sample, as T) for every sample, some thousands read at a time.
template <typename T, typename Use>
void each_target(const Dataset& data, size_t elements, Use use) {
  const int64_t chunk = 4096;
  std::vector<T> targets;
  std::vector<int64_t> samples;
  for (int64_t first = 0; first < data.size(); first += chunk) {
    samples.resize(static_cast<size_t>(std::min(chunk, data.size() - first)));
    std::iota(samples.begin(), samples.end(), first);
    targets.resize(samples.size() * elements);
    data.gather(data.target_field(), samples, std::as_writable_bytes(std::span(targets)).data());
    for (size_t i = 0; i < samples.size(); ++i) {
      use(std::span<const T>(targets).subspan(i * elements, elements));
    }
  }
}

std::vector<double> log_frequencies(const Dataset& data, size_t elements, size_t classes) {
  std::vector<double> counts(classes);
  each_target<int32_t>(data, elements, [&](std::span<const int32_t> labels) {
    for (int32_t label : labels) {
      if (label >= 0 && static_cast<size_t>(label) < classes) ++counts[static_cast<size_t>(label)];
    }
  });
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  for (double& count : counts) count = std::log(std::max(count, 0.5) / std::max(total, 1.0));
  return counts;
}

// Without the NaN that marks a target that does not count.
std::vector<double> means(const Dataset& data, size_t outputs) {
  std::vector<double> sums(outputs), counts(outputs);
  each_target<float>(data, outputs, [&](std::span<const float> target) {
    for (size_t i = 0; i < outputs; ++i) {
      if (std::isnan(target[i])) continue;
      sums[i] += target[i];
      ++counts[i];
    }
  });
  for (size_t i = 0; i < outputs; ++i) sums[i] /= std::max(counts[i], 1.0);
  return sums;
}

}  // namespace

void set_final_bias(Session& session) {
  const Experiment& experiment = *session.experiment;
  const StepGraph& graph = session.executor->training();
  const int64_t outputs = graph.output_spec.shape[-1];
  const ParameterInfo& bias = last_bias(experiment.model, graph, outputs);
  const Dataset& data = *session.data.train;
  const TensorSpec& target = data.fields()[static_cast<size_t>(data.target_field())].sample;
  std::vector<double> values;
  if (target.dtype == DType::i32 && experiment.loss->classes(graph.output_spec) > 0) {
    values = log_frequencies(data, static_cast<size_t>(target.shape.elements()),
                             static_cast<size_t>(outputs));
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
    refuse_final_bias(experiment.model,
                      fmt::format("targets {} do not give one value for each of {} outputs",
                                  to_string(target), outputs));
  }
  if (bias.spec.dtype == DType::f64) {
    session.executor->write_state(bias.name, std::as_bytes(std::span(values)));
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    session.executor->write_state(bias.name, std::as_bytes(std::span(narrow)));
  }
}

}  // namespace dltrain
