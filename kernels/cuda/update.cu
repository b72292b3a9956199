// Gradient norm and optimizers over many tensors at once. The arithmetic is that of
// shared/update_rules.h, which the CPU kernels use too.
#include <type_traits>

#include "base/philox.h"
#include "cuda/device_code.cuh"
#include "cuda/update.h"
#include "tensor/random_rounding.h"

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

// Of one block.
__device__ double sum_of(const double* partial, int64_t count) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kNormBlock) sum += partial[i];
  return block_sum(sum);
}

__global__ void finish_norm_kernel(const double* partial, int64_t count, StepState* state) {
  const double sum = sum_of(partial, count);
  if (threadIdx.x == 0) finish_gradient_norm(*state, sum);
}

__global__ void finish_sum_kernel(const double* partial, int64_t count, double* out) {
  const double sum = sum_of(partial, count);
  if (threadIdx.x == 0) *out = sum;
}

__global__ void gradient_norm_of_kernel(StepState* state, const double* sum) {
  finish_gradient_norm(*state, *sum);
}

__device__ void round_to(float value, DType copy, void* to, int64_t i) {
  if (copy == DType::bf16) {
    from_f32(value, static_cast<Bf16*>(to)[i]);
  } else {
    from_f32(value, static_cast<F16*>(to)[i]);
  }
}

// A chunk of parameters in bf16, rounded at random.
template <typename Rule>
__device__ void update_narrow(const UpdateChunk& chunk,
                              const typename Rule::template Factors<float>& f,
                              float* const* tensors, const StepState* state) {
  Bf16* parameter = static_cast<Bf16*>(chunk.role[0]);
  const auto step = static_cast<uint64_t>(state->in.step);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    const float p = updated_element<Rule>(f, to_f32(parameter[i]), tensors, i);
    parameter[i] = round_at_random(
        p, random_bits(state->in.seed, chunk.stream, step, static_cast<uint64_t>(chunk.first + i)));
  }
}

// N copies, written at once.
template <typename Copy, int N>
struct alignas(N * sizeof(Copy)) Copies {
  Copy v[N];
};

template <typename Copy, typename T, int N>
__device__ void round_pack(const T (&values)[N], void* to, int64_t pack) {
  Copies<Copy, N> rounded;
  for (int j = 0; j < N; ++j) from_f32(static_cast<float>(values[j]), rounded.v[j]);
  static_cast<Copies<Copy, N>*>(to)[pack] = rounded;
}

// As many elements of the chunk as go in packs, which keeps more bytes on their way from memory
// than one element at a time; how many those were.
template <typename Rule, typename T>
__device__ int64_t update_packs(const UpdateChunk& chunk,
                                const typename Rule::template Factors<T>& f, T* const* tensors,
                                DType copy) {
  constexpr int kTensors = Rule::kMoments + 2, kWidth = Pack<T>::size;
  bool aligned = reinterpret_cast<uintptr_t>(chunk.copy) % (2 * kWidth) == 0;
  for (int k = 0; k < kTensors; ++k) {
    aligned = aligned && reinterpret_cast<uintptr_t>(tensors[k]) % sizeof(Pack<T>) == 0;
  }
  if (!aligned) return 0;
  const int64_t packs = chunk.count / kWidth;
  for (int64_t i = threadIdx.x; i < packs; i += kBlock) {
    Pack<T> own[kTensors];
    for (int k = 0; k < kTensors; ++k) own[k] = reinterpret_cast<const Pack<T>*>(tensors[k])[i];
    for (int j = 0; j < kWidth; ++j) {
      T m[Rule::kMoments + 1];  // no array of none
      for (int k = 0; k < Rule::kMoments; ++k) m[k] = own[2 + k].v[j];
      Rule::element(f, own[0].v[j], f.gradient(own[1].v[j]), m);
      for (int k = 0; k < Rule::kMoments; ++k) own[2 + k].v[j] = m[k];
    }
    for (int k = 0; k < kTensors; ++k) {
      if (k != 1) reinterpret_cast<Pack<T>*>(tensors[k])[i] = own[k];  // 1: the gradient
    }
    if (chunk.copy == nullptr) continue;
    if (copy == DType::bf16) {
      round_pack<Bf16>(own[0].v, chunk.copy, i);
    } else {
      round_pack<F16>(own[0].v, chunk.copy, i);
    }
  }
  return packs * kWidth;
}

template <typename T, typename Rule>
__global__ void element_update_kernel(const UpdateChunk* chunks, Rule rule, DType copy, bool rounds,
                                      const StepState* state) {
  using Factors = typename Rule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  // Powers and divisions in double: once a block.
  if (threadIdx.x == 0) shared = rule.template factors<T>(*state, chunk.group);
  __syncthreads();
  const Factors f = shared;
  T* tensors[Rule::kMoments + 2];
  for (int k = 0; k < Rule::kMoments + 2; ++k) tensors[k] = static_cast<T*>(chunk.role[k]);
  if constexpr (std::is_same_v<T, float>) {
    if (rounds) {
      update_narrow<Rule>(chunk, f, tensors, state);
      return;
    }
  }
  const int64_t done = update_packs<Rule, T>(chunk, f, tensors, copy);
  for (int64_t i = done + threadIdx.x; i < chunk.count; i += kBlock) {
    update_element<Rule>(f, tensors, i);
    if (chunk.copy != nullptr) round_to(static_cast<float>(tensors[0][i]), copy, chunk.copy, i);
  }
}

template <typename T, typename Copy>
__global__ void low_precision_update_kernel(const UpdateChunk* chunks) {
  const UpdateChunk& chunk = chunks[blockIdx.x];
  const T* parameter = static_cast<const T*>(chunk.role[0]);
  Copy* copy = static_cast<Copy*>(chunk.role[1]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    copy[i] = static_cast<Copy>(static_cast<float>(parameter[i]));
  }
}

template <typename T>
__global__ void ema_update_kernel(const UpdateChunk* chunks, EmaAttributes attributes,
                                  const StepState* state) {
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  const T share = static_cast<T>(ema_share(attributes, *state));
  const T* source = static_cast<const T*>(chunk.role[0]);
  T* average = static_cast<T*>(chunk.role[1]);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    // Whole at the start: an average that is no number yet must not stay so.
    average[i] = share == T(1) ? source[i] : average[i] + share * (source[i] - average[i]);
  }
}

__global__ void clip_percentile_kernel(ClipPercentileAttributes attributes, StepState* state,
                                       float* norms, int64_t window) {
  clip_percentile(attributes, *state, norms, window);
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

void partial_sums(const UpdateTable& table, double* partial, CudaStream stream) {
  if (table.count == 0) return;
  const auto grid = static_cast<unsigned>(table.count);
  if (table.dtype == DType::f64) {
    DLTRAIN_LAUNCH(sum_of_squares_kernel<double>, grid, kBlock, stream, table.chunks, partial);
  } else {
    DLTRAIN_LAUNCH(sum_of_squares_kernel<float>, grid, kBlock, stream, table.chunks, partial);
  }
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
  partial_sums(table, partial, stream);
  DLTRAIN_LAUNCH(finish_norm_kernel, 1u, kNormBlock, stream, partial, table.count, state);
}

void launch_sum_of_squares(const UpdateTable& table, double* sum, double* partial,
                           CudaStream stream) {
  partial_sums(table, partial, stream);
  DLTRAIN_LAUNCH(finish_sum_kernel, 1u, kNormBlock, stream, partial, table.count, sum);
}

void launch_gradient_norm_of(StepState* state, const double* sum_of_squares, CudaStream stream) {
  DLTRAIN_LAUNCH(gradient_norm_of_kernel, 1u, 1u, stream, state, sum_of_squares);
}

template <typename Rule>
void launch_element_update(const UpdateTable& table, const Rule& rule, const StepState* state,
                           CudaStream stream) {
  if (table.count == 0) return;
  const auto grid = static_cast<unsigned>(table.count);
  if (table.dtype == DType::f64) {
    DLTRAIN_LAUNCH((element_update_kernel<double, Rule>), grid, kBlock, stream, table.chunks, rule,
                   table.copy, table.rounds, state);
  } else {
    DLTRAIN_LAUNCH((element_update_kernel<float, Rule>), grid, kBlock, stream, table.chunks, rule,
                   table.copy, table.rounds, state);
  }
}

#define DLTRAIN_ELEMENT_UPDATE(...)                                                             \
  template void launch_element_update(const UpdateTable&, const __VA_ARGS__&, const StepState*, \
                                      CudaStream)
DLTRAIN_ELEMENT_UPDATE(SgdRule<Momentum::none>);
DLTRAIN_ELEMENT_UPDATE(SgdRule<Momentum::plain>);
DLTRAIN_ELEMENT_UPDATE(SgdRule<Momentum::nesterov>);
DLTRAIN_ELEMENT_UPDATE(AdamRule<false>);
DLTRAIN_ELEMENT_UPDATE(AdamRule<true>);
DLTRAIN_ELEMENT_UPDATE(AdagradRule);
DLTRAIN_ELEMENT_UPDATE(RmspropRule<false, false>);
DLTRAIN_ELEMENT_UPDATE(RmspropRule<false, true>);
DLTRAIN_ELEMENT_UPDATE(RmspropRule<true, false>);
DLTRAIN_ELEMENT_UPDATE(RmspropRule<true, true>);
DLTRAIN_ELEMENT_UPDATE(LionRule);
#undef DLTRAIN_ELEMENT_UPDATE

void launch_low_precision_update(const UpdateTable& table, DType copy, CudaStream stream) {
  if (table.count == 0) return;
  with_floating(table.dtype, [&]<typename T>(T) {
    with_floating(copy, [&]<typename Copy>(Copy) {
      if constexpr (sizeof(T) >= 4 && sizeof(Copy) == 2) {
        DLTRAIN_LAUNCH((low_precision_update_kernel<T, Copy>), static_cast<unsigned>(table.count),
                       kBlock, stream, table.chunks);
      }
    });
  });
}

void launch_ema_update(const UpdateTable& table, const EmaAttributes& attributes,
                       const StepState* state, CudaStream stream) {
  if (table.count == 0) return;
  const auto grid = static_cast<unsigned>(table.count);
  if (table.dtype == DType::f64) {
    DLTRAIN_LAUNCH(ema_update_kernel<double>, grid, kBlock, stream, table.chunks, attributes,
                   state);
  } else {
    DLTRAIN_LAUNCH(ema_update_kernel<float>, grid, kBlock, stream, table.chunks, attributes, state);
  }
}

void launch_clip_percentile(const ClipPercentileAttributes& attributes, StepState* state,
                            float* norms, int64_t window, CudaStream stream) {
  DLTRAIN_LAUNCH(clip_percentile_kernel, 1u, 1u, stream, attributes, state, norms, window);
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
