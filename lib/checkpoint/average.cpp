#include "checkpoint/average.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/owned_files.h"
#include "base/version.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/weights.h"
#include "config/diff.h"
#include "nn/lora.h"
#include "tensor/float_tensors.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

// A checkpoint whose weights are averaged.
struct Averaged {
  ResumeChoice choice;
  std::deque<SafetensorsSet> files;  // the averages of training.ema, if it has them, come first
  std::map<std::string, SafetensorsSet::Tensor> tensors;
  std::string config;

  explicit Averaged(const fs::path& path) : choice(find_checkpoint(path)) {
    constexpr uint64_t kMaxConfig = 64 << 20;
    files = trained_weights(choice.checkpoint);
    for (const SafetensorsSet& set : files) {
      for (const SafetensorsSet::Tensor& tensor : set.tensors()) {
        tensors.emplace(tensor.entry->name, tensor);
      }
    }
    config = read_file(choice.checkpoint / "config.yaml", kMaxConfig, ExitCode::storage);
  }
  std::string name() const { return choice.checkpoint.string(); }
};

void check_same_model(const Averaged& first, const Averaged& other) {
  std::vector<ConfigDifference> changes = diff_dumps(first.config, other.config);
  std::erase_if(changes, [](const ConfigDifference& change) {
    const std::string& key = change.path;
    // Dropout is what runs of a soup may differ in.
    const bool may_differ = key.ends_with(".rate") || key.find("dropout") != std::string::npos ||
                            key.find(".init") != std::string::npos || key == "model.lora.save";
    return may_differ || !(key.starts_with("model.layers") || key.starts_with("model.lora"));
  });
  if (!changes.empty()) {
    fail(ExitCode::usage, "{} and {} are of different models:\n{}", first.name(), other.name(),
         describe_differences(changes));
  }
  if (first.choice.state.base != other.choice.state.base) {
    fail(ExitCode::usage, "{} and {} have adapters to different weights", first.name(),
         other.name());
  }
  if (first.choice.state.tokenizer != other.choice.state.tokenizer) {
    fail(ExitCode::usage, "{} and {} were trained with different tokenizers", first.name(),
         other.name());
  }
  const DataSchema &data = first.choice.state.data, &there = other.choice.state.data;
  if (only_statistics_differ(data, there)) {
    log_warning(
        "the inputs of {} and {} are normalized by different statistics; those of the first "
        "are kept",
        first.name(), other.name());
  } else if (!schema_difference(data, there).empty()) {
    fail(ExitCode::usage, "{} and {} were trained with different data: {}", first.name(),
         other.name(), schema_difference(data, there));
  }
}

// Returns the source of the initial weights: model.init_from, or else the seed.
std::string first_weights(const Averaged& of) {
  for (const ConfigDifference& key : keys_of_dump(of.config)) {
    if (key.path == "model.init_from" && key.after != "null") return key.after;
  }
  return fmt::format("seed {}", of.choice.state.seed);
}

void warn_if_unrelated(const Averaged& first, const Averaged& other) {
  const std::string a = first_weights(first), b = first_weights(other);
  if (a == b || is_inside(a, run_of(other.choice.checkpoint)) ||
      is_inside(b, run_of(first.choice.checkpoint))) {
    return;
  }
  log_warning(
      "{} and {} began with different weights ({} and {}): their average is likely worse than each "
      "of them",
      first.name(), other.name(), a, b);
}

void check_same_tensors(const Averaged& first, const Averaged& other) {
  for (const auto& [name, tensor] : first.tensors) {
    const auto found = other.tensors.find(name);
    if (found == other.tensors.end()) {
      fail(ExitCode::storage, "{} has no {}, which {} has", other.name(), name, first.name());
    }
    const TensorSpec &own = tensor.entry->spec, &there = found->second.entry->spec;
    if (!(own.shape == there.shape)) {
      fail(ExitCode::storage, "{}: {} is {}, and {} in {}", first.name(), name,
           to_string(own.shape), to_string(there.shape), other.name());
    }
  }
  for (const auto& [name, tensor] : other.tensors) {
    if (first.tensors.contains(name)) continue;
    fail(ExitCode::storage, "{} has no {}, which {} has", first.name(), name, other.name());
  }
}

// `count`: of different checkpoints, unless weights are given.
std::vector<double> shares(const AverageRequest& request, size_t count) {
  if (count < 2) fail(ExitCode::usage, "an average needs at least two checkpoints");
  std::vector<double> out = request.weights;
  if (out.empty()) out.assign(count, 1);
  if (out.size() != count) {
    fail(ExitCode::usage, "{} weights for {} checkpoints", out.size(), count);
  }
  if (!std::ranges::all_of(out, [](double w) { return w >= 0 && std::isfinite(w); })) {
    fail(ExitCode::usage, "weights of an average must not be negative");
  }
  const double all = std::accumulate(out.begin(), out.end(), 0.0);
  if (!(all > 0)) fail(ExitCode::usage, "the weights of the average are all 0");
  for (double& weight : out) weight /= all;
  return out;
}

std::vector<float> mean_of(const std::string& name, const std::deque<Averaged>& all,
                           const std::vector<double>& weights) {
  std::vector<double> sums;
  for (size_t i = 0; i < all.size(); ++i) {
    const SafetensorsSet::Tensor& tensor = all[i].tensors.at(name);
    const std::vector<float> values = as_f32(*tensor.file, *tensor.entry);
    if (values.empty() && tensor.entry->spec.shape.elements() > 0) {
      fail(ExitCode::storage, "{}: {} is {}, expected a floating dtype", all[i].name(), name,
           to_string(tensor.entry->spec));
    }
    if (sums.empty()) sums.resize(values.size());
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += weights[i] * double{values[k]};
  }
  return {sums.begin(), sums.end()};
}

}  // namespace

AverageReport average_checkpoints(const AverageRequest& request) {
  AverageReport report;
  std::deque<Averaged> all;
  for (const fs::path& path : request.checkpoints) {
    all.emplace_back(path);
    const auto same = [&](const fs::path& other) {
      return fs::equivalent(other, all.back().name());
    };
    if (request.weights.empty() && std::ranges::any_of(report.checkpoints, same)) {
      log_warning("{} is {}, which is named before and counts once", path.string(),
                  all.back().name());
      all.pop_back();
      continue;
    }
    report.checkpoints.push_back(all.back().choice.checkpoint);
    if (is_inside(report.checkpoints.back(), request.folder)) {
      fail(ExitCode::usage, "{} is an input that the output would replace; name another folder",
           report.checkpoints.back().string());
    }
    if (all.size() > 1) check_same_model(all.front(), all.back());
    if (all.size() > 1) check_same_tensors(all.front(), all.back());
    if (all.size() > 1) warn_if_unrelated(all.front(), all.back());
  }
  report.weights = shares(request, all.size());
  const Averaged& first = all.front();
  const auto tokenizer = run_tokenizer(first.choice);
  if (!request.overwrite && lists_file(request.folder, "checkpoints/latest")) {
    fail(ExitCode::usage,
         "{} already contains a run; use --overwrite to discard it, or name "
         "another folder with --output",
         request.folder.string());
  }
  RunFolder run(request.folder, "never", request.overwrite, /*owner=*/true);
  run.begin({});
  if (tokenizer) save_tokenizer(*tokenizer, request.folder);

  std::vector<NamedTensor> declared;
  for (const auto& [name, tensor] : first.tensors) {
    declared.push_back({name, {tensor.entry->spec.shape, DType::f32}});
    report.numbers += tensor.entry->spec.shape.elements();
    report.statistics = report.statistics || name.ends_with(".running_mean");
    report.adapters = report.adapters || name.ends_with(kLoraA);
  }
  report.tensors = declared.size();
  report.averages = first.files.size() > 1;
  CheckpointState state = first.choice.state;
  for (const Averaged& other : all) {
    if (other.choice.state.step > state.step) state = other.choice.state;
  }
  state.data = first.choice.state.data;
  state.best = state.early_stopping = {};
  state.evaluation_due = false;
  state.made_by = "average";
  using std::chrono::duration, std::chrono::system_clock;
  state.saved_at = duration<double>(system_clock::now().time_since_epoch()).count();
  CheckpointFolder folder(request.folder / "checkpoints");
  report.checkpoint = folder.write_weights(state, first.config, [&](FileWriter& file) {
    SafetensorsWriter writer(file, declared,
                             {{"format", "pt"}, {"dltrain", std::string(version())}});
    for (const NamedTensor& tensor : declared) {
      const std::vector<float> mean = mean_of(tensor.name, all, report.weights);
      writer.write(tensor.name, std::as_bytes(std::span(mean)));
    }
    writer.finish();
  });
  return report;
}

}  // namespace dltrain
