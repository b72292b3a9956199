// Short trainings under layouts of ranks (rank_threads.h): fixed data, no files, a few steps.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "max_or_inf.h"
#include "reference/engine.h"
#include "run/rank_threads.h"
#include "run/session.h"
#include "run/trainer.h"

namespace dltrain {

struct Network {
  const char* name;
  std::vector<std::string> overrides;
};

// An MLP with dropout, a convnet with batch norm, a character GPT with dropout and tied weights.
inline const std::array<Network, 3>& networks() {
  static const std::array<Network, 3> all{
      {{"mlp",
        {"model.layers=[flatten, {linear: 24}, gelu, {dropout: 0.2}, {linear: 16}, gelu, {linear: "
         "5}]",
         "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}},
       {"convnet",
        {"model.layers=[{conv2d: {out_channels: 4, kernel_size: 3, padding: 1, bias: false}}, "
         "batch_norm, relu, {max_pool2d: 2}, flatten, {linear: 16}, tanh, {linear: 5}]",
         "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}},
       {"gpt",
        {"model={type: gpt2, num_layers: 2, hidden_size: 16, num_heads: 2, max_positions: 8, "
         "vocab_size: 29, dropout: 0.1}",
         "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}}}};
  return all;
}

struct LayoutRun {
  std::vector<double> losses, norms;
  std::vector<double> accuracies;            // of each step
  double evaluation = 0;                     // loss, where there is an eval split
  size_t sent_within = 0, sent_between = 0;  // bytes by rank 0 in all steps, of and between nodes
  PlanReport report;
  std::map<std::string, std::vector<std::byte>> state;  // checkpointed state by name
};

inline Experiment layout_experiment(const Network& network,
                                    const std::vector<std::string>& overrides) {
  std::vector<std::string> all{"lr_scheduler={type: cosine, warmup_steps: 2}",
                               "logging.logging_steps=1", "device=cpu"};
  // Sections that are given replace these; overrides would join them.
  for (const char* section :
       {"optimizer={type: adamw, learning_rate: 0.01}",
        "training={global_batch_size: 24, max_steps: 5, max_grad_norm: 0.5}"}) {
    const std::string start = std::string(section).substr(0, std::string(section).find('{') + 1);
    const auto given = [&](const std::string& override) { return override.starts_with(start); };
    if (std::none_of(overrides.begin(), overrides.end(), given) &&
        std::none_of(network.overrides.begin(), network.overrides.end(), given)) {
      all.emplace_back(section);
    }
  }
  all.insert(all.begin(), network.overrides.begin(), network.overrides.end());
  all.insert(all.end(), overrides.begin(), overrides.end());
  return load_config<Experiment>({.files = {}, .overrides = all});
}

inline SessionOptions layout_options(ThreadCollectives& ranks, DType compute = DType::f32) {
  return {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
          .ranks = {.collectives = ranks.size() > 1 ? &ranks : nullptr,
                    .rank = ranks.rank(),
                    .world = ranks.size()},
          .compute = compute,
          // Of memory.recompute=auto: below what fits in one level of recomputation.
          .recompute_choice = RecomputeChoice{Recompute::automatic, 0.1}};
}

inline double greatest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) most = max_or_inf(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return most;
}

// The same data with inputs in f64, for steps in f64.
class WideInputs final : public DatasetWrapper {
 public:
  explicit WideInputs(std::shared_ptr<const Dataset> data)
      : DatasetWrapper(std::move(data)), fields_(whole().fields()) {
    for (FieldSpec& field : fields_) {
      if (field.sample.dtype == DType::f32) field.sample.dtype = DType::f64;
    }
  }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* /*first*/,
            std::byte* out) const override {
    const TensorSpec& narrow = whole().fields()[static_cast<size_t>(field)].sample;
    if (narrow.dtype != DType::f32) return whole().gather(field, samples, out);
    std::vector<float> values(samples.size() * static_cast<size_t>(narrow.shape.elements()));
    whole().gather(field, samples, reinterpret_cast<std::byte*>(values.data()));
    std::ranges::copy(values, reinterpret_cast<double*>(out));
  }

 private:
  std::vector<FieldSpec> fields_;
};

// Returns the report of rank 0 and the state of all. `per_node`: ranks; 0: all. `compute` f64 is
// on the reference engine.
inline LayoutRun layout_run(const Network& network, int ranks,
                            const std::vector<std::string>& overrides, int per_node = 0,
                            DType compute = DType::f32) {
  LayoutRun out;
  std::mutex mutex;
  run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
    Experiment experiment = layout_experiment(network, overrides);
    SessionOptions options = layout_options(collectives, compute);
    options.ranks.ranks_per_node = per_node;
    if (compute == DType::f64) {
      const DataSplit data = open_session(experiment, layout_options(collectives)).data;
      options.data =
          DataSplit{.train = std::make_shared<WideInputs>(data.train),
                    .eval = data.eval ? std::make_shared<WideInputs>(data.eval) : nullptr};
    }
    Session session = open_session(experiment, options);
    start_session(session);
    TrainEvents events;
    events.on_step = [&](const StepRecord& record) {
      out.losses.push_back(record.loss);
      out.norms.push_back(record.grad_norm);
      for (const auto& metric : record.metrics) out.accuracies.push_back(metric.second);
    };
    events.on_evaluation = [&](const EvaluationRecord& record) {
      out.evaluation = record.metrics.front().second;
    };
    collectives.sent().clear();
    train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
    const std::map<int, size_t> sent = collectives.sent();
    StateSnapshot snapshot;
    take_snapshot(*session.executor, snapshot, false, collectives.rank(), collectives.size());
    const std::lock_guard lock(mutex);
    for (const TensorCopy& copy : snapshot) {
      if (copy.owner == collectives.rank()) out.state[copy.state] = copy.bytes;
    }
    if (collectives.rank() != 0) return;
    for (const auto& [rank, bytes] : sent) {
      (per_node == 0 || rank < per_node ? out.sent_within : out.sent_between) += bytes;
    }
    out.report = session.executor->report();
  });
  return out;
}

}  // namespace dltrain
