// The optimizers that scale the step of a whole tensor by norms (LARS, LAMB;
// lib/ops/update_adaptive.cpp): for the sums, a pass over all chunks computes sums of squares, and
// one block per tensor adds them in order; the step is another pass. Roles of the table: parameter,
// gradient, moments. The arithmetic is that of shared/trust_rules.h, which the CPU kernels use too.
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

// Sums of squares of a chunk or tensor: of the parameter, and of the gradient or direction.
struct NormPair {
  double parameter, other;
};

struct TrustTables {
  UpdateTable chunks;
  const TensorChunks* tensors = nullptr;  // device memory
  int64_t tensor_count = 0;
  NormPair* chunk_sums = nullptr;   // scratch
  NormPair* const* sums = nullptr;  // of each tensor; device memory
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
__global__ void tensor_sums_kernel(const TensorChunks* tensors, const NormPair* chunk_sums,
                                   const StepState* state, NormPair* const* sums) {
  const TensorChunks tensor = tensors[blockIdx.x];
  const int64_t count = state->out.finite == 0 ? 0 : tensor.count;
  double parameter = 0, other = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) {
    parameter += chunk_sums[tensor.first + i].parameter;
    other += chunk_sums[tensor.first + i].other;
  }
  parameter = block_sum(parameter);
  other = block_sum(other);
  if (threadIdx.x == 0) *sums[blockIdx.x] = {parameter, other};
}

template <typename T, typename Rule>
__global__ void lars_step_kernel(const UpdateChunk* chunks, Rule rule, LarsTrust trust,
                                 const StepState* state, NormPair* const* sums) {
  using Factors = typename Rule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const NormPair sum = *sums[chunk.tensor];
    shared = rule.template factors<T>(*state, chunk.group);
    scale_by_trust(shared, static_cast<T>(trust(std::sqrt(sum.parameter), std::sqrt(sum.other),
                                                chunk.group.weight_decay)));
  }
  __syncthreads();
  const Factors f = shared;
  T* tensors[Rule::kMoments + 2];
  for (int k = 0; k < Rule::kMoments + 2; ++k) tensors[k] = static_cast<T*>(chunk.role[k]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) update_element<Rule>(f, tensors, i);
}

template <typename T>
__global__ void lamb_step_kernel(const UpdateChunk* chunks, LambRule rule, const StepState* state,
                                 NormPair* const* sums) {
  using Factors = typename LambRule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const NormPair sum = *sums[chunk.tensor];
    const double trust =
        rule.trust(std::sqrt(sum.parameter), std::sqrt(sum.other), chunk.group.weight_decay);
    shared = rule.template factors<T>(*state, chunk.group);
    shared.step_size = static_cast<T>(state->in.learning_rate * chunk.group.lr_scale * trust);
  }
  __syncthreads();
  const Factors f = shared;
  T* p = static_cast<T*>(chunk.role[0]);
  const T *m = static_cast<const T*>(chunk.role[1]), *v = static_cast<const T*>(chunk.role[2]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    p[i] = p[i] - f.step_size * LambRule::direction(f, p[i], m[i], v[i]);
  }
}

// Removes the sums, the last role of the inputs or outputs.
KernelRequest without_sums(const KernelRequest& request, bool makes_sums) {
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  KernelRequest out = request;
  SpecSpan& specs = makes_sums ? out.outputs : out.inputs;
  specs = specs.first(specs.size() - count);
  return out;
}

struct BoundTrustTables {
  TrustTables tables;
  DeviceTable<UpdateChunk> chunks;
  DeviceTable<TensorChunks> tensors;
  DeviceTable<NormPair*> sums;
};

// A kernel run(tables, state, stream, number) with a number of the dtype of the tensors.
template <typename Run>
std::unique_ptr<Kernel> make_trust_kernel(const KernelRequest& request, size_t roles,
                                          bool makes_sums, const Run& run) {
  const KernelRequest tensors_only = without_sums(request, makes_sums);
  if (!is_wide_update(tensors_only)) return nullptr;
  const ChunkTable chunks(tensors_only, 1, roles);
  return make_prepared_kernel(
      [&device = request.device, chunks, makes_sums,
       groups = UpdateGroups(request.attributes)](const Bindings& b) {
        std::vector<TensorChunks> tensors;
        int64_t first = 0;
        for (size_t i = 0; i < chunks.tensors(); ++i) {
          tensors.push_back({first, chunks.chunks_of(i)});
          first += tensors.back().count;
        }
        std::vector<NormPair*> sums;
        for (void* of : (makes_sums ? b.outputs : b.inputs).last(tensors.size())) {
          sums.push_back(static_cast<NormPair*>(of));
        }
        auto [table, memory] = chunks.bound(b, &groups);
        BoundTrustTables out{{}, std::move(memory), {device, tensors}, {device, sums}};
        out.tables = {.chunks = table,
                      .tensors = out.tensors.data(),
                      .tensor_count = static_cast<int64_t>(tensors.size()),
                      .chunk_sums = static_cast<NormPair*>(b.workspace),
                      .sums = out.sums.data()};
        return out;
      },
      [run](const BoundTrustTables& bound, const Bindings& b, Stream& stream) {
        with_wide(bound.tables.chunks.dtype, [&](auto number) {
          run(bound.tables, b.input<StepState>(0), stream.native(), number);
        });
      },
      makes_sums ? static_cast<size_t>(chunks.chunks()) * sizeof(NormPair) : 0);
}

// Launches kernel(chunks, arguments …) with a block per chunk.
#define DLTRAIN_LAUNCH_CHUNKS(kernel, table, stream, ...)                                          \
  do {                                                                                             \
    if ((table).count > 0) {                                                                       \
      DLTRAIN_LAUNCH(kernel, static_cast<unsigned>((table).count), kBlock, stream, (table).chunks, \
                     __VA_ARGS__);                                                                 \
    }                                                                                              \
  } while (false)

void sums_of_tensors(const TrustTables& t, const StepState* state, CudaStream stream) {
  DLTRAIN_LAUNCH(tensor_sums_kernel, static_cast<unsigned>(t.tensor_count), kBlock, stream,
                 t.tensors, t.chunk_sums, state, t.sums);
}

template <typename Rule>
std::unique_ptr<Kernel> make_lars(const KernelRequest& request, const Rule& rule) {
  const auto run = [rule, trust = lars_trust(request.attributes)]<typename T>(
                       const TrustTables& t, const StepState* state, CudaStream stream, T) {
    DLTRAIN_LAUNCH_CHUNKS((lars_step_kernel<T, Rule>), t.chunks, stream, rule, trust, state,
                          t.sums);
  };
  return make_trust_kernel(request, Rule::kMoments + 2, false, run);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_lars_sums(const KernelRequest& request) {
  const auto run = []<typename T>(const TrustTables& t, const StepState* state, CudaStream stream,
                                  T) {
    DLTRAIN_LAUNCH_CHUNKS(lars_sums_kernel<T>, t.chunks, stream, state, t.chunk_sums);
    sums_of_tensors(t, state, stream);
  };
  return make_trust_kernel(request, 2, true, run);
}

std::unique_ptr<Kernel> make_cuda_lars_update(const KernelRequest& request) {
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) return make_lars(request, SgdRule<Momentum::none>{});
  return make_lars(request, SgdRule<Momentum::plain>{momentum, 0});
}

std::unique_ptr<Kernel> make_cuda_lamb_moments(const KernelRequest& request) {
  const auto run = [rule = lamb_rule(request.attributes)]<typename T>(
                       const TrustTables& t, const StepState* state, CudaStream stream, T) {
    DLTRAIN_LAUNCH_CHUNKS(lamb_moments_kernel<T>, t.chunks, stream, rule, state, t.chunk_sums);
    sums_of_tensors(t, state, stream);
  };
  return make_trust_kernel(request, 4, true, run);
}

std::unique_ptr<Kernel> make_cuda_lamb_update(const KernelRequest& request) {
  const auto run = [rule = lamb_rule(request.attributes)]<typename T>(
                       const TrustTables& t, const StepState* state, CudaStream stream, T) {
    DLTRAIN_LAUNCH_CHUNKS(lamb_step_kernel<T>, t.chunks, stream, rule, state, t.sums);
  };
  return make_trust_kernel(request, 3, false, run);
}

}  // namespace dltrain
