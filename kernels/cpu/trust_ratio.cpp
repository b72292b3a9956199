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
#include "shared/make_kernel.h"
#include "shared/trust_rules.h"
#include "shared/update_groups.h"
#include "shared/workspace_parts.h"

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

// One call: tensors in chunks, and sums of squares in the workspace.
class TrustCall {
 public:
  TrustCall(const UpdateGroups& groups, const TensorChunks& chunks, const Bindings& b)
      : groups_(groups),
        chunks_(chunks),
        tensors_(b.inputs.subspan(1)),
        sums_(static_cast<ChunkSums*>(b.workspace)) {}

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
  ChunkSums& sums(int64_t chunk) const { return sums_[chunk]; }
  // The norms of every tensor, after the sums of the chunks.
  ChunkSums* norms() const { return sums_ + chunks_.size(); }

  // Computes the norms of every tensor from the sums of its chunks.
  void add_chunks() const {
    const size_t count = groups_.group.size();
    std::fill_n(norms(), count, ChunkSums{0, 0});
    chunks_.for_each(0, chunks_.size(), [&](int64_t c, const TensorChunk& chunk) {
      norms()[chunk.tensor].parameter += sums_[c].parameter;
      norms()[chunk.tensor].other += sums_[c].other;
    });
    for (size_t t = 0; t < count; ++t) {
      norms()[t] = {std::sqrt(norms()[t].parameter), std::sqrt(norms()[t].other)};
    }
  }

 private:
  const UpdateGroups& groups_;
  const TensorChunks& chunks_;
  std::span<void* const> tensors_;
  ChunkSums* sums_;
};

// run(call, groups, factors of each tensor, state)
template <typename Factors, typename Run>
MadeKernel make_trust_update(const KernelRequest& request, const Run& run) {
  const UpdateGroups groups(request.attributes);
  const size_t tensors = groups.group.size();
  const TensorChunks chunks(request.inputs.subspan(1, tensors));
  WorkspaceParts parts;
  parts.add((static_cast<size_t>(chunks.size()) + tensors) * sizeof(ChunkSums));
  const size_t factors_at = parts.add(tensors * sizeof(Factors));
  return make_kernel(
      [groups, chunks, factors_at, run](const Bindings& b, Stream&) {
        const StepState& state = *b.input<StepState>(0);
        if (state.out.finite == 0) return;
        auto* factors = static_cast<std::byte*>(b.workspace) + factors_at;
        run(TrustCall(groups, chunks, b), groups, reinterpret_cast<Factors*>(factors), state);
      },
      parts.total());
}

// LARS: after the norms, SGD with scaled gradient and decay.
template <typename Rule>
MadeKernel make_lars(const KernelRequest& request, const Rule& rule) {
  using Factors = typename Rule::template Factors<float>;
  return make_trust_update<Factors>(request, [rule, trust = lars_trust(request.attributes)](
                                                 const TrustCall& call, const UpdateGroups& groups,
                                                 Factors* factors, const StepState& state) {
    const auto view = gradient_view<float>(state);
    call.each_chunk([&](int64_t c, const TensorChunk& chunk) {
      const auto roles = call.roles_of(chunk);
      call.sums(c) = {sum_of_squares(roles[0], chunk.count),
                      sum_of_squares(view, roles[1], chunk.count)};
    });
    call.add_chunks();
    for (size_t t = 0; t < groups.group.size(); ++t) {
      const GroupSettings& group = groups.of(t);
      const ChunkSums& norms = call.norms()[t];
      factors[t] = rule.template factors<float>(state, group);
      scale_by_trust(factors[t],
                     static_cast<float>(trust(norms.parameter, norms.other, group.weight_decay)));
    }
    const auto function = element_function(rule);
    call.each_chunk([&](int64_t, const TensorChunk& chunk) {
      function(factors[chunk.tensor], call.roles_of(chunk).data(), chunk.count);
    });
  });
}

}  // namespace

MadeKernel make_lars_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) return make_lars(request, SgdRule<Momentum::none>{});
  return make_lars(request, SgdRule<Momentum::plain>{momentum, 0});
}

MadeKernel make_lamb_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  using Factors = LambRule::Factors<float>;
  return make_trust_update<Factors>(request, [rule = lamb_rule(request.attributes)](
                                                 const TrustCall& call, const UpdateGroups& groups,
                                                 Factors* factors, const StepState& state) {
    const size_t tensors = groups.group.size();
    for (size_t t = 0; t < tensors; ++t) factors[t] = rule.factors<float>(state, groups.of(t));
    const auto moments = HWY_DYNAMIC_DISPATCH(lamb_moments);
    const auto step = HWY_DYNAMIC_DISPATCH(lamb_step);
    call.each_chunk([&](int64_t c, const TensorChunk& chunk) {
      const auto roles = call.roles_of(chunk);
      std::array<float, kTensorChunk> direction;
      moments(factors[chunk.tensor], roles.data(), direction.data(), chunk.count);
      call.sums(c) = {sum_of_squares(roles[0], chunk.count),
                      sum_of_squares(direction.data(), chunk.count)};
    });
    call.add_chunks();
    for (size_t t = 0; t < tensors; ++t) {
      const GroupSettings& group = groups.of(t);
      const ChunkSums& norms = call.norms()[t];
      const double trust = rule.trust(norms.parameter, norms.other, group.weight_decay);
      factors[t].step_size = static_cast<float>(state.in.learning_rate * group.lr_scale * trust);
    }
    call.each_chunk([&](int64_t, const TensorChunk& chunk) {
      step(factors[chunk.tensor], call.roles_of(chunk).data(), chunk.count);
    });
  });
}

}  // namespace dltrain
#endif
