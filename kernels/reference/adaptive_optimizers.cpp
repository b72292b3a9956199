// Optimizers that need norms of whole tensors, by the formulas of lib/ops/update_adaptive.cpp.
#include <cmath>

#include "reference/makers.h"
#include "reference/update.h"

namespace dltrain {
namespace {

// Shared by the three: tensors, the settings of their group, scaled and clipped gradients.
template <typename T>
struct Adaptive {
  explicit Adaptive(const NaiveCall& c) : groups(c.attributes), count(groups.group.size()) {}

  double gradient(const NaiveCall& c, size_t t, int64_t i) const {
    const StepState& state = *c.input<StepState>(0);
    const double limit = state.in.max_grad_value > 0 ? state.in.max_grad_value : INFINITY;
    return std::clamp(c.input<T>(1 + count + t)[i] * state.out.gradient_factor, -limit, limit);
  }
  // Input 1 + role·count + t, written in place.
  T* tensor(const NaiveCall& c, size_t role, size_t t) const {
    return static_cast<T*>(c.in[1 + role * count + t]);
  }
  double lr(const NaiveCall& c, size_t t) const {
    return c.input<StepState>(0)->in.learning_rate * groups.of(t).lr_scale;
  }
  double updates(const NaiveCall& c) const {
    return static_cast<double>(c.input<StepState>(0)->out.updates);
  }

  UpdateGroups groups;
  size_t count;
};

template <typename T>
struct Lars : Adaptive<T> {
  explicit Lars(const NaiveCall& c)
      : Adaptive<T>(c),
        momentum(c.attributes.number("momentum")),
        coefficient(c.attributes.number("trust_coefficient", 1e-3)),
        epsilon(c.attributes.number("epsilon", 1e-8)),
        always(c.attributes.boolean("always_adapt", false)) {}

  void run(const NaiveCall& c) const {
    if (c.input<StepState>(0)->out.finite == 0) return;
    for (size_t t = 0; t < this->count; ++t) {
      T *p = this->tensor(c, 0, t), *m = momentum != 0 ? this->tensor(c, 2, t) : nullptr;
      const int64_t n = c.inputs[1 + t].shape.elements();
      const double decay = this->groups.of(t).weight_decay;
      double p2 = 0, g2 = 0;
      for (int64_t i = 0; i < n; ++i) {
        p2 += double{p[i]} * p[i];
        g2 += std::pow(this->gradient(c, t, i), 2);
      }
      const double trust =
          (decay == 0 && !always) || p2 == 0 || g2 == 0
              ? 1
              : coefficient * std::sqrt(p2) / (std::sqrt(g2) + decay * std::sqrt(p2) + epsilon);
      for (int64_t i = 0; i < n; ++i) {
        double step = trust * (this->gradient(c, t, i) + decay * p[i]);
        if (m != nullptr) {
          step += momentum * m[i];
          m[i] = static_cast<T>(step);
        }
        p[i] = static_cast<T>(p[i] - this->lr(c, t) * step);
      }
    }
  }

  double momentum, coefficient, epsilon;
  bool always;
};

template <typename T>
struct Lamb : Adaptive<T> {
  explicit Lamb(const NaiveCall& c)
      : Adaptive<T>(c),
        beta1(c.attributes.number("beta1", 0.9)),
        beta2(c.attributes.number("beta2", 0.999)),
        epsilon(c.attributes.number("epsilon", 1e-6)),
        always(c.attributes.boolean("always_adapt", false)) {}

  void run(const NaiveCall& c) const {
    if (c.input<StepState>(0)->out.finite == 0) return;
    const double correction1 = 1 - std::pow(beta1, this->updates(c)),
                 correction2 = 1 - std::pow(beta2, this->updates(c));
    for (size_t t = 0; t < this->count; ++t) {
      T *p = this->tensor(c, 0, t), *m = this->tensor(c, 2, t), *v = this->tensor(c, 3, t);
      const int64_t n = c.inputs[1 + t].shape.elements();
      const double decay = this->groups.of(t).weight_decay;
      const auto direction = [&](int64_t i) {
        return m[i] / correction1 / (std::sqrt(v[i] / correction2) + epsilon) + decay * p[i];
      };
      double p2 = 0, u2 = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double g = this->gradient(c, t, i);
        m[i] = static_cast<T>(beta1 * m[i] + (1 - beta1) * g);
        v[i] = static_cast<T>(beta2 * v[i] + (1 - beta2) * g * g);
        p2 += double{p[i]} * p[i];
        u2 += std::pow(direction(i), 2);
      }
      const bool scaled = (decay != 0 || always) && p2 > 0 && u2 > 0;
      const double trust = scaled ? std::sqrt(p2 / u2) : 1;
      for (int64_t i = 0; i < n; ++i) {
        p[i] = static_cast<T>(p[i] - this->lr(c, t) * trust * direction(i));
      }
    }
  }

  double beta1, beta2, epsilon;
  bool always;
};

template <typename T>
struct Adafactor : Adaptive<T> {
  explicit Adafactor(const NaiveCall& c)
      : Adaptive<T>(c),
        beta2_decay(c.attributes.number("beta2_decay", -0.8)),
        epsilon1(c.attributes.number("epsilon1", 0x1p-23)),
        epsilon2(c.attributes.number("epsilon2", 1e-3)),
        d(c.attributes.number("d", 1)) {}

  // Returns the mean of `n` squared gradients from element `begin` on with a stride.
  double mean_square(const NaiveCall& c, size_t t, int64_t begin, int64_t n, int64_t stride) const {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::pow(this->gradient(c, t, begin + i * stride), 2);
    return sum / static_cast<double>(n);
  }

  void run(const NaiveCall& c) const {
    if (c.input<StepState>(0)->out.finite == 0) return;
    const double share = std::pow(this->updates(c), beta2_decay);
    for (size_t t = 0; t < this->count; ++t) {
      const Shape& shape = c.inputs[1 + t].shape;
      const bool factored = shape.rank() > 1;
      const int64_t n = shape.elements(), rows = factored ? shape[0] : n,
                    columns = rows == 0 ? 0 : n / rows;
      T *p = this->tensor(c, 0, t), *row = this->tensor(c, 2, t), *column = this->tensor(c, 3, t);
      const auto move = [&](T& moment, double target) {
        moment = static_cast<T>(moment + share * (target - moment));
      };
      double mean = 0;
      for (int64_t r = 0; r < rows; ++r) {
        move(row[r], mean_square(c, t, r * columns, columns, 1));
        mean += double{row[r]} / static_cast<double>(rows);
      }
      for (int64_t k = 0; factored && k < columns; ++k) {
        move(column[k], mean_square(c, t, k, rows, columns));
      }
      const auto quotient = [&](int64_t i) {
        const double variance =
            factored ? double{row[i / columns]} * column[i % columns] / std::max(mean, epsilon1)
                     : double{row[i]};
        return this->gradient(c, t, i) / std::sqrt(std::max(variance, epsilon1 * epsilon1));
      };
      double p2 = 0, u2 = 0;
      for (int64_t i = 0; i < n; ++i) {
        p2 += double{p[i]} * p[i] / static_cast<double>(n);
        u2 += std::pow(quotient(i), 2) / static_cast<double>(n);
      }
      const double lr = this->lr(c, t);
      const double alpha =
          std::max(epsilon2, std::sqrt(p2)) * std::min(lr, 1 / std::sqrt(this->updates(c)));
      const double step = alpha / std::max(1.0, std::sqrt(u2) / d);
      for (int64_t i = 0; i < n; ++i) {
        p[i] =
            static_cast<T>(p[i] * (1 - lr * this->groups.of(t).weight_decay) - step * quotient(i));
      }
    }
  }

  double beta2_decay, epsilon1, epsilon2, d;
};

}  // namespace

std::unique_ptr<Kernel> reference_lars_update(const KernelRequest& request) {
  return make_naive<Lars>(request);
}
std::unique_ptr<Kernel> reference_lamb_update(const KernelRequest& request) {
  return make_naive<Lamb>(request);
}
std::unique_ptr<Kernel> reference_adafactor_update(const KernelRequest& request) {
  return make_naive<Adafactor>(request);
}

}  // namespace dltrain
