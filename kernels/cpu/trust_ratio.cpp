// LARS and LAMB. Sums of squares of tensors are sums of fixed chunks in double, added in order, so
// that they do not depend on the number of threads.
#include <array>
#include <cmath>

#include "cpu/element_update.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/sum_of_squares.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"
#include "shared/trust_rules.h"
#include "shared/update_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/trust_ratio.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {

// Updates the moments and writes the update direction of each element to `direction`.
void lamb_moments(const LambRule::Factors<float>& f, float* const* t, float* direction,
                  int64_t count) {
  float *p = t[0], *g = t[1], *m = t[2], *v = t[3];
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float first = m[i], second = v[i];
    LambRule::moments(f, f.gradient(g[i]), first, second);
    m[i] = first;
    v[i] = second;
    direction[i] = LambRule::direction(f, p[i], first, second);
  }
}

void lamb_step(const LambRule::Factors<float>& f, float* const* t, int64_t count) {
  float *p = t[0], *m = t[1], *v = t[2];
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    p[i] = p[i] - f.step_size * LambRule::direction(f, p[i], m[i], v[i]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(lamb_moments);
HWY_EXPORT(lamb_step);

// Sums of squares of the parameter, and of the gradient or update direction.
struct SumPair {
  double parameter, other;
};

// A loop over chunks of the tensors of every role.
class TrustKernel : public Kernel {
 public:
  explicit TrustKernel(const KernelRequest& request)
      : groups_(request.attributes), chunks_(request.inputs.subspan(1, groups_.group.size())) {}

  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    tensors_.assign(bindings.inputs.begin() + 1, bindings.inputs.end());
  }

 protected:
  size_t count() const { return groups_.group.size(); }
  // Returns the start of the chunk in the tensor of each of the first roles.
  std::array<float*, 4> roles_of(const TensorChunk& chunk) const {
    std::array<float*, 4> roles{};
    for (size_t role = 0; role < roles.size() && role * count() < tensors_.size(); ++role) {
      roles[role] = static_cast<float*>(tensors_[role * count() + chunk.tensor]) + chunk.begin;
    }
    return roles;
  }
  template <typename F>
  void each_chunk(const F& f) const {
    parallel_for(chunks_.size(), chunks_.grain(16384),
                 [&](int64_t begin, int64_t end) { chunks_.for_each(begin, end, f); });
  }
  // Returns the norms of a tensor from the sums, its last role.
  SumPair norms(size_t tensor) const {
    const auto* sums = static_cast<const SumPair*>(tensors_[tensors_.size() - count() + tensor]);
    return {std::sqrt(sums->parameter), std::sqrt(sums->other)};
  }

  UpdateGroups groups_;
  TensorChunks chunks_;
  const StepState* state_ = nullptr;
  std::vector<void*> tensors_;
};

// An op whose last outputs are the sums of each tensor.
class TrustSums : public TrustKernel {
 public:
  using TrustKernel::TrustKernel;

  size_t workspace_bytes() const override {
    return static_cast<size_t>(chunks_.size()) * sizeof(SumPair);
  }
  void bind(const Bindings& bindings) override {
    TrustKernel::bind(bindings);
    const auto sums = bindings.outputs.last(count());
    sums_.assign(sums.begin(), sums.end());
    chunk_sums_ = static_cast<SumPair*>(bindings.workspace);
  }

 protected:
  // f(chunk) returns the sums of a chunk.
  template <typename F>
  void sum(const F& f) const {
    for (void* sums : sums_) *static_cast<SumPair*>(sums) = {0, 0};
    if (state_->out.finite == 0) return;
    each_chunk([&](int64_t c, const TensorChunk& chunk) { chunk_sums_[c] = f(chunk); });
    chunks_.for_each(0, chunks_.size(), [&](int64_t c, const TensorChunk& chunk) {
      auto* sums = static_cast<SumPair*>(sums_[chunk.tensor]);
      sums->parameter += chunk_sums_[c].parameter;
      sums->other += chunk_sums_[c].other;
    });
  }

 private:
  std::vector<void*> sums_;
  SumPair* chunk_sums_ = nullptr;
};

class LarsSums final : public TrustSums {
 public:
  using TrustSums::TrustSums;

  void run(Stream&) override {
    const auto view = gradient_view<float>(*state_);
    sum([&](const TensorChunk& chunk) -> SumPair {
      const auto roles = roles_of(chunk);
      return {sum_of_squares(roles[0], chunk.count), sum_of_squares(view, roles[1], chunk.count)};
    });
  }
};

// SGD with scaled gradient and decay.
template <typename Rule>
class LarsUpdate final : public TrustKernel {
 public:
  LarsUpdate(const KernelRequest& request, const Rule& rule)
      : TrustKernel(request),
        rule_(rule),
        trust_(lars_trust(request.attributes)),
        factors_(count()) {}

  void run(Stream&) override {
    if (state_->out.finite == 0) return;
    for (size_t t = 0; t < factors_.size(); ++t) {
      const GroupSettings& group = groups_.of(t);
      const SumPair norm = norms(t);
      factors_[t] = rule_.template factors<float>(*state_, group);
      scale_by_trust(factors_[t],
                     static_cast<float>(trust_(norm.parameter, norm.other, group.weight_decay)));
    }
    const auto function = element_function(rule_);
    each_chunk([&](int64_t, const TensorChunk& chunk) {
      function(factors_[chunk.tensor], roles_of(chunk).data(), chunk.count);
    });
  }

 private:
  Rule rule_;
  LarsTrust trust_;
  std::vector<typename Rule::template Factors<float>> factors_;  // of each tensor, in this step
};

using LambFactors = LambRule::Factors<float>;

class LambMoments final : public TrustSums {
 public:
  explicit LambMoments(const KernelRequest& request)
      : TrustSums(request), rule_(lamb_rule(request.attributes)), factors_(count()) {}

  void run(Stream&) override {
    for (size_t t = 0; t < factors_.size(); ++t) {
      factors_[t] = rule_.factors<float>(*state_, groups_.of(t));
    }
    const auto moments = HWY_DYNAMIC_DISPATCH(lamb_moments);
    sum([&](const TensorChunk& chunk) -> SumPair {
      const auto roles = roles_of(chunk);
      std::array<float, kTensorChunk> direction;
      moments(factors_[chunk.tensor], roles.data(), direction.data(), chunk.count);
      return {sum_of_squares(roles[0], chunk.count), sum_of_squares(direction.data(), chunk.count)};
    });
  }

 private:
  LambRule rule_;
  std::vector<LambFactors> factors_;  // of each tensor, in this step
};

class LambUpdate final : public TrustKernel {
 public:
  explicit LambUpdate(const KernelRequest& request)
      : TrustKernel(request), rule_(lamb_rule(request.attributes)), factors_(count()) {}

  void run(Stream&) override {
    if (state_->out.finite == 0) return;
    for (size_t t = 0; t < factors_.size(); ++t) {
      const GroupSettings& group = groups_.of(t);
      const SumPair norm = norms(t);
      const double trust = rule_.trust(norm.parameter, norm.other, group.weight_decay);
      factors_[t] = rule_.factors<float>(*state_, group);
      factors_[t].step_size = static_cast<float>(state_->in.learning_rate * group.lr_scale * trust);
    }
    const auto step = HWY_DYNAMIC_DISPATCH(lamb_step);
    each_chunk([&](int64_t, const TensorChunk& chunk) {
      step(factors_[chunk.tensor], roles_of(chunk).data(), chunk.count);
    });
  }

 private:
  LambRule rule_;
  std::vector<LambFactors> factors_;  // of each tensor, in this step
};

// Returns true if all tensors but the sums are f32.
bool are_tensors_f32(const KernelRequest& request) {
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  KernelRequest tensors = request;
  if (request.inputs.back().dtype == DType::f64) {
    tensors.inputs = request.inputs.first(request.inputs.size() - count);
  }
  tensors.outputs = request.outputs.first(request.outputs.size() -
                                          (request.outputs.back().dtype == DType::f64 ? count : 0));
  return computes_in_f32(tensors);
}

}  // namespace

MadeKernel make_lars_sums(const KernelRequest& request) {
  if (!are_tensors_f32(request)) return nullptr;
  return std::make_unique<LarsSums>(request);
}

MadeKernel make_lars_update(const KernelRequest& request) {
  if (!are_tensors_f32(request)) return nullptr;
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) {
    using Plain = SgdRule<Momentum::none>;
    return std::make_unique<LarsUpdate<Plain>>(request, Plain{});
  }
  using WithMomentum = SgdRule<Momentum::plain>;
  return std::make_unique<LarsUpdate<WithMomentum>>(request, WithMomentum{momentum, 0});
}

MadeKernel make_lamb_moments(const KernelRequest& request) {
  if (!are_tensors_f32(request)) return nullptr;
  return std::make_unique<LambMoments>(request);
}

MadeKernel make_lamb_update(const KernelRequest& request) {
  if (!are_tensors_f32(request)) return nullptr;
  return std::make_unique<LambUpdate>(request);
}

}  // namespace dltrain
#endif
