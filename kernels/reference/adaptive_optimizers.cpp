// Optimizers that need norms of whole tensors, by the formulas of lib/ops/update_adaptive.cpp.
#include <cmath>

#include "ops/update.h"
#include "reference/makers.h"
#include "reference/update.h"

namespace dltrain {
namespace {

// One tensor of a call: its settings, its addresses, its scaled and clipped gradient.
template <typename T>
struct AdaptiveTensor {
  AdaptiveTensor(const NaiveCall& call, const UpdateGroups& groups, size_t tensor)
      : c(call),
        state(*c.input<StepState>(0)),
        t(tensor),
        count(groups.group.size()),
        size(c.inputs[1 + t].shape.elements()),
        lr(state.in.learning_rate * groups.of(t).lr_scale),
        decay(groups.of(t).weight_decay),
        updates(static_cast<double>(state.out.updates)) {}

  double number(const char* attribute, double otherwise) const {
    return c.attributes.number(attribute, otherwise);
  }
  double gradient(int64_t i) const {
    const double limit = state.in.max_grad_value > 0 ? state.in.max_grad_value : INFINITY;
    return std::clamp(c.input<T>(1 + count + t)[i] * state.out.gradient_factor, -limit, limit);
  }
  // Input 1 + role·count + t, written in place.
  template <typename Element = T>
  Element* role(size_t role) const {
    return static_cast<Element*>(c.in[1 + role * count + t]);
  }
  // Returns true if LARS and LAMB scale the step.
  bool scales(const double* sums) const {
    return (decay != 0 || c.attributes.boolean("always_adapt", false)) && sums[0] > 0 &&
           sums[1] > 0;
  }

  const NaiveCall& c;
  const StepState& state;
  size_t t, count;
  int64_t size;
  double lr, decay, updates;
};

// A kernel work(tensor) for every tensor. Without `sums` it does nothing in a skipped step;
// otherwise the sums of such a step, the last outputs, are zero.
template <bool sums, typename Work>
std::unique_ptr<Kernel> make_adaptive(const KernelRequest& request, Work work) {
  return make_naive(request, [work]<typename T>(const NaiveCall& c, T) {
    const UpdateGroups groups(c.attributes);
    const size_t count = groups.group.size();
    for (size_t t = 0; t < count; ++t) {
      const AdaptiveTensor<T> tensor(c, groups, t);
      const size_t last = c.outputs.size() - count + t;
      if (sums) std::fill_n(c.output<double>(last), c.outputs[last].shape.elements(), 0.0);
      if (tensor.state.out.finite == 0) continue;
      if constexpr (sums) {
        work(tensor, c.output<double>(last));
      } else {
        work(tensor);
      }
    }
  });
}

template <typename T>
double lamb_direction(const AdaptiveTensor<T>& x, double p, double m, double v) {
  const double correction1 = 1 - std::pow(x.number("beta1", 0.9), x.updates),
               correction2 = 1 - std::pow(x.number("beta2", 0.999), x.updates);
  return m / correction1 / (std::sqrt(v / correction2) + x.number("epsilon", 1e-6)) + x.decay * p;
}

template <typename T>
AdafactorMatrix matrix_of(const AdaptiveTensor<T>& x) {
  return adafactor_matrix(x.c.attributes, x.t, x.c.inputs[1 + x.t].shape);
}

// Returns the row and column of the matrix that element i of the op is in.
std::pair<int64_t, int64_t> place_in(const AdafactorMatrix& a, int64_t i) {
  if (!a.factored) return {0, i};
  const int64_t at = a.begin + i, columns = a.column.count();
  return {a.row.in_matrix(at / columns), a.column.in_matrix(at % columns)};
}

// Calls f(element of the range, g / √v).
template <typename T, typename F>
void each_quotient(const AdaptiveTensor<T>& x, const F& f) {
  const AdafactorMatrix a = matrix_of(x);
  const T *row = x.role(2), *column = x.role(3);
  const double epsilon1 = x.number("epsilon1", 0x1p-23);
  double mean = 0;
  for (int64_t r = 0; a.factored && r < a.rows; ++r) {
    mean += double{row[r]} / static_cast<double>(a.rows);
  }
  for (int64_t i = 0; i < a.count; ++i) {
    const auto [r, k] = place_in(a, i);
    const double variance =
        a.factored ? double{row[r]} * column[k] / std::max(mean, epsilon1) : row[i];
    f(i, x.gradient(i) / std::sqrt(std::max(variance, epsilon1 * epsilon1)));
  }
}

}  // namespace

std::unique_ptr<Kernel> reference_lars_sums(const KernelRequest& request) {
  return make_adaptive<true>(request, []<typename T>(const AdaptiveTensor<T>& x, double* sums) {
    for (int64_t i = 0; i < x.size; ++i) {
      sums[0] += double{x.role(0)[i]} * x.role(0)[i];
      sums[1] += std::pow(x.gradient(i), 2);
    }
  });
}

std::unique_ptr<Kernel> reference_lars_update(const KernelRequest& request) {
  return make_adaptive<false>(request, []<typename T>(const AdaptiveTensor<T>& x) {
    const double momentum = x.number("momentum", 0);
    T *p = x.role(0), *m = momentum != 0 ? x.role(2) : nullptr;
    const double* sums = x.template role<double>(m != nullptr ? 3 : 2);
    const double norm = std::sqrt(sums[0]), other = std::sqrt(sums[1]);
    const double scaled = x.number("trust_coefficient", 1e-3) * norm /
                          (other + x.decay * norm + x.number("epsilon", 1e-8));
    const double trust = x.scales(sums) ? scaled : 1;
    for (int64_t i = 0; i < x.size; ++i) {
      double step = trust * (x.gradient(i) + x.decay * p[i]);
      if (m != nullptr) {
        step += momentum * m[i];
        m[i] = static_cast<T>(step);
      }
      p[i] = static_cast<T>(p[i] - x.lr * step);
    }
  });
}

std::unique_ptr<Kernel> reference_lamb_moments(const KernelRequest& request) {
  return make_adaptive<true>(request, []<typename T>(const AdaptiveTensor<T>& x, double* sums) {
    const double beta1 = x.number("beta1", 0.9), beta2 = x.number("beta2", 0.999);
    T *p = x.role(0), *m = x.role(2), *v = x.role(3);
    for (int64_t i = 0; i < x.size; ++i) {
      const double g = x.gradient(i);
      m[i] = static_cast<T>(beta1 * m[i] + (1 - beta1) * g);
      v[i] = static_cast<T>(beta2 * v[i] + (1 - beta2) * g * g);
      sums[0] += double{p[i]} * p[i];
      sums[1] += std::pow(lamb_direction(x, p[i], m[i], v[i]), 2);
    }
  });
}

std::unique_ptr<Kernel> reference_lamb_update(const KernelRequest& request) {
  return make_adaptive<false>(request, []<typename T>(const AdaptiveTensor<T>& x) {
    T *p = x.role(0), *m = x.role(1), *v = x.role(2);
    const double* sums = x.template role<double>(3);
    const double trust = x.scales(sums) ? std::sqrt(sums[0] / sums[1]) : 1;
    for (int64_t i = 0; i < x.size; ++i) {
      p[i] = static_cast<T>(p[i] - x.lr * trust * lamb_direction(x, p[i], m[i], v[i]));
    }
  });
}

std::unique_ptr<Kernel> reference_adafactor_sums(const KernelRequest& request) {
  return make_adaptive<true>(request, []<typename T>(const AdaptiveTensor<T>& x, double* sums) {
    const AdafactorMatrix a = matrix_of(x);
    for (int64_t i = 0; i < a.count; ++i) {
      sums[0] += double{x.role(0)[i]} * x.role(0)[i];
      if (!a.factored) continue;
      const double square = std::pow(x.gradient(i), 2);
      const auto [r, k] = place_in(a, i);
      sums[1 + r] += square;
      sums[1 + a.rows + k] += square;
    }
  });
}

std::unique_ptr<Kernel> reference_adafactor_moments(const KernelRequest& request) {
  return make_adaptive<true>(request, []<typename T>(const AdaptiveTensor<T>& x, double* squares) {
    const AdafactorMatrix a = matrix_of(x);
    const double share = std::pow(x.updates, x.number("beta2_decay", -0.8));
    const auto move = [&](T& moment, double target) {
      moment = static_cast<T>(moment + share * (target - moment));
    };
    const double* sums = x.template role<double>(4);
    T *row = x.role(2), *column = x.role(3);
    for (int64_t r = 0; a.factored && r < a.rows; ++r) {
      move(row[r], sums[1 + r] / static_cast<double>(a.columns));
    }
    for (int64_t k = 0; a.factored && k < a.columns; ++k) {
      move(column[k], sums[1 + a.rows + k] / static_cast<double>(a.rows));
    }
    for (int64_t i = 0; !a.factored && i < a.count; ++i) move(row[i], std::pow(x.gradient(i), 2));
    each_quotient(x, [&](int64_t, double quotient) { *squares += quotient * quotient; });
  });
}

std::unique_ptr<Kernel> reference_adafactor_update(const KernelRequest& request) {
  return make_adaptive<false>(request, []<typename T>(const AdaptiveTensor<T>& x) {
    const AdafactorMatrix a = matrix_of(x);
    const auto n = static_cast<double>(a.rows * a.columns);
    const double p2 = *x.template role<double>(4) / n, u2 = *x.template role<double>(5) / n;
    const double alpha = std::max(x.number("epsilon2", 1e-3), std::sqrt(p2)) *
                         std::min(x.lr, 1 / std::sqrt(x.updates));
    const double step = alpha / std::max(1.0, std::sqrt(u2) / x.number("d", 1));
    const double keep = 1 - x.lr * x.decay;
    T* p = x.role(0);
    each_quotient(x, [&](int64_t i, double quotient) {
      p[i] = static_cast<T>(p[i] * keep - step * quotient);
    });
  });
}

}  // namespace dltrain
