// lars_update and lamb_update. First computes norms of tensors: sums of fixed chunks in double,
// added in order, so that they do not depend on the number of threads. Then updates every chunk.
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
  float *p = t[0], *m = t[2], *v = t[3];
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

// Two sums of squares per chunk: of the parameter, and of the gradient or update direction.
struct ChunkSums {
  double parameter, other;
};

class TrustUpdate : public Kernel {
 public:
  explicit TrustUpdate(const KernelRequest& request)
      : groups_(request.attributes),
        chunks_(request.inputs.subspan(1, groups_.group.size())),
        norms_(groups_.group.size()) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(chunks_.size()) * sizeof(ChunkSums);
  }
  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    tensors_.assign(bindings.inputs.begin() + 1, bindings.inputs.end());
    sums_ = static_cast<ChunkSums*>(bindings.workspace);
  }

 protected:
  // Returns the start of the chunk in the tensor of each role.
  std::array<float*, 4> roles_of(const TensorChunk& chunk) const {
    std::array<float*, 4> roles{};
    const size_t count = groups_.group.size();
    for (size_t role = 0; role * count < tensors_.size(); ++role) {
      roles[role] = static_cast<float*>(tensors_[role * count + chunk.tensor]) + chunk.begin;
    }
    return roles;
  }
  template <typename F>
  void each_chunk(const F& f) const {
    parallel_for(chunks_.size(), chunks_.grain(16384),
                 [&](int64_t begin, int64_t end) { chunks_.for_each(begin, end, f); });
  }
  // Computes the norms of every tensor from the sums of its chunks.
  void add_chunks() {
    for (ChunkSums& norm : norms_) norm = {0, 0};
    chunks_.for_each(0, chunks_.size(), [&](int64_t c, const TensorChunk& chunk) {
      norms_[chunk.tensor].parameter += sums_[c].parameter;
      norms_[chunk.tensor].other += sums_[c].other;
    });
    for (ChunkSums& norm : norms_) norm = {std::sqrt(norm.parameter), std::sqrt(norm.other)};
  }

  UpdateGroups groups_;
  TensorChunks chunks_;
  std::vector<ChunkSums> norms_;  // of each tensor
  const StepState* state_ = nullptr;
  std::vector<void*> tensors_;
  ChunkSums* sums_ = nullptr;
};

// LARS: after the norms, SGD with scaled gradient and decay.
template <typename Rule>
class LarsUpdate final : public TrustUpdate {
 public:
  LarsUpdate(const KernelRequest& request, const Rule& rule)
      : TrustUpdate(request),
        rule_(rule),
        trust_(lars_trust(request.attributes)),
        factors_(groups_.group.size()) {}

  void run(Stream&) override {
    if (state_->out.finite == 0) return;
    const auto view = gradient_view<float>(*state_);
    each_chunk([&](int64_t c, const TensorChunk& chunk) {
      const auto roles = roles_of(chunk);
      sums_[c] = {sum_of_squares(roles[0], chunk.count),
                  sum_of_squares(view, roles[1], chunk.count)};
    });
    add_chunks();
    for (size_t t = 0; t < factors_.size(); ++t) {
      const GroupSettings& group = groups_.of(t);
      factors_[t] = rule_.template factors<float>(*state_, group);
      scale_by_trust(factors_[t], static_cast<float>(trust_(norms_[t].parameter, norms_[t].other,
                                                            group.weight_decay)));
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

class LambUpdate final : public TrustUpdate {
 public:
  explicit LambUpdate(const KernelRequest& request)
      : TrustUpdate(request),
        rule_(lamb_rule(request.attributes)),
        factors_(groups_.group.size()) {}

  void run(Stream&) override {
    if (state_->out.finite == 0) return;
    for (size_t t = 0; t < factors_.size(); ++t) {
      factors_[t] = rule_.factors<float>(*state_, groups_.of(t));
    }
    const auto moments = HWY_DYNAMIC_DISPATCH(lamb_moments);
    const auto step = HWY_DYNAMIC_DISPATCH(lamb_step);
    each_chunk([&](int64_t c, const TensorChunk& chunk) {
      const auto roles = roles_of(chunk);
      std::array<float, kTensorChunk> direction;
      moments(factors_[chunk.tensor], roles.data(), direction.data(), chunk.count);
      sums_[c] = {sum_of_squares(roles[0], chunk.count),
                  sum_of_squares(direction.data(), chunk.count)};
    });
    add_chunks();
    for (size_t t = 0; t < factors_.size(); ++t) {
      const GroupSettings& group = groups_.of(t);
      const double trust = rule_.trust(norms_[t].parameter, norms_[t].other, group.weight_decay);
      factors_[t].step_size = static_cast<float>(state_->in.learning_rate * group.lr_scale * trust);
    }
    each_chunk([&](int64_t, const TensorChunk& chunk) {
      step(factors_[chunk.tensor], roles_of(chunk).data(), chunk.count);
    });
  }

 private:
  LambRule rule_;
  std::vector<LambRule::Factors<float>> factors_;  // of each tensor, in this step
};

}  // namespace

MadeKernel make_lars_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) {
    using Plain = SgdRule<Momentum::none>;
    return std::make_unique<LarsUpdate<Plain>>(request, Plain{});
  }
  using WithMomentum = SgdRule<Momentum::plain>;
  return std::make_unique<LarsUpdate<WithMomentum>>(request, WithMomentum{momentum, 0});
}

MadeKernel make_lamb_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<LambUpdate>(request);
}

}  // namespace dltrain
#endif
