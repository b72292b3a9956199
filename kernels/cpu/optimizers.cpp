// sgd_update and adamw_update: one pass over all parameters of a group, cut into chunks over the
// threads; every element is read and written once. The arithmetic is that of shared/update_rules.h.
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"
#include "shared/update_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/optimizers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// Whole vectors by `vectors(i)`; returns where the rest begins.
template <typename F>
HWY_INLINE int64_t each_vector(int64_t count, const F& vectors) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) vectors(i);
  return i;
}

void sgd(const SgdFactors<float>& f, float* p, const float* g, int64_t count) {
  const Tag d;
  const Vec factor = hn::Set(d, f.gradient_factor), decay = hn::Set(d, f.weight_decay);
  const Vec rate = hn::Set(d, f.learning_rate);
  int64_t i = each_vector(count, [&](int64_t at) HWY_ATTR {
    const Vec x = hn::LoadU(d, p + at);
    const Vec step = hn::MulAdd(hn::LoadU(d, g + at), factor, hn::Mul(decay, x));
    hn::StoreU(hn::NegMulAdd(rate, step, x), d, p + at);
  });
  for (; i < count; ++i) sgd_element(f, p[i], g[i]);
}

template <bool nesterov>
void sgd_momentum_impl(const SgdFactors<float>& f, float* p, const float* g, float* m,
                       int64_t count) {
  const Tag d;
  const Vec factor = hn::Set(d, f.gradient_factor), decay = hn::Set(d, f.weight_decay);
  const Vec rate = hn::Set(d, f.learning_rate), momentum = hn::Set(d, f.momentum);
  int64_t i = each_vector(count, [&](int64_t at) HWY_ATTR {
    const Vec x = hn::LoadU(d, p + at);
    const Vec gradient = hn::MulAdd(hn::LoadU(d, g + at), factor, hn::Mul(decay, x));
    const Vec moment = hn::MulAdd(momentum, hn::LoadU(d, m + at), gradient);
    hn::StoreU(moment, d, m + at);
    const Vec step = nesterov ? hn::MulAdd(momentum, moment, gradient) : moment;
    hn::StoreU(hn::NegMulAdd(rate, step, x), d, p + at);
  });
  for (; i < count; ++i) sgd_momentum_element<nesterov>(f, p[i], g[i], m[i]);
}

void sgd_momentum(const SgdFactors<float>& f, bool nesterov, float* p, const float* g, float* m,
                  int64_t count) {
  if (nesterov) {
    sgd_momentum_impl<true>(f, p, g, m, count);
  } else {
    sgd_momentum_impl<false>(f, p, g, m, count);
  }
}

void adamw(const AdamwFactors<float>& f, float* p, const float* g, float* m, float* v,
           int64_t count) {
  const Tag d;
  const Vec factor = hn::Set(d, f.gradient_factor), keep = hn::Set(d, f.keep);
  const Vec beta1 = hn::Set(d, f.beta1), rest1 = hn::Set(d, f.one_less_beta1);
  const Vec beta2 = hn::Set(d, f.beta2), rest2 = hn::Set(d, f.one_less_beta2);
  const Vec step_size = hn::Set(d, f.step_size), v_scale = hn::Set(d, f.v_scale);
  const Vec epsilon = hn::Set(d, f.epsilon);
  int64_t i = each_vector(count, [&](int64_t at) HWY_ATTR {
    const Vec x = hn::LoadU(d, p + at), gradient = hn::Mul(hn::LoadU(d, g + at), factor);
    const Vec first = hn::MulAdd(beta1, hn::LoadU(d, m + at), hn::Mul(rest1, gradient));
    const Vec second =
        hn::MulAdd(beta2, hn::LoadU(d, v + at), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    hn::StoreU(first, d, m + at);
    hn::StoreU(second, d, v + at);
    const Vec divisor = hn::MulAdd(hn::Sqrt(second), v_scale, epsilon);
    const Vec step = hn::Div(hn::Mul(step_size, first), divisor);
    hn::StoreU(hn::MulSub(keep, x, step), d, p + at);
  });
  for (; i < count; ++i) adamw_element(f, p[i], g[i], m[i], v[i]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(sgd);
HWY_EXPORT(sgd_momentum);
HWY_EXPORT(adamw);

// Inputs: step_state, then `count` tensors for each role (parameters, gradients, moments…).
class Update : public Kernel {
 public:
  explicit Update(const KernelRequest& request)
      : count_(static_cast<size_t>(request.attributes.integer("count"))),
        chunks_(request.inputs.subspan(1, count_)) {}

  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    tensors_.assign(bindings.inputs.begin() + 1, bindings.inputs.end());
  }

 protected:
  float* tensor(size_t role, const TensorChunk& chunk) const {
    return static_cast<float*>(tensors_[role * count_ + chunk.tensor]) + chunk.begin;
  }
  const StepState& state() const { return *state_; }

  template <typename F>
  void for_chunks(const F& f) const {
    if (state_->out.finite == 0) return;
    parallel_for(chunks_.size(), 1, [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t, const TensorChunk& chunk) { f(chunk); });
    });
  }

 private:
  size_t count_;
  TensorChunks chunks_;
  const StepState* state_ = nullptr;
  std::vector<void*> tensors_;
};

class SgdUpdate final : public Update {
 public:
  explicit SgdUpdate(const KernelRequest& request)
      : Update(request),
        attributes_{request.attributes.number("momentum"),
                    request.attributes.number("weight_decay"),
                    request.attributes.boolean("nesterov")} {}

  void run(Stream&) override {
    const auto f = sgd_factors<float>(attributes_, state());
    if (attributes_.momentum == 0) {
      const auto function = HWY_DYNAMIC_DISPATCH(sgd);
      for_chunks([&](const TensorChunk& c) { function(f, tensor(0, c), tensor(1, c), c.count); });
      return;
    }
    const auto function = HWY_DYNAMIC_DISPATCH(sgd_momentum);
    for_chunks([&](const TensorChunk& c) {
      function(f, attributes_.nesterov, tensor(0, c), tensor(1, c), tensor(2, c), c.count);
    });
  }

 private:
  SgdAttributes attributes_;
};

class AdamwUpdate final : public Update {
 public:
  explicit AdamwUpdate(const KernelRequest& request)
      : Update(request),
        attributes_{request.attributes.number("beta1", 0.9),
                    request.attributes.number("beta2", 0.999),
                    request.attributes.number("epsilon", 1e-8),
                    request.attributes.number("weight_decay", 0)} {}

  void run(Stream&) override {
    const auto f = adamw_factors<float>(attributes_, state());
    const auto function = HWY_DYNAMIC_DISPATCH(adamw);
    for_chunks([&](const TensorChunk& c) {
      function(f, tensor(0, c), tensor(1, c), tensor(2, c), tensor(3, c), c.count);
    });
  }

 private:
  AdamwAttributes attributes_;
};

bool all_f32(std::span<const TensorSpec> specs) {
  return std::all_of(specs.begin(), specs.end(),
                     [](const TensorSpec& spec) { return spec.dtype == DType::f32; });
}

}  // namespace

MadeKernel make_sgd_update(const KernelRequest& request) {
  if (!all_f32(request.inputs.subspan(1))) return nullptr;
  return std::make_unique<SgdUpdate>(request);
}

MadeKernel make_adamw_update(const KernelRequest& request) {
  if (!all_f32(request.inputs.subspan(1))) return nullptr;
  return std::make_unique<AdamwUpdate>(request);
}

}  // namespace dltrain
#endif
