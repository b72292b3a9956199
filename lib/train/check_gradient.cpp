// Gradients by the graph's backward against central differences of the loss, in float64.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/checks_support.h"

namespace dltrain {
namespace {

constexpr double kGradientTolerance = 1e-6;  // of the largest gradient of the tensor, in f64,
constexpr double kGradientFloor = 1e-2;      // or of this share of the model's largest: tensors
                                             // without effect (a bias before batch norm) are noise
constexpr int kElementsPerTensor = 6;

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

}  // namespace

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
  return pass_if(
      worst <= kGradientTolerance,
      fmt::format("{} elements in float64, largest relative error {:.1e} ({}), tolerance {:.0e}",
                  elements, worst, worst_name, kGradientTolerance));
}

}  // namespace dltrain
