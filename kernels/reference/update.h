// The loop of the naive optimizers over all elements of all tensors, in double, with the settings
// of each tensor's group. The update of one element is in the file of the op.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "shared/update_groups.h"
#include "tensor/low_precision.h"
#include "tensor/random_rounding.h"

namespace dltrain {

// Inputs of an update formula besides the element itself.
struct NaiveUpdate {
  const StepState& state;
  double lr, weight_decay;  // of the tensor's group
  double updates;           // applied so far, this one included
};

// A kernel of `Formula(const Attributes&)` with `int moments` and
// `void element(const NaiveUpdate& u, double& p, double g, double* m) const`.
template <typename Formula>
struct NaiveUpdateOf {
  template <typename T>
  struct Prepared {
    explicit Prepared(const NaiveCall& c)
        : formula(c.attributes),
          groups(c.attributes),
          count(groups.group.size()),
          copies(first_copy(c.attributes, c.inputs.size())),
          rounding(c.attributes) {}

    void run(const NaiveCall& c) const {
      const StepState& state = *c.input<StepState>(0);
      if (state.out.finite == 0) return;
      for (size_t t = 0; t < count; ++t) tensor(c, state, t);
    }

    void tensor(const NaiveCall& c, const StepState& state, size_t t) const {
      const NaiveUpdate u{state, state.in.learning_rate * groups.of(t).lr_scale,
                          groups.of(t).weight_decay, static_cast<double>(state.out.updates)};
      const double limit = state.in.max_grad_value > 0 ? state.in.max_grad_value : INFINITY;
      double m[3];
      for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
        const double gradient = c.input<T>(1 + count + t)[i] * state.out.gradient_factor;
        double p = rounding.any() ? to_f32(c.output<Bf16>(t)[i]) : c.output<T>(t)[i];
        for (size_t k = 0; k < moments(); ++k) m[k] = c.output<T>((1 + k) * count + t)[i];
        formula.element(u, p, std::clamp(gradient, -limit, limit), m);
        if (rounding.any()) {
          c.output<Bf16>(t)[i] = round_at_random(static_cast<float>(p), rounding.bits(state, t, i));
        } else {
          c.output<T>(t)[i] = static_cast<T>(p);
        }
        for (size_t k = 0; k < moments(); ++k) {
          c.output<T>((1 + k) * count + t)[i] = static_cast<T>(m[k]);
        }
      }
      if (copies != 0 && c.in[copies + t] != nullptr) round(c, t);
    }
    void round(const NaiveCall& c, size_t t) const {
      const bool bf16 = c.inputs[copies + t].dtype == DType::bf16;
      for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
        const auto p = static_cast<float>(c.output<T>(t)[i]);
        bf16 ? from_f32(p, static_cast<Bf16*>(c.in[copies + t])[i])
             : from_f32(p, static_cast<F16*>(c.in[copies + t])[i]);
      }
    }
    size_t moments() const { return static_cast<size_t>(formula.moments); }

    Formula formula;
    UpdateGroups groups;
    size_t count;
    size_t copies;  // index of the first copy among the inputs; 0: none
    UpdateRounding rounding;
  };
};

template <typename Formula>
std::unique_ptr<Kernel> make_naive_update(const KernelRequest& request) {
  // With narrow parameters, that of gradients and moments.
  const bool narrow = UpdateRounding(request.attributes).any();
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  const DType dtype = compute_dtype(narrow ? request.inputs.subspan(1 + count) : request.inputs);
  return make_naive<NaiveUpdateOf<Formula>::template Prepared>(request, dtype);
}

}  // namespace dltrain
