// The configuration of a run. Everything that does not depend on the data or on shapes is validated
// here, with places.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "comm/device_group.h"
#include "comm/mesh.h"
#include "config/fields.h"
#include "data/config.h"
#include "device/device.h"
#include "experiment/metric_watch.h"
#include "experiment/sweep_config.h"
#include "nn/loss.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "optim/update_config.h"
#include "passes/precision_config.h"
#include "passes/recompute.h"

namespace dltrain {

enum class OnNonFinite : uint8_t { stop, skip };
enum class Reduction : uint8_t { fast, fixed };
enum class WandbMode : uint8_t { offline };

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

enum class PipelineSchedule : uint8_t { one_forward_one_backward, gpipe, interleaved, zero_bubble };

enum class LayoutChoice : uint8_t { given, automatic };

enum class ContextMethod : uint8_t { all_gather, ring };

struct ParallelismConfig : ConfigObject {
  LayoutChoice layout = LayoutChoice::given;
  int64_t data = -1;
  int64_t tensor = 1;
  bool sequence_parallel = false;
  std::optional<int64_t> product_pieces;
  int64_t context = 1;
  ContextMethod context_method = ContextMethod::all_gather;
  int64_t pipeline = 1;
  int64_t expert = 1;
  std::string expert_buffer = "worst", expert_capacity = "dropless";  // or a factor
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  int64_t virtual_stages = 1;
  std::optional<std::vector<std::string>> pipeline_stages;  // absent or {"auto"}: chosen
  double timeout = 600, join_timeout = 60;                  // s
  double straggler_factor = 2;
  int64_t zero_stage = 0;
  std::string zero_shard_size = "all";  // or "node", or a number of ranks
  double bucket_mb = 25;
  DType reduce_dtype = DType::f32;
  CollectiveBackendKind collectives = CollectiveBackendKind::automatic;
  bool chooses_stages() const {
    return !pipeline_stages || *pipeline_stages == std::vector<std::string>{"auto"};
  }
  // The keys with which several ranks together have one copy of the model, and these ranks.
  std::vector<std::string> keys_of_model() const;
  int64_t ranks_of_model() const { return tensor * context * pipeline; }
  // The smallest number of ranks of this layout; `data` decides if it is given. Without it there
  // are as many data-parallel ranks as `expert` needs, which divides these times the context ranks.
  int64_t least_ranks() const {
    return (data > 0 ? data : expert / std::gcd(expert, context)) * ranks_of_model();
  }
  // passes/expert_cut.h; 0 for the words.
  double buffer_factor() const;
  double capacity_factor() const;
  size_t bucket_bytes() const { return static_cast<size_t>(bucket_mb * (1 << 20)); }
  // Sentences about keys whose axis has one rank, with which they have no effect.
  std::vector<std::string> idle_keys() const;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

struct MemoryConfig : ConfigObject {
  Recompute recompute = Recompute::none;
  std::vector<std::string> keep_layers, recompute_layers;  // patterns (config/name_patterns.h)
  std::string budget = "device";                           // or bytes (base/memory.h)
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

// Files of Weights & Biases' offline mode (telemetry/wandb.h).
struct WandbConfig : ConfigObject {
  static constexpr std::string_view kBareKey = "project";
  std::string project, entity;
  WandbMode mode = WandbMode::offline;
  void describe(Fields& f);
};

struct LoggingConfig : ConfigObject {
  int64_t logging_steps = 10;
  bool tensorboard = false;
  std::optional<int64_t> histogram_steps;
  bool gradient_noise = false;  // run/gradient_noise.h
  std::string prometheus;       // telemetry/prometheus.h; "": none
  std::optional<WandbConfig> wandb;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

struct EvaluationConfig : ConfigObject {
  std::optional<int64_t> eval_steps;
  std::optional<double> eval_epochs;
  std::optional<int64_t> predictions;
  std::optional<int64_t> samples;
  std::optional<std::vector<std::string>> metrics;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// Texts that the model continues while it is trained.
struct GenerationConfig : ConfigObject {
  std::optional<int64_t> sample_steps;
  std::optional<double> sample_epochs;
  std::vector<std::string> prompts, stop;
  int64_t max_tokens = 128, top_k = 0;
  double temperature = 1, top_p = 1, repetition_penalty = 1;
  std::optional<int64_t> seed;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// Why a run is made; `dltrain runs` shows it. Changes nothing in the run.
struct StudyConfig : ConfigObject {
  std::string study, goal, notes;
  std::vector<std::string> tags;
  void describe(Fields& f);
};

// Shell commands of the user (run/hooks.h); "": none.
struct HooksConfig : ConfigObject {
  std::string checkpoint, evaluation, end;
  double timeout = 600;  // s
  bool any() const { return !checkpoint.empty() || !evaluation.empty() || !end.empty(); }
  void describe(Fields& f);
};

struct Experiment : ConfigObject {
  std::string name = "run";
  std::optional<StudyConfig> experiment;
  int64_t seed = 0;
  std::string device = "auto";
  Autotune autotune = Autotune::off;
  ModelConfig model;
  std::unique_ptr<Loss> loss = make_kind(loss_table(), "cross_entropy");
  DataConfig data;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Schedule> lr_scheduler = make_kind(schedule_table(), "constant");
  TrainingConfig training;
  PrecisionConfig precision;
  MemoryConfig memory;
  ParallelismConfig parallelism;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  EvaluationConfig evaluation;
  std::optional<GenerationConfig> generation;
  std::optional<SweepConfig> sweep;
  HooksConfig hooks;
  std::vector<std::string> plugins;  // nn/plugin.h

  void describe(Fields& f);
  // Loads the plug-ins, whose layers and losses the keys may name.
  static bool rewrite(ConfigNode& map, Diagnostics& diagnostics);
  void validate(Diagnostics& diagnostics) const;

 private:
  void validate_shards(Diagnostics& diagnostics) const;
  void validate_narrow_parameters(Diagnostics& diagnostics) const;
  void validate_8bit_moments(Diagnostics& diagnostics) const;
  void validate_galore(Diagnostics& diagnostics) const;
  void validate_forward_gradient(Diagnostics& diagnostics) const;
  void validate_lora(Diagnostics& diagnostics) const;
};

// Reports a micro-batch size or accumulation that does not divide the part of the global batch that
// each of `ranks` has; `what` names them.
void check_division(const TrainingConfig& training, int64_t global_batch, int64_t ranks,
                    const std::string& what, Diagnostics& diagnostics);

// The division of the global batch over data-parallel ranks.
struct BatchLayout {
  int64_t global_batch = 0;
  int64_t micro_batch = 0;  // samples a rank computes at a time
  int64_t micro_steps = 0;  // accumulation: micro-batches of a rank in a step
  int64_t micro_batches() const { return global_batch / micro_batch; }
};

// Returns the layout of the batch on so many ranks in total. Throws ConfigError at a key that does
// not fit their number. A launcher calls it before it starts ranks.
BatchLayout check_ranks(const Experiment& experiment, int ranks);

// Overrides for a configuration that is used on one rank, such as that of a trained model.
const std::vector<std::string>& one_rank_overrides();
// For a configuration read with them: where all keys of the batch are given for more ranks, one
// rank makes the micro-steps of all of them.
void accumulate_on_one_rank(TrainingConfig& training);

// Returns the mesh of the ranks: pipeline × replica × shard × context × tensor. `ranks_per_node`
// (0: all ranks on one node) determines the groups of zero_shard_size: node; a size greater than
// the number of data-parallel ranks means all. Throws ConfigError if the ranks cannot be divided
// into such groups.
Mesh rank_mesh(const Experiment& experiment, int ranks, int ranks_per_node);

}  // namespace dltrain
