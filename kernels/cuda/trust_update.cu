// The optimizers that scale the step of a whole tensor by norms (LARS, LAMB;
// lib/ops/update_adaptive.cpp): a pass over all chunks computes sums of squares, one block per
// tensor adds them in order, and a second pass updates. Roles of the table: parameter, gradient,
// moments. The arithmetic is that of shared/trust_rules.h, which the CPU kernels use too.
#include <utility>
#include <vector>

#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/update_table.h"
#include "shared/make_kernel.h"
#include "shared/trust_rules.h"

namespace dltrain {
namespace {

// The range of a tensor's chunks in the table.
struct TensorChunks {
  int64_t first, count;
};

// For the parameter and for the gradient or direction: sums of squares of a chunk, norms of a
// tensor.
struct NormPair {
  double parameter, other;
};

struct TrustTables {
  UpdateTable chunks;
  const TensorChunks* tensors = nullptr;  // device memory
  int64_t tensor_count = 0;
  NormPair* sums = nullptr;   // scratch: of each chunk
  NormPair* norms = nullptr;  // scratch: of each tensor
};

constexpr int kBlock = 256;

template <typename T>
__device__ double squared(T x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

__device__ void put_sums(double parameter, double other, NormPair* sums) {
  parameter = block_sum(parameter);
  other = block_sum(other);
  if (threadIdx.x == 0) sums[blockIdx.x] = {parameter, other};
}

template <typename T>
__global__ void lars_sums_kernel(const UpdateChunk* chunks, const StepState* state,
                                 NormPair* sums) {
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  const T *p = static_cast<const T*>(chunk.role[0]), *g = static_cast<const T*>(chunk.role[1]);
  const auto view = gradient_view<T>(*state);
  double parameter = 0, other = 0;
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    parameter += squared(p[i]);
    other += squared(view(g[i]));
  }
  put_sums(parameter, other, sums);
}

// Updates the moments and computes the squares of the resulting directions.
template <typename T>
__global__ void lamb_moments_kernel(const UpdateChunk* chunks, LambRule rule,
                                    const StepState* state, NormPair* sums) {
  using Factors = typename LambRule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) shared = rule.template factors<T>(*state, chunk.group);
  __syncthreads();
  const Factors f = shared;
  const T *p = static_cast<const T*>(chunk.role[0]), *g = static_cast<const T*>(chunk.role[1]);
  T *m = static_cast<T*>(chunk.role[2]), *v = static_cast<T*>(chunk.role[3]);
  double parameter = 0, other = 0;
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    T first = m[i], second = v[i];
    LambRule::moments(f, f.gradient(g[i]), first, second);
    m[i] = first;
    v[i] = second;
    parameter += squared(p[i]);
    other += squared(LambRule::direction(f, p[i], first, second));
  }
  put_sums(parameter, other, sums);
}

// One block per tensor.
__global__ void tensor_norms_kernel(const TensorChunks* tensors, const NormPair* sums,
                                    const StepState* state, NormPair* norms) {
  if (state->out.finite == 0) return;
  const TensorChunks tensor = tensors[blockIdx.x];
  double parameter = 0, other = 0;
  for (int64_t i = threadIdx.x; i < tensor.count; i += kBlock) {
    parameter += sums[tensor.first + i].parameter;
    other += sums[tensor.first + i].other;
  }
  parameter = block_sum(parameter);
  other = block_sum(other);
  if (threadIdx.x == 0) norms[blockIdx.x] = {std::sqrt(parameter), std::sqrt(other)};
}

template <typename T, typename Rule>
__global__ void lars_step_kernel(const UpdateChunk* chunks, Rule rule, LarsTrust trust,
                                 const StepState* state, const NormPair* norms) {
  using Factors = typename Rule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const NormPair norm = norms[chunk.tensor];
    shared = rule.template factors<T>(*state, chunk.group);
    scale_by_trust(shared,
                   static_cast<T>(trust(norm.parameter, norm.other, chunk.group.weight_decay)));
  }
  __syncthreads();
  const Factors f = shared;
  T* tensors[Rule::kMoments + 2];
  for (int k = 0; k < Rule::kMoments + 2; ++k) tensors[k] = static_cast<T*>(chunk.role[k]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) update_element<Rule>(f, tensors, i);
}

template <typename T>
__global__ void lamb_step_kernel(const UpdateChunk* chunks, LambRule rule, const StepState* state,
                                 const NormPair* norms) {
  using Factors = typename LambRule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const NormPair norm = norms[chunk.tensor];
    const double trust = rule.trust(norm.parameter, norm.other, chunk.group.weight_decay);
    shared = rule.template factors<T>(*state, chunk.group);
    shared.step_size = static_cast<T>(state->in.learning_rate * chunk.group.lr_scale * trust);
  }
  __syncthreads();
  const Factors f = shared;
  T* p = static_cast<T*>(chunk.role[0]);
  const T *m = static_cast<const T*>(chunk.role[2]), *v = static_cast<const T*>(chunk.role[3]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    p[i] = p[i] - f.step_size * LambRule::direction(f, p[i], m[i], v[i]);
  }
}

void norms_of_tensors(const TrustTables& t, const StepState* state, CudaStream stream) {
  DLTRAIN_LAUNCH(tensor_norms_kernel, static_cast<unsigned>(t.tensor_count), kBlock, stream,
                 t.tensors, t.sums, state, t.norms);
}

template <typename T, typename Rule>
void lars_typed(const TrustTables& t, const Rule& rule, const LarsTrust& trust,
                const StepState* state, CudaStream stream) {
  const auto grid = static_cast<unsigned>(t.chunks.count);
  DLTRAIN_LAUNCH(lars_sums_kernel<T>, grid, kBlock, stream, t.chunks.chunks, state, t.sums);
  norms_of_tensors(t, state, stream);
  DLTRAIN_LAUNCH((lars_step_kernel<T, Rule>), grid, kBlock, stream, t.chunks.chunks, rule, trust,
                 state, t.norms);
}

template <typename T>
void lamb_typed(const TrustTables& t, const LambRule& rule, const StepState* state,
                CudaStream stream) {
  const auto grid = static_cast<unsigned>(t.chunks.count);
  DLTRAIN_LAUNCH(lamb_moments_kernel<T>, grid, kBlock, stream, t.chunks.chunks, rule, state,
                 t.sums);
  norms_of_tensors(t, state, stream);
  DLTRAIN_LAUNCH(lamb_step_kernel<T>, grid, kBlock, stream, t.chunks.chunks, rule, state, t.norms);
}

struct BoundTrustTables {
  TrustTables tables;
  DeviceTable<UpdateChunk> chunks;
  DeviceTable<TensorChunks> tensors;
};

// run(tables, state, stream).
template <typename Run>
std::unique_ptr<Kernel> make_trust_update(const KernelRequest& request, size_t roles,
                                          const Run& run) {
  const ChunkTable chunks(request, 1, roles);
  const auto count = static_cast<size_t>(chunks.chunks());
  return make_prepared_kernel(
      [&device = request.device, chunks,
       groups = UpdateGroups(request.attributes)](const Bindings& b) {
        std::vector<TensorChunks> tensors;
        int64_t first = 0;
        for (size_t i = 0; i < chunks.tensors(); ++i) {
          tensors.push_back({first, chunks.chunks_of(i)});
          first += tensors.back().count;
        }
        auto [table, memory] = chunks.bound(b, &groups);
        BoundTrustTables out{{}, std::move(memory), {device, tensors}};
        auto* scratch = static_cast<NormPair*>(b.workspace);
        out.tables = {.chunks = table,
                      .tensors = out.tensors.data(),
                      .tensor_count = static_cast<int64_t>(tensors.size()),
                      .sums = scratch,
                      .norms = scratch + chunks.chunks()};
        return out;
      },
      [run](const BoundTrustTables& bound, const Bindings& b, Stream& stream) {
        if (bound.tables.chunks.count == 0) return;
        run(bound.tables, b.input<StepState>(0), stream.native());
      },
      (count + chunks.tensors()) * sizeof(NormPair));
}

template <typename Rule>
std::unique_ptr<Kernel> make_lars(const KernelRequest& request, const Rule& rule) {
  return make_trust_update(request, Rule::kMoments + 2,
                           [rule, trust = lars_trust(request.attributes)](
                               const TrustTables& t, const StepState* state, CudaStream stream) {
                             (t.chunks.dtype == DType::f64
                                  ? lars_typed<double, Rule>
                                  : lars_typed<float, Rule>)(t, rule, trust, state, stream);
                           });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_lars_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) return make_lars(request, SgdRule<Momentum::none>{});
  return make_lars(request, SgdRule<Momentum::plain>{momentum, 0});
}

std::unique_ptr<Kernel> make_cuda_lamb_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  return make_trust_update(request, 4,
                           [rule = lamb_rule(request.attributes)](
                               const TrustTables& t, const StepState* state, CudaStream stream) {
                             (t.chunks.dtype == DType::f64
                                  ? lamb_typed<double>
                                  : lamb_typed<float>)(t, rule, state, stream);
                           });
}

}  // namespace dltrain
