#include "checks/checks_support.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.h"
#include "data/loader.h"

namespace dltrain {
namespace {

std::vector<std::string> one_batch_overrides(int64_t samples) {
  std::vector<std::string> out = one_rank_overrides();
  out.insert(out.end(), {fmt::format("training.global_batch_size={}", samples),
                         fmt::format("training.micro_batch_size={}", samples),
                         "training.gradient_accumulation_steps=1",
                         "training.optimizer_in_backward=false", "training.clip_norm=current"});
  return out;
}

double mean_loss(Session& session, const OneBatch& batch) {
  return read_numbers(*session.executor, "metric.loss")[0] * batch.inputs.inverse_valid;
}

// Prepares a check in f64; nullptr if that exceeds CheckOptions::most_exact_flops.
std::unique_ptr<Prepared> prepare_f64(const CheckOptions& options, int64_t samples,
                                      const CheckSetup& how) {
  CheckSetup compiled = how;
  compiled.start = false;
  auto prepared = prepare(options, samples, DType::f64, compiled);
  if (prepared->session.executor->report().flops_per_step > options.most_exact_flops) return {};
  if (how.start) start_session(prepared->session);
  return prepared;
}

}  // namespace

std::vector<const std::byte*> OneBatch::addresses() const {
  std::vector<const std::byte*> out;
  for (const auto& field : fields) out.push_back(field.data());
  return out;
}

OneBatch first_batch(Session& session) {
  TrainLoader loader(session.data.train, train_loader_options(session, 0, 0),
                     session.executor->device());
  const Batch& batch = loader.next();
  const StepGraph& graph = session.executor->training();
  OneBatch out;
  for (size_t i = 0; i < batch.fields.size(); ++i) {
    const TensorSpec& slot = graph.graph.value(graph.slots[i]).spec;
    const std::byte* bytes = batch.fields[i];
    if (slot.dtype == DType::f64) {
      const auto* values = reinterpret_cast<const float*>(bytes);
      const std::vector<double> wide(values, values + slot.shape.elements());
      const auto as_bytes = std::as_bytes(std::span(wide));
      out.fields.emplace_back(as_bytes.begin(), as_bytes.end());
    } else {
      out.fields.emplace_back(bytes, bytes + slot.bytes());
    }
  }
  out.inputs = step_inputs(session, 0, batch);
  out.inputs.learning_rate = session.experiment->optimizer->learning_rate;
  out.valid = static_cast<double>(batch.valid_targets);
  return out;
}

double run_batch(Session& session, const OneBatch& batch) {
  session.executor->micro_step(batch.addresses(), batch.inputs, 0);
  return mean_loss(session, batch);
}

double run_forward(Session& session, const OneBatch& batch) {
  session.executor->forward(batch.addresses(), batch.inputs);
  return mean_loss(session, batch);
}

std::vector<RouterSums> read_routers(Session& session) {
  std::vector<RouterSums> out;
  for (const StepMetric& metric : session.executor->training().metrics) {
    if (metric.router) {
      out.push_back({*metric.router, read_numbers(*session.executor, metric.name)});
    }
  }
  return out;
}

std::unique_ptr<Prepared> prepare(const CheckOptions& options, int64_t samples, DType compute,
                                  const CheckSetup& how) {
  auto prepared = std::make_unique<Prepared>();
  prepared->experiment = options.load(one_batch_overrides(samples));
  if (!how.fp8) prepared->experiment.precision.fp8.reset();
  if (!how.augment) prepared->experiment.data.train->augment = false;
  // Estimates of the gradient would be compared with nothing, and learn slowly.
  prepared->experiment.training.gradient = GradientMode::reverse;
  prepared->session =
      open_session(prepared->experiment, {.engines = options.engines,
                                          .evaluation = how.evaluate_train_split,
                                          .teacher = how.teacher,
                                          .evaluate_train_split = how.evaluate_train_split,
                                          .lengths = false,
                                          .compute = compute,
                                          .noise = how.noise,
                                          .fuse = compute != DType::f64,
                                          .probe = how.probe,
                                          .keep_gradients = true});
  if (how.start) start_session(prepared->session);
  return prepared;
}

std::unique_ptr<Prepared> prepare_exact(const CheckOptions& options, int64_t& samples,
                                        const CheckSetup& how) {
  auto prepared = prepare_f64(options, samples, how);
  if (prepared || samples <= options.fewest_samples) return prepared;
  samples = options.fewest_samples;
  return prepare_f64(options, samples, how);
}

std::unique_ptr<Prepared> prepare_forward(const CheckOptions& options, int64_t samples,
                                          int64_t fewest, const CheckSetup& how) {
  for (const int64_t count : {samples, std::min(samples, fewest)}) {
    if (auto prepared = prepare_f64(options, count, how)) return prepared;
  }
  return prepare(options, std::min(samples, fewest), DType::f32, how);
}

int64_t samples_in_time(const CheckOptions& options, int64_t most, int64_t fewest, int steps,
                        const CheckSetup& how) {
  const auto run = prepare(options, most, DType::f32, how);
  const OneBatch batch = first_batch(run->session);
  // The first step takes pages from the system. Of the others the shortest counts, as a busy
  // machine may hold one up.
  constexpr int kTries = 5;
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries && seconds * steps > options.most_seconds; ++i) {
    const auto started = std::chrono::steady_clock::now();
    run_batch(run->session, batch);
    run->session.executor->update();
    run->session.executor->collect();
    const double taken =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (i > 0 || taken > options.most_seconds) seconds = std::min(seconds, taken);
    if (i > 0 && taken > options.most_seconds / kTries) break;
  }
  const double share = options.most_seconds / (seconds * steps);
  const auto fit = static_cast<int64_t>(std::min(1.0, share) * static_cast<double>(most));
  return fit < std::min(fewest, most) ? 0 : fit;
}

std::vector<double> read_numbers(Executor& executor, const std::string& name) {
  const StateTensor* tensor = executor.layout().find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  const auto count = static_cast<size_t>(tensor->spec.shape.elements());
  std::vector<double> out(count);
  if (tensor->spec.dtype == DType::f64) {
    executor.read_state(name, std::as_writable_bytes(std::span(out)));
    return out;
  }
  const std::vector<float> narrow = executor.read_floats(name);
  check_internal(narrow.size() == count, "{} is {}", name, to_string(tensor->spec));
  std::copy(narrow.begin(), narrow.end(), out.begin());
  return out;
}

}  // namespace dltrain
