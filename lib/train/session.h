// Everything between a checked configuration and a running step: data opened, shapes inferred,
// graphs built and compiled. `train`, `plan`, `check` and `eval` all start here.
#pragma once

#include <memory>
#include <optional>

#include "data/loader.h"
#include "train/engines.h"
#include "train/executor.h"
#include "train/experiment.h"
#include "train/run_ranks.h"

namespace dltrain {

struct SessionOptions {
  Engines engines;
  RunRanks ranks = RunRanks();
  Agreement agree = {};               // on algorithms that are timed; none with one rank
  bool evaluation = true;             // compile the evaluation plan too
  bool teacher = true;                // of a loss that has one; without: its hard loss alone
  bool evaluate_train_split = false;  // which then is over the training split, in file order
  bool lengths = true;  // steps of several lengths as the data says; false: samples are whole
  DType compute = DType::f32;  // f64: on the reference engine, for gradient checks
  // Of a trained model: data is read as it was in training (data/schema.h); null: as it is.
  std::shared_ptr<const DataSchema> trained = nullptr;
  bool targets = true;  // the data must have them; false: for predictions
  bool noise = true;    // dropout and the mixing of samples; false: training without both
  bool fuse = true;
  bool recompute = true;  // as the configuration says; false: not at all
  PassLog log = {};
  GraphProbe probe = {};        // see StepRequest
  bool keep_gradients = false;  // see ExecutorOptions
};

// A trained model that a loss learns from.
struct TeacherModel {
  Experiment experiment;
  std::filesystem::path checkpoint;
  std::string fingerprint;     // of its weights
  std::shared_ptr<void> kept;  // see ResumeChoice
};

struct Session {
  Experiment* experiment = nullptr;
  std::shared_ptr<const TeacherModel> teacher;  // of the loss; null: none
  SessionOptions options;
  DataSplit data;
  std::shared_ptr<const LengthPlan> lengths;  // of training; null: samples are whole
  BatchLayout batch;
  std::vector<std::string> metrics;             // of evaluations, besides the loss
  TargetKind target_kind = TargetKind::labels;  // of evaluations
  TargetInfo target_info;                       // of training
  TargetWeights train_targets, eval_targets;    // what the loss says of the targets of each split
  int64_t classes = 0;                          // that the loss tells apart; 0: none
  int64_t max_steps = 0;
  std::string device_note;                   // see ChosenDevice and CarrierChoice
  std::string device_warning;                // see CarrierChoice
  std::unique_ptr<const MeshGroups> groups;  // null: nothing goes over an axis of the ranks
  std::unique_ptr<Executor> executor;

  // Whether the loss is multiplied with a scale (fp16).
  bool scales_loss() const;
  // The first loss scale, and after how many finite steps it doubles (0: it is fixed at 1).
  double first_loss_scale() const;
  int64_t scale_growth_interval() const;
  // Ranks hold state in parts (ZeRO).
  bool shares_state() const { return executor->layout().has_parts(); }
  // Arithmetic of a rank's step (compile/model_flops.h); 0 where steps have several amounts of it
  // (lengths).
  double step_model_flops() const;
  // What the training data means to the model.
  DataSchema data_schema() const;
  bool has_evaluation() const { return data.eval != nullptr; }
  // Tokens of a sample as steps of a variant see it; 0 where the data has none.
  int64_t tokens_of_sample(size_t variant) const;
  double epoch(int64_t step) const {
    return static_cast<double>(step) * static_cast<double>(batch.global_batch) /
           static_cast<double>(data.train->size());
  }
};

// How this session's training samples are loaded, from step `first_step` on. `workers`: threads
// that fill batches ahead of time; 0: none.
LoaderOptions train_loader_options(const Session& session, int64_t first_step, int workers);

// Threads that load this dataset's samples, as the configuration says.
int loader_workers(const Session& session, const Dataset& dataset);

// Finds every mistake that can be found before step 1: ConfigError for shapes and sizes,
// Error(data) for data, Error(device), Error(memory). Allocates host data, but nothing on the
// device. What the configuration leaves to the data (model.vocab_size) is filled in, so that the
// experiment, written out, is the same whatever data it meets later; so is the checkpoint that the
// teacher of the loss is.
// `chosen`: the device, where it is open already; else the session opens it.
Session open_session(Experiment& experiment, const SessionOptions& options,
                     ChosenDevice chosen = {});

// Throws Error(usage) where the training data means something else than that of `checkpoint`, whose
// schema is `saved`.
void check_same_data(const Session& session, const DataSchema& saved,
                     const std::filesystem::path& checkpoint);

// Takes the arena (Error(memory) when it does not fit) and fills it: initial values, then
// model.init_from where given, unless `weights_follow`: they come from elsewhere (a checkpoint).
// Returns what init_from found.
struct StartReport {
  bool from_file = false;
  std::filesystem::path from;  // LoadedWeights
  int loaded = 0;
  std::vector<std::string> missing, unexpected, not_finite;
};
StartReport start_session(Session& session, bool weights_follow = false);

}  // namespace dltrain
