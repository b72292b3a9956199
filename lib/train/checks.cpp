#include "train/checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "data/loader.h"
#include "train/checkpoint.h"
#include "train/session.h"
#include "train/trainer.h"

namespace dltrain {
namespace {

constexpr double kInitialLossTolerance = 0.25;  // of ln N: standard initialisers stay well within
constexpr double kGradientTolerance = 1e-6;     // of the largest gradient of the tensor, in f64,
constexpr double kGradientFloor = 1e-2;         // or of this share of the model's largest: tensors
                                         // without effect (a bias before batch norm) are noise
constexpr int kElementsPerTensor = 6;
constexpr int kOverfitSteps = 300;
constexpr double kOverfitRatio = 0.1;  // final loss against the first

// The first micro-batch of the training order, in the compute type of the session.
struct OneBatch {
  std::vector<std::vector<std::byte>> fields;  // in the order of StepGraph::slots
  StepInputs inputs{};

  std::vector<const std::byte*> addresses() const {
    std::vector<const std::byte*> out;
    for (const auto& field : fields) out.push_back(field.data());
    return out;
  }
};

OneBatch first_batch(Session& session) {
  TrainLoader loader(session.data.train, train_loader_options(session, 0, 0),
                     session.executor->device());
  const Batch& batch = loader.next();
  const auto rows = static_cast<size_t>(session.batch.micro_batch);
  const StepGraph& graph = session.executor->training();
  OneBatch out;
  for (size_t i = 0; i < batch.fields.size(); ++i) {
    const TensorSpec& sample = loader.fields()[i].sample;
    const std::byte* bytes = batch.fields[i];
    if (graph.graph.value(graph.slots[i]).spec.dtype == DType::f64) {
      const auto* values = reinterpret_cast<const float*>(bytes);
      const std::vector<double> wide(values, values + sample.bytes() * rows / sizeof(float));
      const auto as_bytes = std::as_bytes(std::span(wide));
      out.fields.emplace_back(as_bytes.begin(), as_bytes.end());
    } else {
      out.fields.emplace_back(bytes, bytes + sample.bytes() * rows);
    }
  }
  out.inputs = {.seed = static_cast<uint64_t>(session.experiment->seed),
                .step = 0,
                .sample_offset = 0,
                .learning_rate = session.experiment->optimizer->learning_rate,
                .inverse_valid = batch.loss_divisor > 0 ? 1.0 / batch.loss_divisor : 0.0,
                .max_grad_norm = session.experiment->training.max_grad_norm.value_or(0),
                .scale_growth_interval = session.scale_growth_interval()};
  return out;
}

// Forward and backward of the batch as an only micro-step; returns the mean loss.
double run_batch(Session& session, const OneBatch& batch) {
  session.executor->micro_step(batch.addresses(), batch.inputs, 0);
  double sum = 0;
  session.executor->read_state("metric.loss", std::as_writable_bytes(std::span(&sum, 1)));
  return sum * batch.inputs.inverse_valid;
}

std::vector<std::string> one_batch_overrides(int64_t samples) {
  return {fmt::format("training.global_batch_size={}", samples),
          fmt::format("training.micro_batch_size={}", samples),
          "training.gradient_accumulation_steps=1", "parallelism.data=1"};
}

struct Prepared {
  Experiment experiment;
  Session session;
};

// An experiment of its own, compiled and initialised.
std::unique_ptr<Prepared> prepare(const CheckOptions& options, int64_t samples, DType compute) {
  auto prepared = std::make_unique<Prepared>();
  prepared->experiment = options.load(one_batch_overrides(samples));
  prepared->session = open_session(prepared->experiment, {.engines = options.engines,
                                                          .evaluation = false,
                                                          .compute = compute,
                                                          .fuse = compute != DType::f64});
  start_session(prepared->session);
  return prepared;
}

CheckResult check_initial_loss(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32);
  const int64_t classes =
      run->experiment.loss->classes(run->session.executor->training().output_spec);
  const double expected = std::log(static_cast<double>(classes));
  const double loss = run_batch(run->session, first_batch(run->session));
  return {"loss at init", std::abs(loss - expected) <= kInitialLossTolerance * expected,
          fmt::format("{:.4f}; −log(1/{}) = {:.4f}, tolerance {:.0f} %", loss, classes, expected,
                      100 * kInitialLossTolerance)};
}

CheckResult check_unused(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32);
  const auto& unused = run->session.executor->training().unused;
  return {"unused parameters", unused.empty(),
          unused.empty() ? "every parameter has a gradient" : "no gradient: " + unused[0]};
}

// The central difference of the loss along one element.
double difference(Session& session, const OneBatch& batch, const std::string& name,
                  std::vector<double>& values, size_t element, double step) {
  const double kept = values[element];
  const auto loss_at = [&](double value) {
    values[element] = value;
    session.executor->write_state(name, std::as_bytes(std::span(values)));
    return run_batch(session, batch);
  };
  const double above = loss_at(kept + step), below = loss_at(kept - step);
  loss_at(kept);
  return (above - below) / (2 * step);
}

// The largest element of all gradients.
double largest_gradient(Session& session) {
  double largest = 0;
  for (const StateTensor& tensor : session.executor->layout().tensors()) {
    if (tensor.role != Role::gradient) continue;
    std::vector<double> gradient(static_cast<size_t>(tensor.spec.shape.elements()));
    session.executor->read_state(tensor.name, std::as_writable_bytes(std::span(gradient)));
    for (double g : gradient) largest = std::max(largest, std::abs(g));
  }
  return largest;
}

CheckResult check_gradient(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, std::min<int64_t>(samples, 4), DType::f64);
  Session& session = run->session;
  const OneBatch batch = first_batch(session);
  double worst = 0;
  std::string worst_name;
  int elements = 0;
  run_batch(session, batch);
  const double model_largest = largest_gradient(session);
  for (const ParameterInfo& info : session.executor->training().parameters) {
    const std::string gradient_name = "gradient." + info.name;
    if (session.executor->layout().find(gradient_name) == nullptr) continue;
    const auto n = static_cast<size_t>(info.spec.shape.elements());
    std::vector<double> values(n), gradient(n);
    run_batch(session, batch);
    session.executor->read_state(info.name, std::as_writable_bytes(std::span(values)));
    session.executor->read_state(gradient_name, std::as_writable_bytes(std::span(gradient)));
    double largest = kGradientFloor * model_largest;
    for (double g : gradient) largest = std::max(largest, std::abs(g));
    for (int k = 0; k < kElementsPerTensor; ++k) {
      const size_t element = (n - 1) * static_cast<size_t>(k) / (kElementsPerTensor - 1);
      // A ReLU or a maximum may switch within the step: the smaller steps then do not see it.
      double error = INFINITY;
      for (double step : {1e-5, 1e-6, 1e-7}) {
        const double numeric = difference(session, batch, info.name, values, element, step);
        error = std::min(error, std::abs(numeric - gradient[element]) / largest);
        if (error <= kGradientTolerance) break;
      }
      ++elements;
      if (error >= worst) {
        worst = error;
        worst_name = info.name;
      }
    }
  }
  return {
      "gradient check", worst <= kGradientTolerance,
      fmt::format("{} elements in float64, largest relative error {:.1e} ({}), tolerance {:.0e}",
                  elements, worst, worst_name, kGradientTolerance)};
}

CheckResult check_overfit(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, std::min<int64_t>(samples, 32), DType::f32);
  OneBatch batch = first_batch(run->session);
  double first = 0, loss = 0;
  int step = 0;
  for (; step < kOverfitSteps; ++step) {
    batch.inputs.step = step;
    loss = run_batch(run->session, batch);
    if (step == 0) first = loss;
    if (loss <= kOverfitRatio * first) break;
    run->session.executor->update(batch.inputs);
    run->session.executor->collect();
  }
  return {
      "overfit one batch", loss <= kOverfitRatio * first,
      fmt::format("loss {:.4f} → {:.4f} in {} steps on {} samples; expected below {:.4f} within "
                  "{}",
                  first, loss, step, run->session.batch.micro_batch, kOverfitRatio * first,
                  kOverfitSteps)};
}

// All checkpointed state, byte by byte.
std::vector<std::byte> all_state(Executor& executor) {
  std::vector<std::byte> out;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    std::vector<std::byte> bytes(tensor.spec.bytes());
    executor.read_state(tensor.name, bytes);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

std::filesystem::path temporary_path() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  if (error) fail(ExitCode::storage, "no folder for temporary files (TMPDIR): {}", error.message());
  return folder / fmt::format("dltrain-check-{}", getpid());
}

struct TemporaryFolder {
  std::filesystem::path path = temporary_path();
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

std::vector<std::byte> train_to(const CheckOptions& options, int64_t steps, int64_t resume_at,
                                const std::filesystem::path& folder) {
  const Experiment experiment =
      options.load({fmt::format("training.max_steps={}", steps),
                    fmt::format("checkpoint.save_steps={}", steps / 2),
                    "checkpoint.save_total_limit=0", "parallelism.data=1"});
  Session session = open_session(experiment, {.engines = options.engines, .evaluation = false});
  start_session(session);
  if (resume_at > 0) {
    const auto checkpoint = folder / "checkpoints" / fmt::format("step-{:06}", resume_at);
    load_checkpoint(*session.executor, checkpoint, read_checkpoint_state(checkpoint));
  }
  train(session, {},
        {.run_folder = folder,
         .resolved_config = {},
         .first_step = resume_at,
         .handle_signals = false});
  return all_state(*session.executor);
}

CheckResult check_resume(const CheckOptions& options) {
  constexpr int64_t kSteps = 6;
  const TemporaryFolder folder;
  const auto whole = train_to(options, kSteps, 0, folder.path);
  const auto resumed = train_to(options, kSteps, kSteps / 2, folder.path);
  size_t different = 0;
  for (size_t i = 0; i < whole.size() && i < resumed.size(); ++i)
    different += whole[i] != resumed[i];
  return {"resume is bit-exact", whole.size() == resumed.size() && different == 0,
          fmt::format("{} steps against {} + checkpoint + {}: {} of {} bytes of state differ",
                      kSteps, kSteps / 2, kSteps / 2, different, whole.size())};
}

}  // namespace

std::vector<CheckResult> run_checks(const CheckOptions& options) {
  std::vector<CheckResult> results;
  const auto add = [&](CheckResult result) {
    if (options.on_result) options.on_result(result);
    results.push_back(std::move(result));
  };
  int64_t samples = 0;
  {
    const Experiment experiment = options.load({"parallelism.data=1"});
    const Session session = open_session(experiment, {.engines = options.engines});
    samples = std::min<int64_t>(session.batch.micro_batch, session.data.train->size());
    add({"configuration and data", true,
         fmt::format("{} training samples, {} for evaluation", session.data.train->size(),
                     session.has_evaluation() ? session.data.eval->size() : 0)});
  }
  const auto attempt = [&](const char* name, const std::function<CheckResult()>& check) {
    try {
      add(check());
    } catch (const Error& error) {
      add({name, false, error.what()});
    }
  };
  attempt("loss at init", [&] { return check_initial_loss(options, samples); });
  attempt("gradient check", [&] { return check_gradient(options, samples); });
  attempt("overfit one batch", [&] { return check_overfit(options, samples); });
  attempt("unused parameters", [&] { return check_unused(options, samples); });
  attempt("resume is bit-exact", [&] { return check_resume(options); });
  return results;
}

}  // namespace dltrain
