// elementwise_loss and its gradient, straight from the definitions.
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

double softplus_elementwise_loss(double x) {
  return std::fmax(x, 0) + std::log1p(std::exp(-std::abs(x)));
}

struct Definition {
  explicit Definition(const NaiveCall& c)
      : kind(c.attributes.text("kind")),
        delta(c.attributes.number("delta", 1)),
        pos_weight(c.attributes.numbers("pos_weight")) {}

  double positive(int64_t element) const {
    if (pos_weight.empty()) return 1;
    return pos_weight[static_cast<size_t>(element) % pos_weight.size()];
  }

  double loss(double x, double t, int64_t element) const {
    const double d = x - t, size = std::abs(d);
    if (kind == "mse") return d * d;
    if (kind == "l1") return size;
    if (kind == "huber") return size <= delta ? d * d / 2 : delta * (size - delta / 2);
    if (kind == "smooth_l1") return size < delta ? d * d / (2 * delta) : size - delta / 2;
    check_internal(kind == "binary_cross_entropy", "elementwise_loss: kind \"{}\"", kind);
    return (1 - t) * softplus_elementwise_loss(x) +
           positive(element) * t * softplus_elementwise_loss(-x);
  }

  double slope(double x, double t, int64_t element) const {
    const double d = x - t, size = std::abs(d);
    const double sign = static_cast<double>((d > 0) - (d < 0));
    if (kind == "mse") return 2 * d;
    if (kind == "l1") return sign;
    if (kind == "huber") return size <= delta ? d : delta * sign;
    if (kind == "smooth_l1") return size < delta ? d / delta : sign;
    const double sigmoid = 1 / (1 + std::exp(-x));
    return (1 - t) * sigmoid - positive(element) * t * (1 - sigmoid);
  }

  std::string kind;
  double delta;
  std::vector<double> pos_weight;
};

}  // namespace

std::unique_ptr<Kernel> reference_elementwise_loss(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Definition d(c);
    double sum = 0, correct = 0;
    for (int64_t i = 0; i < c.inputs[0].shape.elements(); ++i) {
      const double x = c.input<T>(0)[i], t = c.input<T>(1)[i];
      if (std::isnan(t)) continue;
      sum += d.loss(x, t, i);
      correct += (x > 0) == (t > 0.5) ? 1 : 0;
    }
    c.put<double>(0, 0, sum);
    if (c.outputs.size() > 1) c.put<double>(1, 0, correct);
  });
}

std::unique_ptr<Kernel> reference_elementwise_loss_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Definition d(c);
    const double dloss = *c.input<double>(2);
    for (int64_t i = 0; i < c.inputs[0].shape.elements(); ++i) {
      const double x = c.input<T>(0)[i], t = c.input<T>(1)[i];
      c.put<T>(0, i, std::isnan(t) ? 0 : dloss * d.slope(x, t, i));
    }
  });
}

}  // namespace dltrain
