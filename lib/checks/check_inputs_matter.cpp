// Training on the real inputs must reach a lower loss than training on inputs that are all zero,
// which can only learn how the targets are distributed. The loss is that of samples held back from
// both trainings, so that learning samples by heart does not count, however often they come.
//
// Some sound models, such as masked language models, first learn that distribution alone, and look
// at their inputs later. So what 100 steps do not show is tried again with more of them, as many as
// the time allows. Both trainings see the same batches: a model that ignores its inputs has the
// very same losses in both.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "checks/checks_support.h"
#include "data/loader.h"
#include "data/permutation.h"

namespace dltrain {
namespace {

constexpr int64_t kCheckInputsMatterSamples = 64, kMinSamples = 8;
constexpr int64_t kMinData = 64;  // that leaves enough to hold back
constexpr int64_t kHeld = 512;    // samples held back: at most so many, and a quarter of the data
constexpr int64_t kHeldBatches = 16;
constexpr int kCheckInputsMatterSteps = 100, kMaxSteps = 1000;
// After which the held-out loss is measured; its lowest counts, as a small set is soon learnt by
// heart, which lets it grow.
constexpr int kMarks[] = {25, 50, kCheckInputsMatterSteps, 200, 400, 700, kMaxSteps};
constexpr double kShare = 0.98;  // of the loss with zeroed inputs
constexpr double kErrors = 3;    // standard errors that the difference must have; else undecided
constexpr double kSame = 1e-6;   // relative difference of losses that are the same
// A teacher would be given the zeroed inputs too, and its targets would be those of nothing. With
// augmentation sound models may need more than these steps.
const CheckSetup kCheckInputsMatterSetup{.teacher = false, .augment = false};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Returns whether the losses a are significantly lower than b on the same batches.
bool clearly_lower(const std::vector<double>& a, const std::vector<double>& b) {
  const auto count = static_cast<double>(a.size());
  const double difference = mean(b) - mean(a);
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(b[i] - a[i] - difference, 2);
  return difference > kErrors * std::sqrt(squares / (count - 1) / count);
}

struct Losses {
  std::vector<double> steps;              // of training
  std::vector<std::vector<double>> held;  // by mark, of each batch held back

  const std::vector<double>& lowest() const { return *std::ranges::min_element(held, {}, mean); }
  bool falls() const { return clearly_lower(held.back(), held[held.size() - 2]); }
};

// Splits random samples of the data into held-out samples and training samples in the order of the
// data.
DataSplit split(const Session& session, int64_t held) {
  const auto& whole = session.data.train;
  const int64_t size = whole->size();
  Permutation order(static_cast<uint64_t>(size), static_cast<uint64_t>(session.experiment->seed),
                    0);
  std::vector<int64_t> chosen(
      static_cast<size_t>(std::min(size, held + kMaxSteps * session.batch.global_batch)));
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int64_t>(order(i));
  const auto border = chosen.begin() + held;
  std::sort(border, chosen.end());
  return {.train = select(whole, {border, chosen.end()}),
          .eval = select(whole, {chosen.begin(), border})};
}

class Training {
 public:
  Training(const CheckOptions& options, int64_t samples, int64_t batches, bool zeroed)
      : run_(prepare(options, samples, DType::f32, kCheckInputsMatterSetup)),
        state_(first_batch(run_->session)),
        data_(split(run_->session, samples * batches)),
        batches_(batches),
        zeroed_(zeroed) {}

  Losses run(int steps) {
    TrainLoader loader = loader_of(data_.train);
    Losses out;
    for (int step = 0; step < steps; ++step) {
      const Batch& batch = take(loader);
      state_.inputs.step = step;
      executor().micro_step(batch.fields, state_.inputs, 0);
      out.steps.push_back(loss());
      executor().update();
      executor().collect();
      const int done = step + 1;
      if (done == steps || std::ranges::count(kMarks, done) > 0) {
        out.held.push_back(measure());
      }
    }
    return out;
  }

 private:
  Executor& executor() { return *run_->session.executor; }
  TrainLoader loader_of(const std::shared_ptr<const Dataset>& data) {
    return {data, train_loader_options(run_->session, 0, 0), executor().device()};
  }
  const Batch& take(TrainLoader& loader) {
    const Batch& batch = loader.next();
    const StepGraph& graph = executor().training();
    for (size_t field = 0; zeroed_ && field + 1 < batch.fields.size(); ++field) {
      std::fill_n(batch.fields[field], graph.graph.value(graph.slots[field]).spec.bytes(),
                  std::byte{0});
    }
    state_.inputs.inverse_valid = batch.loss_divisor > 0 ? 1 / batch.loss_divisor : 0;
    return batch;
  }
  double loss() { return read_numbers(executor(), "metric.loss")[0] * state_.inputs.inverse_valid; }
  std::vector<double> measure() {
    TrainLoader loader = loader_of(data_.eval);
    std::vector<double> out;
    for (int64_t i = 0; i < batches_; ++i) {
      executor().forward(take(loader).fields, state_.inputs);
      out.push_back(loss());
    }
    return out;
  }

  std::unique_ptr<Prepared> run_;
  OneBatch state_;
  DataSplit data_;
  int64_t batches_;
  bool zeroed_;
};

struct Comparison {
  Losses real, zeroed;
  int64_t held;  // samples

  bool lower() const { return mean(real.lowest()) < kShare * mean(zeroed.lowest()); }
  bool clear() const { return lower() && clearly_lower(real.lowest(), zeroed.lowest()); }
  // The loss with inputs has fallen since the first measurement.
  bool learned() const { return mean(real.lowest()) < kShare * mean(real.held.front()); }
  bool same() const {
    for (size_t i = 0; i < real.steps.size(); ++i) {
      const double difference = std::abs(real.steps[i] - zeroed.steps[i]);
      if (!(difference <= kSame * std::abs(zeroed.steps[i]))) return false;
    }
    return true;
  }
  std::string told() const {
    return fmt::format(
        "in {} steps the loss of {} held-out samples came to {:.4f}, and to {:.4f} "
        "with zeroed inputs",
        real.steps.size(), held, mean(real.lowest()), mean(zeroed.lowest()));
  }
};

}  // namespace

CheckResult check_inputs_matter(const CheckOptions& options, int64_t samples) {
  const int64_t data = options.load({}).data.open().train->size();
  if (data < kMinData) {
    return skipped("of {} samples too few can be held out; {} are needed", data, kMinData);
  }
  const int64_t most_held = std::min(kHeld, data / 4);
  const int64_t most =
      std::min({samples, kCheckInputsMatterSamples, std::max<int64_t>(most_held / 8, 4)});
  const int64_t fewest = std::min(most, kMinSamples);
  // Chooses the samples so that all steps, or at least the first hundred, fit the time.
  samples = samples_in_time(options, most, fewest, 2 * (kCheckInputsMatterSteps + kMaxSteps),
                            kCheckInputsMatterSetup);
  if (samples == 0) {
    samples = samples_in_time(options, fewest, fewest, 2 * kCheckInputsMatterSteps,
                              kCheckInputsMatterSetup);
  }
  if (samples == 0) {
    return out_of_time("{} steps on {} samples take longer than {:.0f} s",
                       2 * kCheckInputsMatterSteps, fewest, options.most_seconds);
  }
  const int64_t batches = std::min(kHeldBatches, most_held / samples);
  const auto compare = [&](int steps) {
    Losses real = Training(options, samples, batches, false).run(steps);
    return Comparison{std::move(real), Training(options, samples, batches, true).run(steps),
                      samples * batches};
  };
  const auto started = std::chrono::steady_clock::now();
  Comparison found = compare(kCheckInputsMatterSteps);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const auto result = [&] {
    if (found.lower() && found.learned() && !found.clear()) {
      return skipped("{}: too few held-out samples to decide", found.told());
    }
    return pass_if(found.clear(), "{}; expected below {:.0f} % of that, by {:.0f} standard errors",
                   found.told(), 100 * kShare, kErrors);
  };
  if (found.clear()) return result();
  if (found.same()) return pass_if(false, "{}: the inputs change nothing", found.told());

  const double in_time = kCheckInputsMatterSteps * (options.most_seconds - seconds) / seconds;
  const int steps = static_cast<int>(std::clamp<double>(in_time, 0, kMaxSteps));
  if (steps > kCheckInputsMatterSteps) found = compare(steps);
  // If the time is up and the loss still falls, the check is undecided.
  if (found.clear() || steps == kMaxSteps || !found.real.falls()) return result();
  return out_of_time("{}, which still falls: undecided, as more steps take longer than {:.0f} s",
                     found.told(), options.most_seconds);
}

}  // namespace dltrain
