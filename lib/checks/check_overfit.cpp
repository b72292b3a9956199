// Checks that the model can overfit a few samples.
//
// Regularisation is disabled or taken into account: no dropout, no mixed samples, fixed transforms;
// for distillation the hard loss; and the loss is measured from the lowest that outputs can reach
// on these targets (label smoothing). The configured learning rate is for large batches and a
// schedule, so it is warmed up, and a tenth and ten times of it are tried if it fails. Eight
// samples may be too many for a small model (a linear one with few inputs) or contradictory; two
// that differ in input and target are then sufficient.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "checks/checks_support.h"
#include "checks/loss_bounds.h"

namespace dltrain {
namespace {

constexpr int64_t kCheckOverfitSamples = 8;
constexpr int kCheckOverfitSteps = 300;
constexpr int kWarmup = 20;             // steps
constexpr double kRatio = 0.1;          // what may be left of the loss's height above the lowest
constexpr double kSureRatio = 0.5;      // enough where every answer is right
constexpr double kConstantRatio = 0.5;  // what may be left of that of the best constant answer
constexpr double kInformative = 1e-3;   // of the height: targets that differ
constexpr double kRounding = 1e-9;      // of a loss in f64
constexpr int kMaxAttempts = 4;
constexpr double kRates[] = {1, 0.1, 10};  // times the configured learning rate

const CheckSetup kSetup{.teacher = false, .noise = false};

struct Attempt {
  int64_t samples = kCheckOverfitSamples;  // that differ
  double rate = 1;
  double first = 0, loss = 0, lowest = 0, height = 0;
  double constant = 0;  // height of the best answer that does not look at the inputs
  int steps = 0;
  bool right = false;       // every answer is
  bool wrong_sign = false;  // of the loss

  // The greatest final loss above the lowest.
  double allowed(double ratio) const {
    const double of_constant =
        constant > kInformative * height ? kConstantRatio * constant : height;
    return std::min(ratio * height, of_constant);
  }
  bool by_heart() const {
    return !wrong_sign && loss - lowest <= allowed(right ? kSureRatio : kRatio);
  }
};

// Returns whether all outputs of the last batch are right; false if the loss has no accuracy.
bool every_answer_right(Session& session, double valid) {
  if (session.executor->layout().find("metric.accuracy") == nullptr || valid == 0) return false;
  return read_numbers(*session.executor, "metric.accuracy")[0] >= valid;
}

// Returns the number of targets of a batch that count.
double count_valid(const Session& session, const OneBatch& batch) {
  const StepGraph& graph = session.executor->training();
  if (graph.graph.value(graph.targets()).spec.dtype != DType::i32) return batch.valid;
  const auto* labels = reinterpret_cast<const int32_t*>(batch.fields.back().data());
  const auto* end = labels + batch.fields.back().size() / sizeof(int32_t);
  return static_cast<double>(std::count_if(labels, end, [](int32_t label) { return label >= 0; }));
}

// Fills the batch alternately with its first sample and another that differs in input and target.
// Returns false if there is none.
bool keep_two(OneBatch& batch, size_t rows) {
  const auto row = [&](size_t field, size_t sample) {
    const size_t bytes = batch.fields[field].size() / rows;
    return std::span(batch.fields[field]).subspan(sample * bytes, bytes);
  };
  const auto same = [&](size_t field, size_t sample) {
    return std::ranges::equal(row(field, 0), row(field, sample));
  };
  const size_t target = batch.fields.size() - 1;
  for (size_t other = 1; other < rows; ++other) {
    bool same_inputs = true;
    for (size_t field = 0; field < target; ++field) same_inputs &= same(field, other);
    if (same_inputs || same(target, other)) continue;
    for (size_t field = 0; field <= target; ++field) {
      const std::vector<std::byte> kept = batch.fields[field];
      const size_t bytes = kept.size() / rows;
      for (size_t i = 0; i < rows; ++i) {
        std::memcpy(batch.fields[field].data() + i * bytes,
                    kept.data() + (i % 2 == 0 ? 0 : other) * bytes, bytes);
      }
    }
    return true;
  }
  return false;
}

// Returns nothing if two samples are requested and no two differ.
std::optional<Attempt> try_once(const CheckOptions& options, int64_t samples, bool two,
                                double rate) {
  const auto run = prepare(options, samples, DType::f32, kSetup);
  Session& session = run->session;
  OneBatch batch = first_batch(session);
  if (two && !keep_two(batch, static_cast<size_t>(samples))) return {};
  const double valid = count_valid(session, batch);
  const LossBounds bounds = loss_bounds(*options.engines.reference, session, batch);
  Attempt out{.samples = two ? 2 : samples, .rate = rate, .lowest = bounds.lowest};
  out.wrong_sign = bounds.step_nearer > bounds.uninformed + kRounding * std::abs(bounds.uninformed);
  if (out.wrong_sign) return out;
  const double configured = rate * batch.inputs.learning_rate;
  for (;; ++out.steps) {
    batch.inputs.step = out.steps;
    batch.inputs.learning_rate = configured * std::min(1.0, (out.steps + 1.0) / kWarmup);
    out.loss = run_batch(session, batch);
    if (out.steps == 0) {
      out.first = out.loss;
      out.height = std::max(out.first, bounds.uninformed) - out.lowest;
      out.constant = bounds.constant - out.lowest;
    }
    out.right = every_answer_right(session, valid);
    const bool done = out.loss - out.lowest <= out.allowed(kRatio);
    if (done || !std::isfinite(out.loss) || out.steps == kCheckOverfitSteps) return out;
    session.executor->update();
    session.executor->collect();
  }
}

std::string describe(const Attempt& a) {
  std::string rate;
  if (a.rate != 1) rate = fmt::format(", at {:g} times the learning rate", a.rate);
  return fmt::format("loss {:.4f} → {:.4f} in {} steps on {} sample{}{}", a.first, a.loss, a.steps,
                     a.samples, a.samples == 1 ? "" : "s", rate);
}

std::string expectation(const Attempt& a) {
  std::string lowest;
  if (a.lowest > 1e-3 * a.height) {
    lowest = fmt::format(" (the targets allow no less than {:.4f})", a.lowest);
  }
  return fmt::format("expected below {:.4f} within {} steps{}",
                     a.lowest + a.allowed(a.right ? kSureRatio : kRatio), kCheckOverfitSteps,
                     lowest);
}

}  // namespace

CheckResult check_overfit(const CheckOptions& options, int64_t samples) {
  samples = samples_in_time(options, std::min(samples, kCheckOverfitSamples), 2,
                            kMaxAttempts * kCheckOverfitSteps, kSetup);
  if (samples == 0) {
    return out_of_time("{} steps on two samples take longer than {:.0f} s", kCheckOverfitSteps,
                       options.most_seconds);
  }
  const Attempt first = *try_once(options, samples, false, 1);
  if (first.wrong_sign) {
    return pass_if(false, "the loss grows as the outputs approach the targets: is its sign right?");
  }
  std::optional<Attempt> best;
  if (first.by_heart()) best = first;
  for (const double rate : kRates) {
    // With two samples the first attempt has used them.
    const bool two = samples > 2;
    if (best || (!two && rate == 1)) continue;
    const std::optional<Attempt> next = try_once(options, samples, two, rate);
    if (!next) break;
    if (next->by_heart()) best = next;
  }
  if (best) {
    return pass_if(true, "{}{}; {}", describe(*best), best->right ? ", every answer right" : "",
                   expectation(*best));
  }
  return pass_if(false, "{}; {}; nor two samples at 0.1, 1 or 10 times the learning rate",
                 describe(first), expectation(first));
}

}  // namespace dltrain
