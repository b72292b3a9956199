// From a checked configuration to a runnable step: opens the data, infers shapes, builds and
// compiles the graphs. `train`, `plan`, `check` and `eval` all start here.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/checkpoint_state.h"
#include "checkpoint/weights.h"
#include "comm/agreement.h"
#include "compile/gpu.h"
#include "data/loader.h"
#include "experiment/layout.h"
#include "run/engines.h"
#include "runtime/executor.h"
#include "runtime/run_ranks.h"

namespace dltrain {

// A kind of recomputation, and of `automatic` its memory (RecomputeOptions::share).
struct RecomputeChoice {
  Recompute mode = Recompute::none;
  double share = 1;
};

struct SessionOptions {
  Engines engines;
  RunRanks ranks = RunRanks();
  RankAgreement* agreement = nullptr;  // outlives the session; null with one rank
  bool evaluation = true;              // compile the evaluation plan too
  bool teacher = true;                 // false: a distillation loss is its hard loss alone
  bool evaluate_train_split = false;   // evaluate on the training split, in file order
  bool lengths = true;         // steps of several lengths if the data has them; false: full samples
  DType compute = DType::f32;  // f64: on the reference engine, for gradient checks
  bool fp8_in_f64 = false;     // f64 has the roundings of precision.fp8 (tests)
  // The schema of a trained model, by which the data is read (data/schema.h); null: none.
  std::shared_ptr<const DataSchema> trained = nullptr;
  bool targets = true;  // the data must have them; false: for predictions
  bool noise = true;    // dropout and the mixing of samples; false: training without both
  bool fuse = true;
  bool recompute = true;  // as the configuration says; false: not at all
  std::optional<RecomputeChoice> recompute_choice = {};  // of memory.recompute: auto; absent: made
  PassLog log = {};
  GraphProbe probe = {};        // see StepRequest
  bool keep_gradients = false;  // see ExecutorOptions
  int64_t in_flight = 1;        // likewise
  // Plans are for this GPU, which need not be there, instead of the experiment's device.
  std::optional<Gpu> gpu = {};
  // The data, if another session with these keys has opened it.
  std::optional<DataSplit> data = {};
  bool log_notices = true;  // of the device; false: the caller does, once it has a log

  // Returns the result of `make` on rank 0, on all ranks (RankAgreement::choose).
  std::string agree(const std::string& key, const std::function<std::string()>& make) const {
    return agreement != nullptr ? agreement->choose(key, make) : make();
  }
};

// The trained model that a distillation loss uses.
struct TeacherModel {
  Experiment experiment;
  std::filesystem::path checkpoint;
  std::string fingerprint;     // of its weights
  std::shared_ptr<void> kept;  // see ResumeChoice
};

struct Session {
  Experiment* experiment = nullptr;
  std::vector<std::shared_ptr<const TeacherModel>> teachers;  // of the loss
  SessionOptions options;
  DataSplit data;
  std::shared_ptr<const LengthPlan> lengths;  // of training; null: samples are whole
  BatchLayout batch;
  Mesh mesh;                                    // of all ranks
  RankCoordinates coordinates;                  // of this rank
  std::vector<std::string> metrics;             // of evaluations, besides the loss
  TargetKind target_kind = TargetKind::labels;  // of evaluations
  TargetInfo target_info;                       // of training
  TargetWeights train_targets, eval_targets;    // of the targets of each split, by the loss
  int64_t classes = 0;                          // classes of the loss; 0: none
  int64_t max_steps = 0;
  TrainPosition position;                    // where training begins or continues
  std::string device_note;                   // see SelectedDevice and CollectiveBackendChoice
  std::unique_ptr<const MeshGroups> groups;  // null: every collective is over all ranks
  std::unique_ptr<Executor> executor;
  std::string base;  // CheckpointState::base; set by start_session()

  // The fingerprints and checkpoints of all teachers; empty: none.
  std::string teacher_fingerprint() const;
  std::string teacher_checkpoints() const;
  // Returns whether the loss is multiplied by a scale (fp16).
  bool scales_loss() const;
  // The initial loss scale, and the number of finite steps after which it doubles (0: fixed at 1).
  double first_loss_scale() const;
  int64_t scale_growth_interval() const;
  // Returns whether the ranks hold shards of the state (ZeRO, tensor parallelism).
  bool shares_state() const { return executor->layout().has_shards(); }
  // Arithmetic of a rank's step (compile/model_flops.h), of a pipeline the mean of its stages; 0
  // where steps have several amounts of it (lengths).
  double step_model_flops() const;
  // The group over host memory of the ranks that together have all samples and stages; nullptr
  // with one.
  Collectives* evaluation_ranks() const;
  // Returns whether this rank counts the targets of its batches: one of those that have the same
  // ones, in the last stage.
  bool counts_targets() const {
    const auto& [data, context, tensor, pipeline] = coordinates;
    return context.index == 0 && pipeline.index + 1 == pipeline.count;
  }
  // The columns and classes of the training data.
  DataSchema data_schema() const;
  bool has_evaluation() const { return data.eval != nullptr; }
  // The scheduled learning rate of a step.
  double learning_rate(int64_t step) const {
    return experiment->optimizer->peak_learning_rate(batch.global_batch) *
           experiment->lr_scheduler->factor(step, max_steps);
  }
  // The schedules of the ranks along the pipeline.
  std::vector<StepSchedule> schedules() const;
  // Tokens of a sample as steps of a variant see it; 0 where the data has none.
  int64_t tokens_of_sample(size_t variant) const;
  // The position after so many steps in all.
  TrainPosition position_at(int64_t step) const {
    const int64_t samples = (step - position.step) * batch.global_batch;
    return {step, position.samples + samples, position.cursor + samples};
  }
  double epoch(int64_t step) const {
    return static_cast<double>(position_at(step).samples) / static_cast<double>(data.train->size());
  }
  // The last step of a run that continues from a position with this configuration.
  int64_t last_step_from(const TrainPosition& from) const;
  void resume_at(const TrainPosition& from);
};

// The inputs of a step for one micro-batch.
StepInputs step_inputs(const Session& session, int64_t step, const Batch& batch);

// Options to load the training samples from step `first_step` on. `workers`: threads that fill
// batches ahead of time; 0: none.
LoaderOptions train_loader_options(const Session& session, int64_t first_step, int workers);

// The number of threads that load this dataset's samples, by the configuration.
int loader_workers(const Session& session, const Dataset& dataset);

// Checks everything that can be checked before step 1: throws ConfigError for shapes and sizes,
// Error(data), Error(device) or Error(memory). Allocates no device memory. Sets keys of the
// experiment that depend on the data (model.vocab_size), training.micro_batch_size: auto and the
// checkpoints of the teachers, so that the resolved configuration does not depend on later data or
// another machine.
// `chosen`: the device if it is already open; otherwise the session opens it.
Session open_session(Experiment& experiment, const SessionOptions& options,
                     SelectedDevice chosen = {});

// Describes how the columns, classes or statistics of the training data differ from `saved`; empty
// if they do not.
std::string data_difference(const Session& session, const DataSchema& saved);
// Throws Error(usage) if they differ from `saved`, the schema of `checkpoint`.
void check_same_data(const Session& session, const DataSchema& saved,
                     const std::filesystem::path& checkpoint);

// Warns if the weights of a checkpoint, from which training starts, know other columns or classes.
void warn_of_other_data(const Session& session, const std::filesystem::path& checkpoint);
// Opens the data again, with the statistics that a checkpoint's schema has for its inputs.
void read_by_schema(Session& session, const DataSchema& saved);

// Throws ConfigError if model.final_bias_from_data has no bias to set.
void check_final_bias(const Session& session);

// Allocates the arena (throws Error(memory) when it does not fit) and sets the initial state:
// initial values, then model.init_from where given. Where a checkpoint, of state `follows`, is
// loaded next, the final bias is skipped, and init_from too unless the checkpoint lacks the base,
// which must then be the same (check_base()). Returns the report of init_from if it was loaded.
std::optional<LoadedWeights> start_session(Session& session,
                                           const CheckpointState* follows = nullptr);

}  // namespace dltrain
