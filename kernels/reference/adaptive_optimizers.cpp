// Optimizers that need norms of whole tensors, by the formulas of lib/ops/update_adaptive.cpp.
#include <cmath>

#include "ops/update.h"
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
struct LarsSums : Adaptive<T> {
  using Adaptive<T>::Adaptive;

  void run(const NaiveCall& c) const {
    for (size_t t = 0; t < this->count; ++t) {
      double* sums = c.output<double>(t);
      sums[0] = sums[1] = 0;
      if (c.input<StepState>(0)->out.finite == 0) continue;
      const T* p = this->tensor(c, 0, t);
      for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
        sums[0] += double{p[i]} * p[i];
        sums[1] += std::pow(this->gradient(c, t, i), 2);
      }
    }
  }
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
      const double* sums = c.input<double>(1 + (momentum != 0 ? 3 : 2) * this->count + t);
      const double decay = this->groups.of(t).weight_decay;
      const double p2 = sums[0], g2 = sums[1];
      const double trust =
          (decay == 0 && !always) || p2 == 0 || g2 == 0
              ? 1
              : coefficient * std::sqrt(p2) / (std::sqrt(g2) + decay * std::sqrt(p2) + epsilon);
      for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
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
struct LambBase : Adaptive<T> {
  explicit LambBase(const NaiveCall& c)
      : Adaptive<T>(c),
        beta1(c.attributes.number("beta1", 0.9)),
        beta2(c.attributes.number("beta2", 0.999)),
        epsilon(c.attributes.number("epsilon", 1e-6)),
        always(c.attributes.boolean("always_adapt", false)) {}

  double direction(const NaiveCall& c, size_t t, double p, double m, double v) const {
    const double correction1 = 1 - std::pow(beta1, this->updates(c)),
                 correction2 = 1 - std::pow(beta2, this->updates(c));
    return m / correction1 / (std::sqrt(v / correction2) + epsilon) +
           this->groups.of(t).weight_decay * p;
  }

  double beta1, beta2, epsilon;
  bool always;
};

template <typename T>
struct LambMoments : LambBase<T> {
  using LambBase<T>::LambBase;

  void run(const NaiveCall& c) const {
    for (size_t t = 0; t < this->count; ++t) {
      double* sums = c.output<double>(2 * this->count + t);
      sums[0] = sums[1] = 0;
      if (c.input<StepState>(0)->out.finite == 0) continue;
      T *p = this->tensor(c, 0, t), *m = this->tensor(c, 2, t), *v = this->tensor(c, 3, t);
      for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
        const double g = this->gradient(c, t, i);
        m[i] = static_cast<T>(this->beta1 * m[i] + (1 - this->beta1) * g);
        v[i] = static_cast<T>(this->beta2 * v[i] + (1 - this->beta2) * g * g);
        sums[0] += double{p[i]} * p[i];
        sums[1] += std::pow(this->direction(c, t, p[i], m[i], v[i]), 2);
      }
    }
  }
};

template <typename T>
struct Lamb : LambBase<T> {
  using LambBase<T>::LambBase;

  void run(const NaiveCall& c) const {
    if (c.input<StepState>(0)->out.finite == 0) return;
    for (size_t t = 0; t < this->count; ++t) {
      T *p = this->tensor(c, 0, t), *m = this->tensor(c, 1, t), *v = this->tensor(c, 2, t);
      const double* sums = c.input<double>(1 + 3 * this->count + t);
      const double p2 = sums[0], u2 = sums[1];
      const bool decays = this->groups.of(t).weight_decay != 0;
      const double trust = (decays || this->always) && p2 > 0 && u2 > 0 ? std::sqrt(p2 / u2) : 1;
      for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
        p[i] =
            static_cast<T>(p[i] - this->lr(c, t) * trust * this->direction(c, t, p[i], m[i], v[i]));
      }
    }
  }
};

template <typename T>
struct Adafactor : Adaptive<T> {
  explicit Adafactor(const NaiveCall& c)
      : Adaptive<T>(c),
        beta2_decay(c.attributes.number("beta2_decay", -0.8)),
        epsilon1(c.attributes.number("epsilon1", 0x1p-23)),
        epsilon2(c.attributes.number("epsilon2", 1e-3)),
        d(c.attributes.number("d", 1)) {
    for (size_t t = 0; t < this->count; ++t) {
      matrices.push_back(adafactor_matrix(c.attributes, t, c.inputs[1 + t].shape));
    }
  }

  double mean_of_rows(const NaiveCall& c, size_t t) const {
    double mean = 0;
    for (int64_t r = 0; matrices[t].factored && r < matrices[t].rows; ++r) {
      mean += double{this->tensor(c, 2, t)[r]} / static_cast<double>(matrices[t].rows);
    }
    return mean;
  }
  // g / √v of element `i` of the range.
  double quotient(const NaiveCall& c, size_t t, int64_t i, double mean) const {
    const AdafactorMatrix& a = matrices[t];
    const T *row = this->tensor(c, 2, t), *column = this->tensor(c, 3, t);
    double variance = 0;
    if (a.factored) {
      const int64_t at = a.begin + i;
      variance = double{row[at / a.columns]} * column[at % a.columns] / std::max(mean, epsilon1);
    } else {
      variance = row[i];
    }
    return this->gradient(c, t, i) / std::sqrt(std::max(variance, epsilon1 * epsilon1));
  }

  double beta2_decay, epsilon1, epsilon2, d;
  std::vector<AdafactorMatrix> matrices;
};

template <typename T>
struct AdafactorSums : Adafactor<T> {
  using Adafactor<T>::Adafactor;

  void run(const NaiveCall& c) const {
    for (size_t t = 0; t < this->count; ++t) {
      const AdafactorMatrix& a = this->matrices[t];
      double* sums = c.output<double>(t);
      std::fill_n(sums, c.outputs[t].shape.elements(), 0.0);
      if (c.input<StepState>(0)->out.finite == 0) continue;
      const T* p = this->tensor(c, 0, t);
      for (int64_t i = 0; i < a.count; ++i) {
        sums[0] += double{p[i]} * p[i];
        if (!a.factored) continue;
        const double square = std::pow(this->gradient(c, t, i), 2);
        sums[1 + (a.begin + i) / a.columns] += square;
        sums[1 + a.rows + (a.begin + i) % a.columns] += square;
      }
    }
  }
};

template <typename T>
struct AdafactorMoments : Adafactor<T> {
  using Adafactor<T>::Adafactor;

  void run(const NaiveCall& c) const {
    const bool finite = c.input<StepState>(0)->out.finite != 0;
    const double share = finite ? std::pow(this->updates(c), this->beta2_decay) : 0;
    const auto move = [&](T& moment, double target) {
      moment = static_cast<T>(moment + share * (target - moment));
    };
    for (size_t t = 0; t < this->count; ++t) {
      const AdafactorMatrix& a = this->matrices[t];
      double* squares = c.output<double>(c.outputs.size() - this->count + t);
      *squares = 0;
      if (!finite) continue;
      const double* sums = c.input<double>(1 + 4 * this->count + t);
      T *row = this->tensor(c, 2, t), *column = this->tensor(c, 3, t);
      for (int64_t r = 0; a.factored && r < a.rows; ++r) {
        move(row[r], sums[1 + r] / static_cast<double>(a.columns));
      }
      for (int64_t k = 0; a.factored && k < a.columns; ++k) {
        move(column[k], sums[1 + a.rows + k] / static_cast<double>(a.rows));
      }
      for (int64_t i = 0; !a.factored && i < a.count; ++i) {
        move(row[i], std::pow(this->gradient(c, t, i), 2));
      }
      const double mean = this->mean_of_rows(c, t);
      for (int64_t i = 0; i < a.count; ++i) *squares += std::pow(this->quotient(c, t, i, mean), 2);
    }
  }
};

template <typename T>
struct AdafactorUpdate : Adafactor<T> {
  using Adafactor<T>::Adafactor;

  void run(const NaiveCall& c) const {
    if (c.input<StepState>(0)->out.finite == 0) return;
    for (size_t t = 0; t < this->count; ++t) {
      const AdafactorMatrix& a = this->matrices[t];
      const auto n = static_cast<double>(a.rows * a.columns);
      const double p2 = *c.input<double>(1 + 4 * this->count + t) / n,
                   u2 = *c.input<double>(1 + 5 * this->count + t) / n;
      const double lr = this->lr(c, t);
      const double alpha =
          std::max(this->epsilon2, std::sqrt(p2)) * std::min(lr, 1 / std::sqrt(this->updates(c)));
      const double step = alpha / std::max(1.0, std::sqrt(u2) / this->d);
      const double keep = 1 - lr * this->groups.of(t).weight_decay;
      const double mean = this->mean_of_rows(c, t);
      T* p = this->tensor(c, 0, t);
      for (int64_t i = 0; i < a.count; ++i) {
        p[i] = static_cast<T>(p[i] * keep - step * this->quotient(c, t, i, mean));
      }
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> reference_lars_sums(const KernelRequest& request) {
  return make_naive<LarsSums>(request);
}
std::unique_ptr<Kernel> reference_lars_update(const KernelRequest& request) {
  return make_naive<Lars>(request);
}
std::unique_ptr<Kernel> reference_lamb_moments(const KernelRequest& request) {
  return make_naive<LambMoments>(request);
}
std::unique_ptr<Kernel> reference_lamb_update(const KernelRequest& request) {
  return make_naive<Lamb>(request);
}
std::unique_ptr<Kernel> reference_adafactor_sums(const KernelRequest& request) {
  return make_naive<AdafactorSums>(request);
}
std::unique_ptr<Kernel> reference_adafactor_moments(const KernelRequest& request) {
  return make_naive<AdafactorMoments>(request);
}
std::unique_ptr<Kernel> reference_adafactor_update(const KernelRequest& request) {
  return make_naive<AdafactorUpdate>(request);
}

}  // namespace dltrain
