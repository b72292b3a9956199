#include "run/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "checkpoint/checkpoint_writer.h"
#include "comm/watch.h"
#include "run/device_ranks.h"
#include "run/gradient_noise.h"
#include "run/memory_fit.h"
#include "run/process_age.h"
#include "run/samples.h"
#include "run/step_record.h"
#include "run/stop_requests.h"
#include "run/verify_replicas.h"
#include "runtime/remote_error.h"
#include "telemetry/metrics.h"

namespace dltrain {
namespace {

using TrainerClock = std::chrono::steady_clock;

double seconds_since(TrainerClock::time_point from) {
  return std::chrono::duration<double>(TrainerClock::now() - from).count();
}

LoaderOptions loader_options(const Session& session, const TrainOptions& options) {
  const int workers = loader_workers(session, *session.data.train);
  LoaderOptions out = train_loader_options(session, session.position.step, workers);
  out.observer = options.observer;
  return out;
}

// Adds its lifetime to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += seconds_since(from_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  TrainerClock::time_point from_ = TrainerClock::now();
};

class Loop {
 public:
  Loop(Session& session, const TrainEvents& events, const TrainOptions& options)
      : session_(session),
        events_(events),
        options_(options),
        experiment_(*session.experiment),
        loader_(session.data.train, loader_options(session, options), session.executor->device()),
        checkpoints_(options.run_folder / "checkpoints", retention_of(experiment_),
                     options.resolved_config, saves_in_background(session),
                     session.shares_state() ? session.options.ranks.collectives : nullptr),
        best_(experiment_.checkpoint.watch(options.origin.best)),
        tokens_seen_(options.origin.tokens_seen),
        requests_(session, options),
        watch_(session.options.ranks.watch),
        first_step_(session.position.step),
        saved_step_(options.saved ? first_step_ : -1) {
    if (experiment_.generation && is_leader() && events.on_samples) samples_.emplace(session);
    if (experiment_.training.early_stopping) {
      stopping_ = experiment_.training.early_stopping->watch(options.origin.early_stopping);
    }
    if (experiment_.logging.gradient_noise) {
      const BatchLayout& batch = session.batch;
      noise_.emplace(batch.micro_batches() / batch.micro_steps, batch.micro_steps,
                     batch.micro_batch);
    }
    Executor::Progress progress = session.executor->progress();
    if (session.scale_growth_interval() == 0) {  // may be resumed from a run with loss scaling
      progress.loss_scale = 1;
      progress.scale_streak = 0;
      session.executor->set_progress(progress);
    }
    loss_scale_ = progress.loss_scale;
    // The loop must not allocate: further durations are left out of minimum and median.
    durations_.reserve(static_cast<size_t>(
        std::clamp<int64_t>(session.max_steps - first_step_, 0, int64_t{1} << 20)));
  }

  ~Loop() { session_.executor->observe(nullptr); }

  TrainOutcome run();

 private:
  bool is_leader() const { return session_.options.ranks.is_leader(); }
  bool saves() const { return is_leader() || checkpoints_.sharded(); }
  bool is_last(int64_t step) const { return step + 1 == session_.max_steps; }
  // Returns whether `step` completes a multiple of so many steps or epochs, or is the last.
  bool due(const std::optional<int64_t>& steps, const std::optional<double>& epochs,
           int64_t step) const {
    return is_last(step) || (steps && (step + 1) % *steps == 0) ||
           (epochs && std::floor(session_.epoch(step + 1) / *epochs) >
                          std::floor(session_.epoch(step) / *epochs));
  }
  bool evaluation_due(int64_t step) const {
    const EvaluationConfig& config = experiment_.evaluation;
    return session_.has_evaluation() && due(config.eval_steps, config.eval_epochs, step);
  }
  bool samples_due(int64_t step) const {
    const auto& config = experiment_.generation;
    return config && due(config->sample_steps, config->sample_epochs, step);
  }
  bool save_due(int64_t step) const {
    return due(experiment_.checkpoint.save_steps, experiment_.checkpoint.save_epochs, step);
  }
  bool stopped_early() const {
    return stopping_ && has_stopped_early(experiment_, stopping_->record());
  }

  // The time of this attempt that is none of its steps: evaluations, samples and saving.
  double seconds_beside() const { return evaluation_seconds_ + saving_seconds_; }
  TimeSpent time_spent() const {
    TimeSpent out = options_.origin.time;
    const double wait = loader_.wait_seconds();
    out.evaluation += evaluation_seconds_;
    out.saving += saving_seconds_;
    out.waiting += wait;
    out.training += seconds_since(started_) - seconds_beside() - wait;
    return out;
  }
  CheckpointState checkpoint_state(int64_t step) const;
  // Attaches the observer before its first step; earlier steps run without it.
  void observe(int64_t step) {
    if (options_.observer == nullptr || observer_ != nullptr || step < options_.observed_from)
      return;
    collect_reports(0);  // a GPU may still be in the step before
    observer_ = options_.observer;
    session_.executor->observe(observer_);
  }
  bool one_step(int64_t step);
  bool fill(int64_t step, const ScheduledSegment& forward);
  void collect_reports(int allowed) {
    const ObservedPart part(observer_, StepPart::results);
    while (session_.executor->pending() > allowed) handle(session_.executor->collect());
  }
  void handle(const StepReport& report);
  std::string find_non_finite(int64_t step);
  [[noreturn]] void diverged(const StepReport& report, double loss);
  StopRequests::AfterStep take_requests();
  void note_stop() {
    outcome_.reason = requests_.reason();
    outcome_.signal = requests_.signal();
  }
  bool stop_wanted() {
    if (!requests_.stop_wanted()) return false;
    note_stop();
    return true;
  }
  bool look_at_model(int64_t step, bool evaluates, bool samples, bool counts = true);
  bool catch_up();
  void save(int64_t step, bool last);
  void announce(const std::optional<std::filesystem::path>& checkpoint) const {
    if (checkpoint && is_leader() && events_.on_checkpoint) events_.on_checkpoint(*checkpoint);
  }
  bool finish_step(int64_t step);
  void all_steps(int64_t end);
  [[noreturn]] void end_on_broken_data(const Error& error);

  Session& session_;
  const TrainEvents& events_;
  const TrainOptions& options_;
  const Experiment& experiment_;
  TrainLoader loader_;
  CheckpointWriter checkpoints_;
  MetricWatch best_;
  int64_t tokens_seen_;
  std::optional<MetricWatch> stopping_;
  std::optional<Samples> samples_;
  TrainOutcome outcome_;
  StopRequests requests_;
  RankWatch* watch_;                  // nullptr: none
  StepObserver* observer_ = nullptr;  // set from its first step on
  StepInputs inputs_{};
  // The counts of recent steps, by step mod 4.
  std::vector<TargetCount> counts_ = std::vector<TargetCount>(4);
  std::vector<int64_t> tokens_ = std::vector<int64_t>(4);  // seen after it
  std::vector<float> durations_;
  TrainerClock::time_point started_ = TrainerClock::now();
  StepMark last_record_;
  double evaluation_seconds_ = 0, saving_seconds_ = 0;
  const int64_t first_step_;  // of this attempt
  int64_t saved_step_;
  bool ends_alone_ = false;        // the other ranks do not take part in what follows
  bool state_is_complete_ = true;  // no micro-step has changed the state after outcome_.steps
  std::optional<GradientNoise> noise_;
  double loss_scale_ = 1;        // of the step that is reported next
  bool evaluation_due_ = false;  // see CheckpointState
};

// Returns false if the run was stopped before the update: no parameter has changed.
bool Loop::one_step(int64_t step) {
  requests_.ask_at_once();
  for (const ScheduledSegment& segment : session_.executor->schedule()) {
    const bool begins = segment.segment == Phase::forward && segment.chunk == 0;
    if (begins && !fill(step, segment)) return false;
    session_.executor->run(segment);
  }
  tokens_[static_cast<size_t>(step % 4)] = tokens_seen_;
  return true;
}

// Gives a frame its micro-batch. Returns false if the run is stopped before.
bool Loop::fill(int64_t step, const ScheduledSegment& forward) {
  const int64_t a = forward.micro_batch;
  // The stages of a pipeline begin a step together, and its micro-batches at different times.
  const bool asks = session_.coordinates.pipeline.count > 1 ? a == 0 : a > 0 || step == first_step_;
  if (asks && stop_wanted()) return false;
  const Batch& batch = [&]() -> const Batch& {
    const ObservedPart part(observer_, StepPart::data, a);
    return loader_.next();
  }();
  inputs_ = step_inputs(session_, step, batch);
  counts_[static_cast<size_t>(step % 4)] = {batch.valid_targets, batch.loss_divisor};
  session_.executor->fill(forward.frame, batch.fields, inputs_, batch.variant);
  if (a + 1 == session_.batch.micro_steps) {
    tokens_seen_ += session_.batch.global_batch * session_.tokens_of_sample(batch.variant);
  }
  // Micro-steps over streams change the carried state of recurrent layers.
  state_is_complete_ = experiment_.data.train->sampling != Sampling::streams;
  return true;
}

void Loop::handle(const StepReport& report) {
  const TargetCount& count = counts_[static_cast<size_t>(report.step % 4)];
  // Without valid targets valid, divisor and sum are all 0.
  const double valid = count.valid > 0 ? static_cast<double>(count.valid) : 1.0;
  const double loss = report.sums[0] / (count.divisor > 0 ? count.divisor : 1.0);
  const bool finite = report.results.finite != 0 && std::isfinite(loss);
  const auto& metrics = session_.executor->training().metrics;
  if (experiment_.parallelism.expert > 1) {
    const std::string full = check_buffers(router_sums(metrics, report.sums));
    if (!full.empty()) {
      announce(checkpoints_.finish());  // the one that is being written is whole
      if (!is_leader()) throw RemoteError(0, ExitCode::memory);
      fail(ExitCode::memory, "step {}, of which nothing was kept: {}", report.step + 1, full);
    }
  }
  // An overflow in fp16 is not a divergence while the loss scale can still be reduced.
  const double scale = std::exchange(loss_scale_, report.results.loss_scale);
  const bool rescaled = loss_scale_ < scale;
  if (!finite && !rescaled && experiment_.training.on_non_finite == OnNonFinite::stop) {
    diverged(report, loss);
  }
  if (!finite && is_leader() && events_.on_warning) {
    events_.on_warning(
        rescaled
            ? fmt::format("step {}: overflow in fp16; skipped, loss scale {} → {}", report.step + 1,
                          scale, loss_scale_)
            : fmt::format("step {}: loss or gradient is not finite; skipped", report.step + 1));
  }
  if (noise_ && finite) noise_->add(report.sums.back() / (scale * scale), report.results.grad_norm);
  const bool log = (report.step + 1) % experiment_.logging.logging_steps == 0 ||
                   is_last(report.step) || report.step == first_step_;
  if (!log) return;
  const StepMark now{.step = report.step + 1,
                     .wait = loader_.wait_seconds(),
                     .beside = seconds_beside(),
                     .tokens = tokens_[static_cast<size_t>(report.step % 4)]};
  StepRecord& record = outcome_.last_step;
  record = record_step(session_, report, loss, valid, std::exchange(last_record_, now), now);
  record.skipped = !finite;
  if (session_.scale_growth_interval() > 0) record.loss_scale = loss_scale_;
  if (noise_) record.metrics.emplace_back("gradient_noise_scale", noise_->scale());
  if (is_leader() && events_.on_step) events_.on_step(record);
}

// Repeats the micro-batches of a skipped step to find the first op with a non-finite result.
std::string Loop::find_non_finite(int64_t step) {
  TrainLoader loader(session_.data.train, train_loader_options(session_, step, 0),
                     session_.executor->device());
  std::string found;
  for (int64_t a = 0; a < session_.batch.micro_steps && found.empty(); ++a) {
    const Batch& batch = loader.next();
    found = session_.executor->find_non_finite(batch.fields, step_inputs(session_, step, batch),
                                               batch.variant);
  }
  return found;
}

// Ends the run at a non-finite step. All ranks call it in the same step, because they have the same
// sums. Rank 0 reports the error with the op found by the first rank that can reproduce it.
void Loop::diverged(const StepReport& report, double loss) {
  const RunRanks& ranks = session_.options.ranks;
  // With sharded gradients, parameters or layers a rank cannot repeat the step alone.
  const bool alone = ranks.world == 1 || (experiment_.parallelism.zero_stage < 2 &&
                                          experiment_.parallelism.ranks_of_model() == 1 &&
                                          experiment_.parallelism.expert == 1);
  std::string found = alone ? find_non_finite(report.step) : "";
  try {
    if (!ends_alone_) announce(checkpoints_.finish());  // the one that is being written is whole
    if (alone && !ends_alone_) found = first_finding(ranks.collectives, found);
  } catch (const Error&) {
    if (!is_leader()) throw;  // a rank was lost: rank 0 reports its own result
  }
  if (!is_leader()) throw RemoteError(0, ExitCode::diverged);
  fail(ExitCode::diverged,
       "step {}: the {} is not finite (loss {:.9g}, gradient norm {:.9g}); first seen in {}. "
       "Nothing was updated in this step; lower optimizer.learning_rate, set "
       "training.max_grad_norm, or use training.on_non_finite: skip",
       report.step + 1, std::isfinite(loss) ? "gradient" : "loss", loss, report.results.grad_norm,
       found.empty() ? "the gradient norm" : found);
}

CheckpointState Loop::checkpoint_state(int64_t step) const {
  const Executor::Progress progress = session_.executor->progress();
  CheckpointState state = options_.origin;
  state.set_position(session_.position_at(step));
  state.updates = progress.updates;
  state.seed = experiment_.seed;
  state.global_batch = session_.batch.global_batch;
  state.train_samples = session_.data.train->size();
  state.best = best_.record();
  state.early_stopping = stopping_ ? stopping_->record() : MetricRecord{};
  state.optimizer = experiment_.optimizer->kind;
  state.data = session_.data_schema();
  state.tokens_seen = tokens_seen_;
  state.evaluation_due = evaluation_due_;
  state.time = time_spent();
  state.saved_at = unix_time();
  const bool scaled = session_.scale_growth_interval() > 0;
  state.loss_scale = scaled ? std::optional(progress.loss_scale) : std::nullopt;
  state.scale_streak = scaled ? progress.scale_streak : 0;
  return state;
}

void Loop::save(int64_t step, bool last) {
  if (options_.run_folder.empty() || saved_step_ == step) return;
  if (experiment_.training.verify_replicas && !ends_alone_) verify_replicas(session_, step);
  saved_step_ = step;
  requests_.saved();
  if (!saves()) return;
  const Stopwatch watch(saving_seconds_);
  announce(checkpoints_.finish());
  checkpoints_.save(*session_.executor, checkpoint_state(step), last);
  if (last || !experiment_.checkpoint.async || !checkpoints_.sharded()) {
    announce(checkpoints_.poll());
  }
}

StopRequests::AfterStep Loop::take_requests() {
  const StopRequests::AfterStep asked = requests_.after_step(checkpoints_.writes(), observer_);
  if (checkpoints_.sharded() && asked.none_writes) announce(checkpoints_.poll());
  if (asked.stop) note_stop();
  return asked;
}

// Evaluates and draws samples after a step. Returns false if the run was stopped before the end; no
// result is then reported or stored.
bool Loop::look_at_model(int64_t step, bool evaluates, bool samples, bool counts) {
  const Stopwatch watch(evaluation_seconds_);
  std::optional<EvaluationRecord> record;
  requests_.ask_at_once();
  if (evaluates) {
    record = evaluate(session_, step, [this] { return stop_wanted(); });
    if (!record) return false;
    record->tokens_seen = tokens_seen_;
  }
  std::optional<SampleRecord> texts;
  const bool predicts = evaluates && experiment_.evaluation.predictions;
  if (predicts || samples) {
    // Only rank 0 does this; the others wait.
    const StopCheck own = [this] { return requests_.own_stop(); };
    const bool complete =
        !predicts || !is_leader() || !events_.predict || events_.predict(step, own);
    if (complete && samples && samples_) texts = samples_->draw(step, own);
    requests_.ask_at_once();
    if (stop_wanted()) return false;
  }
  if (record) {
    for (const auto& [label, value] : record->metrics) {
      if (!counts) break;
      if (label == best_.record().metric) record->best = best_.observe(step, value);
      if (stopping_ && label == stopping_->record().metric) stopping_->observe(step, value);
    }
    outcome_.last_evaluation = std::move(*record);
    if (is_leader() && events_.on_evaluation) events_.on_evaluation(outcome_.last_evaluation);
  }
  if (texts) events_.on_samples(*texts);
  evaluation_due_ = false;
  return true;
}

// Evaluates and saves after a step if due. Returns false if the run ends here. After a request to
// stop no evaluation is started: the resumed run begins with it.
bool Loop::finish_step(int64_t step) {
  const StopRequests::AfterStep asked = take_requests();
  const bool pause = step + 1 == options_.stop_at && !is_last(step);
  // An evaluation that only --stop-at asks for is none of those that the run counts.
  const bool counts = evaluation_due(step), samples = samples_due(step);
  const bool evaluates = counts || (pause && session_.has_evaluation());
  evaluation_due_ = evaluates || samples;
  bool stop = asked.stop && (evaluation_due_ || !is_last(step));
  // All ranks collect, so that they find a non-finite step at the same time.
  if (evaluation_due_ || stop || asked.save || save_due(step) || pause) collect_reports(0);
  if (!stop && evaluation_due_) stop = !look_at_model(step + 1, evaluates, samples, counts);
  const bool early = !evaluation_due_ && stopped_early() && !is_last(step);
  const bool best = counts && !evaluation_due_ && outcome_.last_evaluation.best;
  if (save_due(step) || stop || asked.save || early || best || pause) {
    save(step + 1, stop || early || pause || is_last(step));
  }
  if (const auto& every = experiment_.training.verify_replicas;
      every && (step + 1) % *every == 0 && saved_step_ != step + 1) {
    collect_reports(0);
    verify_replicas(session_, step + 1);
  }
  if (is_leader() && !checkpoints_.sharded()) announce(checkpoints_.poll());
  if (early || !stop) {
    outcome_.reason = early   ? StopReason::early_stopping
                      : pause ? StopReason::stop_at
                              : StopReason::finished;
    outcome_.signal = 0;
  }
  return !stop && !early && !pause;
}

// Runs the evaluation that was due when the resumed run was stopped. Returns false if this run is
// stopped before its end.
bool Loop::catch_up() {
  evaluation_due_ = options_.origin.evaluation_due;
  if (!evaluation_due_) return true;
  const int64_t last = first_step_ - 1;
  const bool complete = look_at_model(last + 1, evaluation_due(last), samples_due(last));
  if (complete) saved_step_ = -1;  // the saved state lacks these results
  save(last + 1, !complete || is_last(last) || stopped_early());
  return complete;
}

// Handles a sample that cannot be read: saves a checkpoint of the steps so far, if this rank can
// save alone, and throws the error.
void Loop::end_on_broken_data(const Error& error) {
  if (!is_leader() || checkpoints_.sharded() || options_.run_folder.empty() ||
      !state_is_complete_ || outcome_.steps == 0) {
    throw error;
  }
  ends_alone_ = true;
  collect_reports(0);  // throws if an earlier step is not finite
  save(outcome_.steps, /*last=*/true);
  announce(checkpoints_.finish());
  fail(error.code(),
       "{}\nA checkpoint of step {} is saved; repair the data and continue with the same command "
       "and --resume auto (without the broken samples: also --allow-changes)",
       error.what(), outcome_.steps);
}

void Loop::all_steps(int64_t end) {
  for (int64_t step = first_step_; step < end; ++step) {
    const TrainerClock::time_point begin = TrainerClock::now();
    observe(step);
    const ObservedPart part(observer_, StepPart::step, step);
    if (watch_) watch_->at_step_begin(step);
    if (!one_step(step)) {
      collect_reports(0);
      save(step, /*last=*/true);
      break;
    }
    const bool last_observed = observer_ != nullptr && step + 1 == end;
    collect_reports(last_observed ? 0 : session_.executor->lag());
    if (watch_) watch_->at_step_end(step);
    outcome_.steps = step + 1;
    state_is_complete_ = true;
    if (step == first_step_) {
      collect_reports(0);
      outcome_.first_step_ms = process_age_ms();
      requests_.begin_time_limit();
    } else if (durations_.size() < durations_.capacity()) {
      durations_.push_back(static_cast<float>(1e3 * seconds_since(begin)));
    }
    if (is_leader() && events_.on_progress) events_.on_progress(step + 1);
    if (!finish_step(step)) break;
  }
}

TrainOutcome Loop::run() {
  last_record_.step = first_step_;
  last_record_.tokens = tokens_seen_;
  outcome_.steps = first_step_;
  const int64_t end = std::min(session_.max_steps, options_.stop_at);
  const int64_t left = std::clamp<int64_t>(end - first_step_, 0, options_.steps);
  try {
    if (catch_up() && !stopped_early()) all_steps(first_step_ + left);
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    end_on_broken_data(error);
  }
  if (outcome_.steps == first_step_ && outcome_.reason == StopReason::finished) {
    // The run was complete already: the summary needs an evaluation.
    if (session_.has_evaluation() && outcome_.last_evaluation.samples == 0) {
      const Stopwatch watch(evaluation_seconds_);
      auto record = evaluate(session_, first_step_, [this] { return stop_wanted(); });
      if (record) outcome_.last_evaluation = std::move(*record);
    }
    if (first_step_ < session_.max_steps && first_step_ >= options_.stop_at) {
      outcome_.reason = StopReason::stop_at;
    }
    if (stopped_early()) outcome_.reason = StopReason::early_stopping;
  }
  if (saves()) {
    const Stopwatch watch(saving_seconds_);
    announce(checkpoints_.finish());
  }
  outcome_.best = best_.record();
  outcome_.seconds = seconds_since(started_);
  outcome_.time = time_spent();
  const int64_t steps = outcome_.steps - first_step_;
  if (steps > 0) outcome_.data_wait_ms = 1e3 * loader_.wait_seconds() / static_cast<double>(steps);
  if (!durations_.empty()) {
    std::sort(durations_.begin(), durations_.end());
    outcome_.step_ms_min = durations_.front();
    outcome_.step_ms_median = durations_[durations_.size() / 2];
  }
  return outcome_;
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  constexpr std::string_view kNames[] = {"finished", "signal", "time limit", "early stopping",
                                         "stop-at"};
  return kNames[static_cast<size_t>(reason)];
}

bool has_stopped_early(const Experiment& experiment, const MetricRecord& record) {
  const auto& stopping = experiment.training.early_stopping;
  return stopping && record.metric == stopping->metric && record.since >= stopping->patience;
}

Retention retention_of(const Experiment& experiment) {
  return {.newest = experiment.checkpoint.save_total_limit,
          .keep_every = experiment.checkpoint.keep_every.value_or(0)};
}

TrainOutcome train(Session& session, const TrainEvents& events, const TrainOptions& options) {
  Loop loop(session, events, options);
  try {
    return loop.run();
  } catch (const std::exception& error) {
    abort_ranks(session.options.ranks, session, error);
    throw;
  }
}

}  // namespace dltrain
