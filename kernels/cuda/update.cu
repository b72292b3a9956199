// Gradient norm and optimizers over many tensors at once. The arithmetic is that of
// shared/update_rules.h, which the CPU kernels use too.
#include "cuda/device_code.cuh"
#include "cuda/update.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;
constexpr int kNormBlock = 1024;

template <typename T>
__global__ void sum_of_squares_kernel(const UpdateChunk* chunks, double* partial) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  const T* gradient = static_cast<const T*>(chunk.role[0]);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    const double g = static_cast<double>(gradient[i]);
    sum += g * g;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void finish_norm_kernel(const double* partial, int64_t count, StepState* state) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kNormBlock) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) finish_gradient_norm(*state, sum);
}

// momentum: 0 none, 1 plain, 2 Nesterov's.
template <typename T, int kMomentum>
__global__ void sgd_kernel(const UpdateChunk* chunks, SgdAttributes attributes,
                           const StepState* state) {
  if (state->out.finite == 0) return;
  const SgdFactors<T> f = sgd_factors<T>(attributes, *state);
  const UpdateChunk chunk = chunks[blockIdx.x];
  T* p = static_cast<T*>(chunk.role[0]);
  const T* g = static_cast<const T*>(chunk.role[1]);
  T* m = static_cast<T*>(chunk.role[2]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    if constexpr (kMomentum == 0) sgd_element(f, p[i], g[i]);
    if constexpr (kMomentum == 1) sgd_momentum_element<false>(f, p[i], g[i], m[i]);
    if constexpr (kMomentum == 2) sgd_momentum_element<true>(f, p[i], g[i], m[i]);
  }
}

template <typename T>
__global__ void adamw_kernel(const UpdateChunk* chunks, AdamwAttributes attributes,
                             const StepState* state) {
  __shared__ AdamwFactors<T> shared;
  if (state->out.finite == 0) return;
  if (threadIdx.x == 0) shared = adamw_factors<T>(attributes, *state);  // powers: once a block
  __syncthreads();
  const AdamwFactors<T> f = shared;
  const UpdateChunk chunk = chunks[blockIdx.x];
  T* p = static_cast<T*>(chunk.role[0]);
  const T* g = static_cast<const T*>(chunk.role[1]);
  T* m = static_cast<T*>(chunk.role[2]);
  T* v = static_cast<T*>(chunk.role[3]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    adamw_element(f, p[i], g[i], m[i], v[i]);
  }
}

template <typename T>
__global__ void batch_norm_update_kernel(BatchNormUpdateCall c, const StepState* state, T* mean,
                                         T* variance, const T* mean_sum, const T* variance_sum) {
  const int64_t k = thread_index();
  if (k >= c.channels || state->out.finite == 0) return;
  mean[k] = running_statistic(mean[k], mean_sum[k], c.momentum, c.groups, 1.0);
  variance[k] = running_statistic(variance[k], variance_sum[k], c.momentum, c.groups, c.unbias);
}

__global__ void loss_seed_kernel(const StepState* state, const double* loss, double* seed) {
  // 0 · loss is 0 for a finite loss and NaN for any other.
  *seed = state->out.loss_scale * state->in.inverse_valid + (loss != nullptr ? 0.0 * *loss : 0.0);
}

template <typename T>
void gradient_norm_typed(const UpdateTable& table, double* partial, CudaStream stream) {
  DLTRAIN_LAUNCH(sum_of_squares_kernel<T>, static_cast<unsigned>(table.count), kBlock, stream,
                 table.chunks, partial);
}

template <typename T>
void sgd_typed(const UpdateTable& table, const SgdAttributes& a, const StepState* state,
               CudaStream stream) {
  const auto grid = static_cast<unsigned>(table.count);
  if (a.momentum == 0) {
    DLTRAIN_LAUNCH((sgd_kernel<T, 0>), grid, kBlock, stream, table.chunks, a, state);
  } else if (!a.nesterov) {
    DLTRAIN_LAUNCH((sgd_kernel<T, 1>), grid, kBlock, stream, table.chunks, a, state);
  } else {
    DLTRAIN_LAUNCH((sgd_kernel<T, 2>), grid, kBlock, stream, table.chunks, a, state);
  }
}

template <typename T>
void adamw_typed(const UpdateTable& table, const AdamwAttributes& a, const StepState* state,
                 CudaStream stream) {
  DLTRAIN_LAUNCH(adamw_kernel<T>, static_cast<unsigned>(table.count), kBlock, stream, table.chunks,
                 a, state);
}

template <typename T>
void batch_norm_update_typed(const BatchNormUpdateCall& c, const StepState* state,
                             void* running_mean, void* running_variance, const void* mean_sum,
                             const void* variance_sum, CudaStream stream) {
  DLTRAIN_LAUNCH(batch_norm_update_kernel<T>, static_cast<unsigned>(divide_up(c.channels, kBlock)),
                 kBlock, stream, c, state, static_cast<T*>(running_mean),
                 static_cast<T*>(running_variance), static_cast<const T*>(mean_sum),
                 static_cast<const T*>(variance_sum));
}

}  // namespace

void launch_gradient_norm(const UpdateTable& table, StepState* state, double* partial,
                          CudaStream stream) {
  if (table.count > 0) {
    (table.dtype == DType::f64 ? gradient_norm_typed<double>
                               : gradient_norm_typed<float>)(table, partial, stream);
  }
  DLTRAIN_LAUNCH(finish_norm_kernel, 1u, kNormBlock, stream, partial, table.count, state);
}

void launch_sgd_update(const UpdateTable& table, const SgdAttributes& attributes,
                       const StepState* state, CudaStream stream) {
  if (table.count == 0) return;
  (table.dtype == DType::f64 ? sgd_typed<double> : sgd_typed<float>)(table, attributes, state,
                                                                     stream);
}

void launch_adamw_update(const UpdateTable& table, const AdamwAttributes& attributes,
                         const StepState* state, CudaStream stream) {
  if (table.count == 0) return;
  (table.dtype == DType::f64 ? adamw_typed<double> : adamw_typed<float>)(table, attributes, state,
                                                                         stream);
}

void launch_batch_norm_update(const BatchNormUpdateCall& call, const StepState* state,
                              void* running_mean, void* running_variance, const void* mean_sum,
                              const void* variance_sum, CudaStream stream) {
  if (call.channels == 0) return;
  (call.dtype == DType::f64 ? batch_norm_update_typed<double>
                            : batch_norm_update_typed<float>)(call, state, running_mean,
                                                              running_variance, mean_sum,
                                                              variance_sum, stream);
}

void launch_loss_seed(const StepState* state, const double* loss, double* seed, CudaStream stream) {
  DLTRAIN_LAUNCH(loss_seed_kernel, 1u, 1u, stream, state, loss, seed);
}

}  // namespace dltrain
