// The sections `training` and `checkpoint` of an experiment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/fields.h"
#include "experiment/metric_watch.h"
#include "optim/update_config.h"

namespace dltrain {

enum class OnNonFinite : uint8_t { stop, skip };
enum class Reduction : uint8_t { fast, fixed };

// Ends the run when a metric of the evaluations has stopped improving.
struct EarlyStoppingConfig : ConfigObject {
  static constexpr std::string_view kBareKey = "patience";
  std::string metric = "loss";
  std::optional<MetricMode> mode;
  int64_t patience = 0;  // evaluations
  double min_delta = 0;
  void describe(Fields& f);
  MetricWatch watch(const MetricRecord& record = {}) const;
};

struct TrainingConfig : UpdateConfig {
  std::optional<int64_t> global_batch_size, gradient_accumulation_steps;
  std::optional<IntegerOrAuto> micro_batch_size;
  std::optional<int64_t> max_steps;
  std::optional<double> num_epochs;
  std::optional<double> max_time;
  OnNonFinite on_non_finite = OnNonFinite::stop;
  Reduction reduction = Reduction::fast;
  std::optional<int64_t> verify_replicas;  // run/verify_replicas.h
  std::optional<EarlyStoppingConfig> early_stopping;

  bool chooses_micro_batch() const {
    return micro_batch_size && std::holds_alternative<Auto>(*micro_batch_size);
  }
  // The number that is given.
  std::optional<int64_t> given_micro_batch() const {
    if (!micro_batch_size || chooses_micro_batch()) return std::nullopt;
    return std::get<int64_t>(*micro_batch_size);
  }
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

struct CheckpointConfig : ConfigObject {
  std::optional<int64_t> save_steps;
  std::optional<double> save_epochs, save_minutes;
  int64_t save_total_limit = 3;
  std::optional<int64_t> keep_every;
  bool async = true;
  std::optional<std::string> metric;  // absent: loss
  std::optional<MetricMode> mode;
  void describe(Fields& f);
  MetricWatch watch(const MetricRecord& record = {}) const;
};

// The largest divisor of `number` that is at most `most`.
int64_t largest_divisor(int64_t number, int64_t most);

// Reports a micro-batch size or accumulation that does not divide the part of the global batch that
// each of `ranks` has; `what` names them.
void check_division(const TrainingConfig& training, int64_t global_batch, int64_t ranks,
                    const std::string& what, Diagnostics& diagnostics);

}  // namespace dltrain
