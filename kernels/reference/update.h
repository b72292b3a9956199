// The loop of the naive optimizers over all elements of all tensors, in double, with the settings
// of each tensor's group. The update of one element is in the file of the op. Moments in 8 bits are
// widened before and narrowed after it.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/step_state.h"
#include "ops/update.h"
#include "reference/call.h"
#include "shared/update_groups.h"
#include "tensor/block_codes.h"
#include "tensor/low_precision.h"
#include "tensor/random_rounding.h"

namespace dltrain {

// Inputs of an update formula besides the element itself.
struct NaiveUpdate {
  double lr, weight_decay;  // of the tensor's group
  double updates;           // applied so far, this one included
};

// The k-th moment of tensor t, in double.
template <typename T>
class NaiveMoment {
 public:
  NaiveMoment(const NaiveCall& call, size_t moments, size_t k, size_t t)
      : c_(call), values_(static_cast<size_t>(call.inputs[1 + t].shape.elements())) {
    const auto count = static_cast<size_t>(c_.attributes.integer("count", 1));
    at_ = c_.in[1 + (2 + k) * count + t];
    if (c_.attributes.has("block")) {
      scales_ = static_cast<T*>(c_.in[1 + (2 + moments + k) * count + t]);
      codes_ = dynamic_codes(k == 0);
      has_sign_ = k == 0;
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = scales_ == nullptr ? static_cast<const T*>(at_)[i]
                                      : double{codes_[static_cast<const uint8_t*>(at_)[i]]} *
                                            scales_[i / kMomentBlock];
    }
  }
  double& operator[](int64_t i) { return values_[static_cast<size_t>(i)]; }

  void write() {
    for (size_t i = 0; scales_ == nullptr && i < values_.size(); ++i) {
      static_cast<T*>(at_)[i] = static_cast<T>(values_[i]);
    }
    for (size_t b = 0; scales_ != nullptr && b < values_.size(); b += kMomentBlock) {
      const size_t end = std::min(b + kMomentBlock, values_.size());
      double most = 0;
      for (size_t i = b; i < end; ++i) most = std::max(most, std::abs(values_[i]));
      scales_[b / kMomentBlock] = static_cast<T>(most);
      for (size_t i = b; i < end; ++i) {
        const auto share = static_cast<float>(most > 0 ? values_[i] / most : 0);
        const uint8_t code = nearest_code(codes_, share);
        // Without a sign the code of 0 is that of 0 alone (shared/moment_codes.h).
        static_cast<uint8_t*>(at_)[i] = !has_sign_ && code == 0 && share > 0 ? 1 : code;
      }
    }
  }

 private:
  const NaiveCall& c_;
  void* at_;
  T* scales_ = nullptr;  // nullptr: not in 8 bits
  std::array<float, 256> codes_{};
  bool has_sign_ = true;
  std::vector<double> values_;
};

// Updates all tensors with `Formula(const Attributes&)`, which has `int moments` and
// `void element(const NaiveUpdate& u, double& p, double g, double* m) const`.
template <typename Formula, typename T>
void update_tensors(const NaiveCall& c) {
  const Formula formula(c.attributes);
  const UpdateGroups groups(c.attributes);
  const UpdateRounding rounding(c.attributes);
  const StepState& state = *c.input<StepState>(0);
  if (state.out.finite == 0) return;
  const size_t count = groups.group.size(), moments = static_cast<size_t>(formula.moments);
  const size_t copies = first_copy(c.attributes, c.inputs.size());  // 0: none
  const double limit = state.in.max_grad_value > 0 ? state.in.max_grad_value : INFINITY;
  for (size_t t = 0; t < count; ++t) {
    const NaiveUpdate u{state.in.learning_rate * groups.of(t).lr_scale, groups.of(t).weight_decay,
                        static_cast<double>(state.out.updates)};
    const bool copied = copies != 0 && c.in[copies + t] != nullptr;
    double m[3];
    std::vector<NaiveMoment<T>> stored;
    for (size_t k = 0; k < moments; ++k) stored.emplace_back(c, moments, k, t);
    for (int64_t i = 0; i < c.inputs[1 + t].shape.elements(); ++i) {
      const double gradient = c.input<T>(1 + count + t)[i] * state.out.gradient_factor;
      double p = c.element(1 + t, i);
      for (size_t k = 0; k < moments; ++k) m[k] = stored[k][i];
      formula.element(u, p, std::clamp(gradient, -limit, limit), m);
      for (size_t k = 0; k < moments; ++k) stored[k][i] = m[k];
      if (rounding.any()) {
        c.output<Bf16>(t)[i] = round_at_random(static_cast<float>(p), rounding.bits(state, t, i));
        continue;
      }
      c.output<T>(t)[i] = static_cast<T>(p);
      if (!copied) continue;
      const auto rounded = static_cast<float>(c.output<T>(t)[i]);
      c.inputs[copies + t].dtype == DType::bf16
          ? from_f32(rounded, static_cast<Bf16*>(c.in[copies + t])[i])
          : from_f32(rounded, static_cast<F16*>(c.in[copies + t])[i]);
    }
    for (NaiveMoment<T>& moment : stored) moment.write();
  }
}

template <typename Formula>
std::unique_ptr<Kernel> make_naive_update(const KernelRequest& request) {
  // Narrow parameters are bf16: the dtype of the gradients and moments counts then.
  const bool narrow = UpdateRounding(request.attributes).any();
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  const DType dtype = compute_dtype(narrow ? request.inputs.subspan(1 + count) : request.inputs);
  return make_naive(request, dtype,
                    []<typename T>(const NaiveCall& c, T) { update_tensors<Formula, T>(c); });
}

}  // namespace dltrain
