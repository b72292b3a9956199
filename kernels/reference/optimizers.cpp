// Optimizers with independent elements, by the formulas of lib/ops/update.cpp.
#include <cmath>

#include "reference/makers.h"
#include "reference/update.h"

namespace dltrain {
namespace {

// PyTorch's SGD.
struct Sgd {
  explicit Sgd(const Attributes& a)
      : momentum(a.number("momentum")),
        dampening(a.number("dampening")),
        nesterov(a.boolean("nesterov")),
        moments(momentum != 0 ? 1 : 0) {}

  void element(const NaiveUpdate& u, double& p, double g, double* m) const {
    g += u.weight_decay * p;
    double direction = g;
    if (moments != 0) {
      m[0] = u.updates == 1 ? momentum * m[0] + g : momentum * m[0] + (1 - dampening) * g;
      direction = nesterov ? g + momentum * m[0] : m[0];
    }
    p -= u.lr * direction;
  }

  double momentum, dampening;
  bool nesterov;
  int moments;
};

// Kingma & Ba 2015, algorithm 1, and Loshchilov & Hutter 2019, algorithm 2.
template <bool decoupled>
struct Adam {
  explicit Adam(const Attributes& a)
      : beta1(a.number("beta1", 0.9)),
        beta2(a.number("beta2", 0.999)),
        epsilon(a.number("epsilon", 1e-8)) {}

  void element(const NaiveUpdate& u, double& p, double g, double* m) const {
    if (decoupled) {
      p -= u.lr * u.weight_decay * p;
    } else {
      g += u.weight_decay * p;
    }
    m[0] = beta1 * m[0] + (1 - beta1) * g;
    m[1] = beta2 * m[1] + (1 - beta2) * g * g;
    const double first = m[0] / (1 - std::pow(beta1, u.updates));
    const double second = m[1] / (1 - std::pow(beta2, u.updates));
    p -= u.lr * first / (std::sqrt(second) + epsilon);
  }

  double beta1, beta2, epsilon;
  int moments = 2;
};

struct Adagrad {
  explicit Adagrad(const Attributes& a)
      : lr_decay(a.number("lr_decay")),
        initial(a.number("initial_accumulator_value")),
        epsilon(a.number("epsilon", 1e-10)) {}

  void element(const NaiveUpdate& u, double& p, double g, double* m) const {
    g += u.weight_decay * p;
    m[0] += g * g;
    const double lr = u.lr / (1 + (u.updates - 1) * lr_decay);
    p -= lr * g / (std::sqrt(initial + m[0]) + epsilon);
  }

  double lr_decay, initial, epsilon;
  int moments = 1;
};

struct Rmsprop {
  explicit Rmsprop(const Attributes& a)
      : alpha(a.number("alpha", 0.99)),
        epsilon(a.number("epsilon", 1e-8)),
        momentum(a.number("momentum")),
        centered(a.boolean("centered")),
        moments(1 + (centered ? 1 : 0) + (momentum != 0 ? 1 : 0)) {}

  void element(const NaiveUpdate& u, double& p, double g, double* m) const {
    g += u.weight_decay * p;
    m[0] = alpha * m[0] + (1 - alpha) * g * g;
    double variance = m[0];
    if (centered) {
      m[1] = alpha * m[1] + (1 - alpha) * g;
      variance = std::max(variance - m[1] * m[1], 0.0);
    }
    double direction = g / (std::sqrt(variance) + epsilon);
    if (momentum != 0) {
      double& velocity = m[moments - 1];
      velocity = momentum * velocity + direction;
      direction = velocity;
    }
    p -= u.lr * direction;
  }

  double alpha, epsilon, momentum;
  bool centered;
  int moments;
};

// Chen et al. 2023, algorithm 2.
struct Lion {
  explicit Lion(const Attributes& a)
      : beta1(a.number("beta1", 0.9)), beta2(a.number("beta2", 0.99)) {}

  void element(const NaiveUpdate& u, double& p, double g, double* m) const {
    const double c = beta1 * m[0] + (1 - beta1) * g;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    p -= u.lr * (sign + u.weight_decay * p);
    m[0] = beta2 * m[0] + (1 - beta2) * g;
  }

  double beta1, beta2;
  int moments = 1;
};

}  // namespace

std::unique_ptr<Kernel> reference_element_update(const KernelRequest& request) {
  if (request.op == "sgd_update") return make_naive_update<Sgd>(request);
  if (request.op == "adam_update") return make_naive_update<Adam<false>>(request);
  if (request.op == "adamw_update") return make_naive_update<Adam<true>>(request);
  if (request.op == "adagrad_update") return make_naive_update<Adagrad>(request);
  if (request.op == "rmsprop_update") return make_naive_update<Rmsprop>(request);
  return request.op == "lion_update" ? make_naive_update<Lion>(request) : nullptr;
}

}  // namespace dltrain
