// Measures how much one step changes each weight, relative to its size at the start. Training
// that goes well often changes about a thousandth (Karpathy 2015), small layers and the first steps
// more. Only sizes that are far from that are worth a note, since they show a learning rate that is
// wrong by orders of magnitude.
#include <algorithm>
#include <cmath>
#include <map>

#include "checks/checks_support.h"

namespace dltrain {
namespace {

constexpr int kUpdateSizeSteps = 10;           // the moments of the optimizer are settled by then
constexpr size_t kComparedElements = 1 << 16;  // elements of a tensor
constexpr double kGreatUpdate = 0.3, kTinyUpdate = 1e-7;

using Weights = std::map<std::string, std::vector<float>>;  // by name

// Returns the first elements of every weight that is trained. Biases and scales of norms, which
// start at 0 or 1, have no size to compare with.
Weights read_weights(Session& session) {
  Executor& executor = *session.executor;
  Weights out;
  for (const ParameterInfo& info : executor.training().parameters) {
    if (info.file.shape.rank() < 2) continue;
    if (executor.layout().find(info.name, Role::gradient) == nullptr) continue;
    std::vector<float> values = executor.read_floats(info.name);
    if (values.size() > kComparedElements) values.resize(kComparedElements);
    out.emplace(info.name, std::move(values));
  }
  return out;
}

struct UpdateSize {
  std::string weight;
  double share;  // |change| / |initial weight|
};

// In ascending order; none if gradients become infinite.
std::vector<UpdateSize> update_sizes(Session& session, const Weights& initial) {
  OneBatch batch = first_batch(session);
  Weights before;
  for (int step = 0; step < kUpdateSizeSteps; ++step) {
    if (step + 1 == kUpdateSizeSteps) before = read_weights(session);
    batch.inputs.step = step;
    run_batch(session, batch);
    session.executor->update();
    if (session.executor->collect().results.finite == 0) return {};
  }
  std::vector<UpdateSize> out;
  for (const auto& [name, after] : read_weights(session)) {
    const std::vector<float>& old = before.at(name);
    double change = 0, size = 0;
    for (size_t i = 0; i < old.size(); ++i) {
      change += std::pow(double{after[i]} - double{old[i]}, 2);
      size += std::pow(double{initial.at(name)[i]}, 2);
    }
    if (size > 0 && std::isfinite(change)) out.push_back({name, std::sqrt(change / size)});
  }
  std::ranges::sort(out, {}, &UpdateSize::share);
  return out;
}

}  // namespace

CheckResult check_update_sizes(const CheckOptions& options, int64_t samples) {
  samples = samples_in_time(options, samples, options.fewest_samples, kUpdateSizeSteps);
  if (samples == 0) {
    return out_of_time("{} steps take longer than {:.0f} s", kUpdateSizeSteps,
                       options.most_seconds);
  }
  const auto run = prepare(options, samples, DType::f32);
  const Weights initial = read_weights(run->session);
  if (initial.empty()) return skipped("no weight matrix is trained");
  const std::vector<UpdateSize> sizes = update_sizes(run->session, initial);
  if (sizes.empty()) {
    return {{},
            CheckOutcome::note,
            fmt::format("within {} steps gradients are not finite: the learning rate is likely too "
                        "high",
                        kUpdateSizeSteps)};
  }
  const UpdateSize &least = sizes.front(), &greatest = sizes.back();
  const double middle = sizes[sizes.size() / 2].share;
  CheckResult result =
      pass_if(true,
              "after {} steps one step changes the weights by {:.2g} of their size ({:.2g} {} to "
              "{:.2g} {})",
              kUpdateSizeSteps, middle, least.share, least.weight, greatest.share, greatest.weight);
  const bool great = !(greatest.share <= kGreatUpdate);
  if (great || middle < kTinyUpdate) {
    result.outcome = CheckOutcome::note;
    result.detail += fmt::format("; about 0.001 is common, so the learning rate is likely too {}",
                                 great ? "high" : "low");
  }
  return result;
}

}  // namespace dltrain
