// Gradients by the graph's backward against central differences of the loss, in float64.
//
// The reference engine is exact and slow, so only few elements of each tensor are checked, one of
// every tensor before the second of any, until the time is up. The check is skipped for a model
// that takes too long even with one sample.
#include <algorithm>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <optional>

#include "checks/checks_support.h"
#include "nn/lora.h"

namespace dltrain {
namespace {

constexpr double kGradientTolerance = 1e-6;  // of the largest gradient of the tensor, in f64,
constexpr double kGradientFloor = 1e-2;      // or of this share of the model's largest: tensors
                                             // without effect (a bias before batch norm) are noise
constexpr int kElementsPerTensor = 6;
constexpr double kRoundings = 8;  // of a loss, which matter where it is large

struct Checked {
  std::string parameter;
  std::vector<size_t> chosen = {};     // indices of elements
  std::vector<double> gradients = {};  // of these elements
  double largest = 0;                  // absolute gradient of the tensor, at least the floor
};

// Returns the element, or the nearest one outside the row of padding_idx, which has no gradient.
size_t element_that_learns(size_t element, size_t elements, const Initializer::Span& zeros) {
  const auto first = static_cast<size_t>(zeros.first),
             end = first + static_cast<size_t>(zeros.count);
  if (element < first || element >= end) return element;
  return end < elements ? end : first == 0 ? 0 : first - 1;
}

// DoRA counts the norm of an adapted weight as a constant in the gradient (Liu et al. 2024, section
// 4.3), so the gradients of its adapters are not those of the loss.
bool has_other_gradient(const Session& session, const std::string& parameter) {
  const LoraConfig* lora = session.experiment->model.adapters();
  return lora != nullptr && lora->variant == LoraVariant::dora &&
         (parameter.ends_with(kLoraA) || parameter.ends_with(kLoraB));
}

std::vector<Checked> choose_elements(Session& session) {
  std::vector<Checked> out;
  double model_largest = 0;
  for (const ParameterInfo& info : session.executor->training().parameters) {
    const StateTensor* state = session.executor->layout().find(info.name, Role::gradient);
    if (state == nullptr || has_other_gradient(session, info.name)) continue;
    const std::vector<double> gradient = read_numbers(*session.executor, state->name);
    Checked checked{.parameter = info.name};
    for (double g : gradient) checked.largest = std::max(checked.largest, std::abs(g));
    model_largest = std::max(model_largest, checked.largest);
    for (int k = 0; k < kElementsPerTensor; ++k) {
      const size_t element = element_that_learns(
          (gradient.size() - 1) * static_cast<size_t>(k) / (kElementsPerTensor - 1),
          gradient.size(), info.initializer.zeros_at);
      if (!checked.chosen.empty() && checked.chosen.back() == element) continue;
      checked.chosen.push_back(element);
      checked.gradients.push_back(gradient[element]);
    }
    out.push_back(std::move(checked));
  }
  for (Checked& checked : out) {
    checked.largest = std::max(checked.largest, kGradientFloor * model_largest);
  }
  return out;
}

// The loss with what the routers of experts add to it.
double whole_loss(Session& session, const OneBatch& batch) {
  const double loss = run_forward(session, batch);
  return loss + added_loss(read_routers(session));
}

using CheckGradientClock = std::chrono::steady_clock;

// Returns the relative difference between the gradient of chosen element `k` and the central
// difference, or nothing if the time is up before it is below the tolerance.
std::optional<double> gradient_error(Session& session, const OneBatch& batch,
                                     const Checked& checked, size_t k,
                                     CheckGradientClock::time_point end) {
  const size_t element = checked.chosen[k];
  std::vector<double> values = read_numbers(*session.executor, checked.parameter);
  const double kept = values[element];
  const auto write = [&](double value) {
    values[element] = value;
    session.executor->write_state(checked.parameter, std::as_bytes(std::span(values)));
  };
  std::optional<double> error = INFINITY;
  // A ReLU or a maximum may switch within a step; smaller steps avoid that.
  for (double step : {1e-5, 1e-6, 1e-7}) {
    if (CheckGradientClock::now() > end) {
      error = {};
      break;
    }
    write(kept + step);
    const double above = whole_loss(session, batch);
    write(kept - step);
    const double below = whole_loss(session, batch);
    const double numeric = (above - below) / (2 * step);
    const double rounding =
        kRoundings * DBL_EPSILON * (std::abs(above) + std::abs(below)) / (2 * step);
    const double difference = std::abs(numeric - checked.gradients[k]) - rounding;
    error = std::min(*error, std::max(0.0, difference) / checked.largest);
    if (*error <= kGradientTolerance) break;
  }
  write(kept);
  return error;
}

}  // namespace

CheckResult check_gradient(const CheckOptions& options, int64_t samples) {
  samples = std::min<int64_t>(samples, 4);
  const auto run = prepare_exact(options, samples);
  if (!run) {
    return out_of_time(
        "a step of {} sample{} takes more than the {:.0f} GFLOP that the float64 engine may",
        samples, samples == 1 ? "" : "s", options.most_exact_flops / 1e9);
  }
  Session& session = run->session;
  const CheckGradientClock::time_point end =
      CheckGradientClock::now() + std::chrono::duration_cast<CheckGradientClock::duration>(
                                      std::chrono::duration<double>(options.most_seconds));
  const OneBatch batch = first_batch(session);
  run_batch(session, batch);
  const std::vector<Checked> tensors = choose_elements(session);
  double worst = 0;
  std::string worst_name;
  size_t elements = 0, all = 0;
  for (const Checked& checked : tensors) all += checked.chosen.size();
  for (size_t k = 0; k < static_cast<size_t>(kElementsPerTensor); ++k) {
    for (const Checked& checked : tensors) {
      if (k >= checked.chosen.size()) continue;
      const std::optional<double> error = gradient_error(session, batch, checked, k, end);
      if (!error) break;
      ++elements;
      if (!(*error < worst)) {
        worst = *error;
        worst_name = checked.parameter;
      }
    }
  }
  if (elements == 0) {
    return out_of_time("one element took longer than {:.0f} s", options.most_seconds);
  }
  const std::string count = elements == all ? fmt::format("{}", all)
                                            : fmt::format("{} of {} (those that {:.0f} s allow)",
                                                          elements, all, options.most_seconds);
  return pass_if(worst <= kGradientTolerance,
                 "{} elements in float64, largest relative error {:.1e} ({}), tolerance {:.0e}",
                 count, worst, worst_name, kGradientTolerance);
}

}  // namespace dltrain
