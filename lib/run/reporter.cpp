#include "run/reporter.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/host_name.h"
#include "base/json.h"
#include "base/log.h"
#include "base/owned_files.h"
#include "base/version.h"
#include "run/advice.h"
#include "run/class_report.h"
#include "run/prediction_file.h"
#include "run/process_age.h"
#include "telemetry/console.h"
#include "telemetry/log.h"
#include "telemetry/plot.h"

namespace dltrain {
namespace {

// Returns the model FLOP utilization: the model's arithmetic (compile/model_flops.h) per time as a
// share of `peak_flops` (FLOP/s of one rank's device). 0: unknown.
double model_flop_utilization(const Session& session, double step_ms, double peak_flops) {
  const double flops = session.step_model_flops();
  return step_ms > 0 && peak_flops > 0 ? flops / (1e-3 * step_ms * peak_flops) : 0;
}

// "400 steps in 0.4 s (0.91 ms a step, fastest 0.73)": the time of the loop, with evaluations and
// checkpoints, and of a step the median.
std::string timing_text(const TrainOutcome& outcome, int64_t first_step) {
  const int64_t steps = outcome.steps - first_step;
  std::string text =
      fmt::format("{} step{} in {}", steps, steps == 1 ? "" : "s", format_time(outcome.seconds));
  if (const double ms = outcome.step_ms_median; ms > 0) {
    text += fmt::format(" ({:.{}f} ms a step, fastest {:.{}f})", ms, ms < 10 ? 2 : 1,
                        outcome.step_ms_min, ms < 10 ? 2 : 1);
  }
  return text;
}

// Adds the load of the experts of each layer, as {layer: [share, …]}.
void add_load(JsonObject& line, std::string_view key,
              const std::vector<std::pair<std::string, std::vector<double>>>& load) {
  if (load.empty()) return;
  JsonObject layers;
  for (const auto& [layer, shares] : load) layers.add_loss(layer, shares);
  line.add(key, layers);
}

// Logs a warning unless the text is empty.
void warn_unless_empty(const std::string& why) {
  if (!why.empty()) log_warning("{}", why);
}

}  // namespace

Reporter::Reporter(const Session& session, const std::filesystem::path& folder,
                   std::optional<int64_t> resumed_step, bool evaluation_due, int64_t attempt,
                   const std::string& resolved_config, bool quiet)
    : session_(session),
      folder_(folder),
      quiet_(quiet),
      attempt_(attempt),
      first_step_(resumed_step.value_or(0)) {
  watch_device();
  if (!session.options.ranks.is_leader()) return;
  metrics_.emplace(folder / "metrics.jsonl", resumed_step, evaluation_due);
  if (session.experiment->generation) {
    samples_.emplace(folder / "samples.jsonl", resumed_step, evaluation_due);
  }
  progress_.emplace(console(), ProgressOptions{.first = resumed_step.value_or(0),
                                               .total = session.max_steps,
                                               .quiet = quiet});
  if (session.experiment->logging.tensorboard) {
    tensorboard_.emplace(session, folder, resumed_step, resolved_config);
  }
  hooks_.emplace(session.experiment->hooks, folder);
  open_wandb(resolved_config);
  if (const std::string& path = session.experiment->logging.prometheus; !path.empty()) {
    prometheus_.emplace(path, session.experiment->name);
  }
}

void Reporter::open_wandb(const std::string& resolved_config) {
  const Experiment& experiment = *session_.experiment;
  const auto& config = experiment.logging.wandb;
  if (!config) return;
  wandb_.emplace();
  const StudyConfig about = experiment.experiment.value_or(StudyConfig());
  warn_unless_empty(wandb_->open(folder_, {.project = config->project,
                                           .entity = config->entity,
                                           .name = experiment.name,
                                           .notes = about.notes,
                                           .tags = about.tags,
                                           .host = host_name(),
                                           .config = resolved_config}));
}

void Reporter::watch_device() {
  Device& device = session_.executor->device();
  const DeviceProperties& properties = device.properties();
  const PrecisionConfig& precision = session_.experiment->precision;
  peak_flops_ = precision.compute != DType::f32         ? properties.peak_flops_low
                : precision.matmul == ProductMath::tf32 ? properties.peak_flops_low / 2
                                                        : properties.peak_flops_f32;
  std::string why;
  if (auto sensor = device.make_sensor(why)) {
    const RunRanks& ranks = session_.options.ranks;
    monitor_ = std::make_unique<DeviceMonitor>(
        std::move(sensor),
        ranks.world > 1 ? fmt::format("GPU of rank {} on {}", ranks.rank, host_name()) : "GPU",
        [](const std::string& warning) { log_warning("{}", warning); });
  }
  if (!why.empty() && session_.options.ranks.is_leader()) log_info("{}", why);
}

// Adds the sensor readings of the device, at most a second old.
void Reporter::add_device(JsonObject& line) {
  if (!monitor_) return;
  const auto reading = monitor_->latest();
  if (!reading) return;
  const auto add = [&](const char* key, double value) {
    if (!std::isnan(value)) line.add_rounded(key, value);
  };
  add("gpu_utilization", reading->utilization);
  add("gpu_memory_mib", reading->memory_mib);
  add("gpu_pcie_to_device_mib_per_second", reading->pcie_to_device_mib);
  add("gpu_pcie_to_host_mib_per_second", reading->pcie_to_host_mib);
  add("gpu_power_watts", reading->power_watts);
  add("gpu_temperature_celsius", reading->temperature_celsius);
  add("gpu_clock_mhz", reading->clock_mhz);
  if (!reading->throttled.empty()) line.add("gpu_throttled", reading->throttled);
}

TrainEvents Reporter::events() {
  return {.on_progress =
              [this](int64_t step) {
                progress_->update(step, [this] { return fmt::format("loss {:.4f}", last_loss_); });
                if (tensorboard_) tensorboard_->after_step(step);
              },
          .on_step = [this](const StepRecord& record) { log_step(record); },
          .predict = [this](int64_t step,
                            const StopCheck& stop) { return write_predictions(step, stop); },
          .on_evaluation = [this](const EvaluationRecord& record) { log_evaluation(record); },
          .on_samples = [this](const SampleRecord& record) { log_samples(record); },
          .on_checkpoint =
              [this](const std::filesystem::path& path) {
                log_debug("saved {}", path.string());
                hooks_->checkpoint(path, checkpoint_step(path));
              },
          .on_warning = [](const std::string& text) { log_warning("{}", text); }};
}

// Returns the first fields of all lines of metrics.jsonl.
JsonObject Reporter::line_of(int64_t step, int64_t tokens_seen) const {
  JsonObject line;
  line.add("step", step).add_rounded("time", unix_time(), 13).add("attempt", attempt_);
  line.add("samples_seen", session_.position_at(step).samples);
  if (tokens_seen > 0) line.add("tokens_seen", tokens_seen);
  return line;
}

void Reporter::write_metrics(const JsonObject& line) {
  metrics_->write(line);
  if (wandb_) warn_unless_empty(wandb_->add(line.text()));
  if (prometheus_) warn_unless_empty(prometheus_->update(line));
}

void Reporter::log_step(const StepRecord& r) {
  last_loss_ = r.loss;
  if (losses_.empty() && first_step_ == 0) {
    warn_unless_empty(first_loss_advice(session_, r.loss));
  }
  losses_.push_back(r.loss);
  warn_unless_empty(loss_watch_.add(r.step, r.loss, r.grad_norm));
  JsonObject line = line_of(r.step, r.tokens_seen);
  line.add_rounded("epoch", r.epoch).add_loss("loss", r.loss);
  for (const auto& [label, value] : r.metrics) line.add_loss(label, value);
  add_load(line, "expert_load", r.expert_load);
  line.add_loss("learning_rate", r.learning_rate).add_loss("grad_norm", r.grad_norm);
  if (r.loss_scale > 0) line.add_rounded("loss_scale", r.loss_scale);
  if (r.skipped) line.add("skipped", true);
  line.add_rounded("samples_per_second", r.samples_per_second);
  if (r.tokens_seen > 0) line.add_rounded("tokens_per_second", r.tokens_per_second);
  line.add_rounded("step_ms", r.step_ms)
      .add_rounded("data_wait_ms", r.data_wait_ms)
      .add_rounded("memory_mib", peak_memory_mib());
  const double utilization = model_flop_utilization(session_, r.step_ms, peak_flops_);
  if (utilization > 0) line.add_rounded("mfu", utilization);
  add_device(line);
  write_metrics(line);
  log_progress(progress_->line(r.step, fmt::format("loss {:.4f}", r.loss)));
  if (tensorboard_) tensorboard_->add_step(r);
}

void Reporter::log_evaluation(const EvaluationRecord& r) {
  JsonObject line = line_of(r.step, r.tokens_seen);
  const SourceMix* mix = session_.data.eval->sources();
  std::vector<std::string> texts{""};  // of the whole, then of each source
  std::string prefix;
  for (const auto& [label, value] : r.metrics) {
    line.add_loss("eval_" + label, value);
    const size_t source = texts.size() - 1;
    if (mix != nullptr && source < mix->sources().size() &&
        label == mix->sources()[source].name + "_loss") {
      prefix = mix->sources()[source].name + "_";
      texts.push_back(prefix.substr(0, prefix.size() - 1) + ": ");
    }
    std::string& text = texts.back();
    if (!text.empty() && !text.ends_with(": ")) text += ", ";
    const std::string name = label.starts_with(prefix) ? label.substr(prefix.size()) : label;
    text += name == "accuracy" ? fmt::format("accuracy {:.2f} %", 100 * value)
                               : fmt::format("{} {:.4f}", name, value);
  }
  add_load(line, "eval_expert_load", r.expert_load);
  if (r.best) line.add("best", true);
  line.add("eval_samples", r.samples).add_rounded("eval_seconds", r.seconds);
  write_metrics(line);
  hooks_->evaluation(r.step, line.text());
  if (!r.classes.classes.empty()) {
    const auto json = class_report_json(r.classes, session_.data.eval->class_names());
    write_file_atomically(folder_ / "classes.json", json_text(json) + "\n");
  }
  if (tensorboard_) tensorboard_->add_evaluation(r);
  log_info("step {}: evaluation on {} samples: {}{}", r.step, r.samples, texts[0],
           r.best ? " (best so far)" : "");
  for (size_t i = 1; i < texts.size(); ++i) log_info("step {}: {}", r.step, texts[i]);
}

void Reporter::log_samples(const SampleRecord& r) {
  for (const SampleRecord::Text& text : r.texts) {
    JsonObject line;
    line.add("step", r.step).add("prompt", text.prompt).add("text", text.text);
    line.add("tokens", text.tokens).add("finish", text.finish);
    samples_->write(line);
    log_info("step {}: sample of {} tokens\n{}{}{}", r.step, text.tokens, text.prompt,
             session_.experiment->data.train->source_text() ? "\n→ " : "", text.text);
  }
  if (tensorboard_) tensorboard_->add_samples(r);
}

bool Reporter::write_predictions(int64_t step, const StopCheck& stop) const {
  const auto& limit = session_.experiment->evaluation.predictions;
  const Predictions predictions = predict(session_, limit, stop);
  if (predictions.samples == 0) return false;
  const std::string name = fmt::format("predictions/step-{:06}.jsonl", step);
  claim_files(folder_, {name});
  make_directories(folder_ / "predictions");
  write_file_atomically(folder_ / name, prediction_text(predictions, *session_.data.eval,
                                                        PredictionFormat::jsonl, 1));
  return true;
}

void Reporter::end(ExitCode code) {
  if (!hooks_) return;
  if (tensorboard_ && code == ExitCode::ok) warn_unless_empty(tensorboard_->end());
  if (wandb_) warn_unless_empty(wandb_->finish(static_cast<int>(code)));
  hooks_->end(static_cast<int>(code));
  hooks_.reset();
}

void Reporter::finish(const TrainOutcome& outcome, const std::filesystem::path& folder) {
  if (!session_.options.ranks.is_leader()) return;
  if (prometheus_) warn_unless_empty(prometheus_->write());
  progress_->finish(fmt::format("loss {:.4f}", last_loss_));
  if (!quiet_ && console().terminal()) {
    const std::string curve = plot(losses_, {.width = 60, .height = 8, .utf8 = console().utf8()});
    if (!curve.empty()) console().print("training loss\n" + curve);
  }
  log_info("{}, peak memory {:.0f} MiB", timing_text(outcome, first_step_), peak_memory_mib());
  log_info("run folder: {} (metrics.jsonl, summary.json, log.txt, checkpoints/latest)",
           folder.string());
  const MetricRecord& best = outcome.best;
  const auto kept = folder / "checkpoints" / "best";
  std::error_code ignored;
  if (best.step > 0 && best.step < outcome.last_evaluation.step &&
      std::filesystem::exists(kept, ignored)) {
    log_info(
        "best {} {:.4f} at step {}: {} (eval, predict and export use the newest checkpoint unless "
        "they get this path)",
        best.metric, best.value, best.step, kept.string());
  }
}

JsonObject make_summary(const Experiment& experiment, ExitCode code, const std::string& message,
                        const Session* session, const TrainOutcome* outcome,
                        const std::filesystem::path& folder) {
  JsonObject out;
  out.add("format", 1).add("name", experiment.name).add("exit_code", static_cast<int>(code));
  if (!message.empty()) out.add("message", message);
  out.add("run_folder", folder.string()).add("seed", experiment.seed);
  out.add("dltrain", version()).add("revision", git_revision());
  if (session != nullptr && session->executor != nullptr) {
    const PlanReport plan = session->executor->report();
    out.add("device", session->executor->device().properties().name)
        .add("world_size", session->options.ranks.world)
        .add("global_batch_size", session->batch.global_batch)
        .add("max_steps", session->max_steps)
        .add("arena_bytes", plan.arena_bytes)
        .add("flops_per_step", plan.flops_per_step);
  }
  out.add_rounded("peak_rss_mib", peak_memory_mib());
  if (outcome == nullptr) return out;
  out.add("steps", outcome->steps);
  out.add("reason", stop_reason_name(outcome->reason));
  if (outcome->last_step.step > 0) {
    out.add_loss("loss", outcome->last_step.loss);
    for (const auto& [label, value] : outcome->last_step.metrics) out.add_loss(label, value);
  }
  if (outcome->last_evaluation.samples > 0) {
    out.add("eval_step", outcome->last_evaluation.step);
    for (const auto& [label, value] : outcome->last_evaluation.metrics) {
      out.add_loss("eval_" + label, value);
    }
  }
  if (outcome->best.step > 0) {
    out.add("best_step", outcome->best.step)
        .add_loss("best_eval_" + outcome->best.metric, outcome->best.value);
  }
  out.add_rounded("first_step_ms", outcome->first_step_ms)
      .add_rounded("step_ms_min", outcome->step_ms_min)
      .add_rounded("step_ms_median", outcome->step_ms_median)
      .add_rounded("data_wait_ms", outcome->data_wait_ms)
      .add_rounded("seconds", outcome->seconds);
  for (const auto& [name, seconds] : kTimeSpent) {
    out.add_rounded(fmt::format("{}_seconds", name), outcome->time.*seconds);
  }
  return out;
}

}  // namespace dltrain
