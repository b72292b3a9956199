// LARS and LAMB. Sums of squares of tensors are sums of fixed chunks in double, added in order, so
// that they do not depend on the number of threads.
#include <array>
#include <cmath>

#include "cpu/element_update.h"
#include "cpu/makers.h"
#include "cpu/sum_of_squares.h"
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
namespace dltrain::HWY_NAMESPACE {
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
}  // namespace dltrain::HWY_NAMESPACE
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

// One call: the tensors of every role in chunks.
class TrustCall {
 public:
  TrustCall(const UpdateGroups& groups, const TensorChunks& chunks, const Bindings& bindings)
      : groups_(groups), chunks_(chunks), bindings_(bindings) {}

  const StepState& state() const { return *bindings_.input<StepState>(0); }
  size_t count() const { return groups_.group.size(); }
  const GroupSettings& group(size_t tensor) const { return groups_.of(tensor); }
  // Returns the start of the chunk in the tensor of each of the first roles.
  std::array<float*, 4> roles_of(const TensorChunk& chunk) const {
    std::array<float*, 4> roles{};
    for (size_t role = 0; role < roles.size(); ++role) {
      const size_t i = 1 + role * count() + chunk.tensor;
      if (i >= bindings_.inputs.size()) break;
      roles[role] = static_cast<float*>(bindings_.inputs[i]) + chunk.begin;
    }
    return roles;
  }
  template <typename F>
  void each_chunk(const F& f) const {
    chunks_.parallel(16384, f);
  }
  // Returns the norms of a tensor from the sums, the last role of the inputs.
  SumPair norms(size_t tensor) const {
    const void* sums = bindings_.inputs[bindings_.inputs.size() - count() + tensor];
    const auto& [parameter, other] = *static_cast<const SumPair*>(sums);
    return {std::sqrt(parameter), std::sqrt(other)};
  }
  // Writes the sums of each tensor, the last role of the outputs. f(chunk) returns those of a
  // chunk.
  template <typename F>
  void sum(const F& f) const {
    const std::span<void* const> sums = bindings_.outputs.last(count());
    for (void* of : sums) *static_cast<SumPair*>(of) = {0, 0};
    if (state().out.finite == 0) return;
    auto* of_chunks = static_cast<SumPair*>(bindings_.workspace);
    each_chunk([&](int64_t c, const TensorChunk& chunk) { of_chunks[c] = f(chunk); });
    chunks_.for_each(0, chunks_.size(), [&](int64_t c, const TensorChunk& chunk) {
      auto* of = static_cast<SumPair*>(sums[chunk.tensor]);
      of->parameter += of_chunks[c].parameter;
      of->other += of_chunks[c].other;
    });
  }

 private:
  const UpdateGroups& groups_;
  const TensorChunks& chunks_;
  const Bindings& bindings_;
};

// run(call, factors of each tensor)
template <typename Factors, typename Run>
std::unique_ptr<Kernel> make_trust_kernel(const KernelRequest& request, const Run& run) {
  if (request.inputs[1].dtype != DType::f32) return nullptr;
  const UpdateGroups groups(request.attributes);
  const size_t tensors = groups.group.size();
  const TensorChunks chunks(request.inputs.subspan(1, tensors));
  WorkspaceParts parts;
  parts.add(static_cast<size_t>(chunks.size()) * sizeof(SumPair));
  const size_t factors_at = parts.add(tensors * sizeof(Factors));
  return make_kernel(
      [groups, chunks, factors_at, run](const Bindings& b, Stream&) {
        auto* factors = static_cast<std::byte*>(b.workspace) + factors_at;
        run(TrustCall(groups, chunks, b), reinterpret_cast<Factors*>(factors));
      },
      parts.total());
}

// SGD with scaled gradient and decay.
template <typename Rule>
std::unique_ptr<Kernel> make_lars(const KernelRequest& request, const Rule& rule) {
  using Factors = typename Rule::template Factors<float>;
  return make_trust_kernel<Factors>(request, [rule, trust = lars_trust(request.attributes)](
                                                 const TrustCall& call, Factors* factors) {
    if (call.state().out.finite == 0) return;
    for (size_t t = 0; t < call.count(); ++t) {
      const GroupSettings& group = call.group(t);
      const SumPair norm = call.norms(t);
      factors[t] = rule.template factors<float>(call.state(), group);
      scale_by_trust(factors[t],
                     static_cast<float>(trust(norm.parameter, norm.other, group.weight_decay)));
    }
    const auto function = element_function(rule);
    call.each_chunk([&](int64_t, const TensorChunk& chunk) {
      function(factors[chunk.tensor], call.roles_of(chunk).data(), chunk.count);
    });
  });
}

using LambFactors = LambRule::Factors<float>;

}  // namespace

std::unique_ptr<Kernel> make_lars_sums(const KernelRequest& request) {
  return make_trust_kernel<char>(request, [](const TrustCall& call, char*) {
    const auto view = gradient_view<float>(call.state());
    call.sum([&](const TensorChunk& chunk) -> SumPair {
      const auto roles = call.roles_of(chunk);
      return {sum_of_squares(roles[0], chunk.count), sum_of_squares(view, roles[1], chunk.count)};
    });
  });
}

std::unique_ptr<Kernel> make_lars_update(const KernelRequest& request) {
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) return make_lars(request, SgdRule<Momentum::none>{});
  return make_lars(request, SgdRule<Momentum::plain>{momentum, 0});
}

std::unique_ptr<Kernel> make_lamb_moments(const KernelRequest& request) {
  return make_trust_kernel<LambFactors>(request, [rule = lamb_rule(request.attributes)](
                                                     const TrustCall& call, LambFactors* factors) {
    for (size_t t = 0; t < call.count(); ++t) {
      factors[t] = rule.factors<float>(call.state(), call.group(t));
    }
    const auto moments = HWY_DYNAMIC_DISPATCH(lamb_moments);
    call.sum([&](const TensorChunk& chunk) -> SumPair {
      const auto roles = call.roles_of(chunk);
      std::array<float, kTensorChunk> direction;
      moments(factors[chunk.tensor], roles.data(), direction.data(), chunk.count);
      return {sum_of_squares(roles[0], chunk.count), sum_of_squares(direction.data(), chunk.count)};
    });
  });
}

std::unique_ptr<Kernel> make_lamb_update(const KernelRequest& request) {
  return make_trust_kernel<LambFactors>(
      request, [rule = lamb_rule(request.attributes)](const TrustCall& call, LambFactors* factors) {
        if (call.state().out.finite == 0) return;
        for (size_t t = 0; t < call.count(); ++t) {
          const GroupSettings& group = call.group(t);
          const SumPair norm = call.norms(t);
          const double trust = rule.trust(norm.parameter, norm.other, group.weight_decay);
          factors[t] = rule.factors<float>(call.state(), group);
          factors[t].step_size =
              static_cast<float>(call.state().in.learning_rate * group.lr_scale * trust);
        }
        const auto step = HWY_DYNAMIC_DISPATCH(lamb_step);
        call.each_chunk([&](int64_t, const TensorChunk& chunk) {
          step(factors[chunk.tensor], call.roles_of(chunk).data(), chunk.count);
        });
      });
}

}  // namespace dltrain
#endif
