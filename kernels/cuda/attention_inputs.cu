// Kernels that convert the op's mask and step state to the inputs of cuDNN's attention
// (attention_inputs.h).
#include <cmath>

#include "base/philox.h"
#include "cuda/attention_inputs.h"
#include "cuda/device_code.cuh"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

// `query`: with documents only.
__device__ bool is_valid(const AttentionCall& c, const int32_t* mask, int64_t sample, int64_t query,
                         int64_t key) {
  if (c.mask == AttentionCall::Mask::documents) {
    return key >= query - mask[sample * c.queries + query];
  }
  return c.mask == AttentionCall::Mask::lengths ? key < mask[sample]
                                                : mask[sample * c.keys + key] != 0;
}

template <typename T>
__global__ void inputs_kernel(AttentionCall c, AttentionInputs in, AttentionBias layout,
                              float excluded, T* bias, uint64_t* random) {
  if (c.mask != AttentionCall::Mask::none) {
    const int64_t of_sample = layout.rows * layout.stride;
    for (int64_t i = thread_index(); i < c.samples * of_sample; i += thread_count()) {
      const int64_t key = i % layout.stride, query = i % of_sample / layout.stride;
      const bool valid = key < c.keys && is_valid(c, in.mask, i / of_sample, query, key);
      bias[i] = static_cast<T>(valid ? 0.0f : excluded);
    }
  }
  if (c.dropout > 0 && thread_index() == 0) {
    const StepInputs& s = in.state->in;
    const Philox4 bits = random_block(s.seed, c.stream, static_cast<uint64_t>(s.step),
                                      static_cast<uint64_t>(s.sample_offset));
    random[0] = bits.v[0] | uint64_t{bits.v[1]} << 32;
    // Ranks with other heads draw other numbers of the sequence.
    random[2] = static_cast<uint64_t>(c.first_head * c.samples * c.queries * c.keys);
  }
}

// One block per sample.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    queries_without_keys_kernel(AttentionCall c, const int32_t* mask, T* y, float* sums) {
  __shared__ int64_t firsts[kBlock];
  const int64_t n = blockIdx.x, thread = threadIdx.x;
  int64_t first = c.keys;  // the first valid key
  for (int64_t s = thread; s < first; s += kBlock) {
    if (is_valid(c, mask, n, 0, s)) first = s;
  }
  firsts[thread] = first;
  __syncthreads();
  for (int i = 0; i < kBlock; ++i) first = firsts[i] < first ? firsts[i] : first;
  const int64_t rows = first == c.keys ? c.queries : c.pattern.causal ? first : 0;
  for (int64_t i = thread; i < rows * c.heads * c.head_dim; i += kBlock) {
    y[c.output(n, 0, 0) + i] = static_cast<T>(0.0f);
  }
  for (int64_t i = thread; i < rows * c.heads; i += kBlock) {
    sums[c.row(n, i / rows, i % rows)] = static_cast<float>(INFINITY);
  }
}

template <typename F>
void with_16_bits(DType dtype, const F& f) {
  dtype == DType::bf16 ? f(DeviceBf16{}) : f(DeviceF16{});
}

}  // namespace

void launch_attention_inputs(const AttentionCall& c, const AttentionInputs& in,
                             const AttentionBias& layout, void* bias, uint64_t* random,
                             CudaStream stream) {
  const bool masked = c.mask != AttentionCall::Mask::none;
  const unsigned blocks = masked ? stride_grid(c.samples * layout.rows * layout.stride, kBlock) : 1;
  // Finite, since cuDNN subtracts the greatest score of a row.
  const float excluded = c.dtype == DType::f16 ? -60000.0f : -1e30f;
  with_16_bits(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(inputs_kernel<T>, blocks, kBlock, stream, c, in, layout, excluded,
                   static_cast<T*>(bias), random);
  });
}

void launch_queries_without_keys(const AttentionCall& c, const AttentionInputs& in, void* y,
                                 float* sums, CudaStream stream) {
  with_16_bits(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(queries_without_keys_kernel<T>, static_cast<unsigned>(c.samples), kBlock, stream,
                   c, in.mask, static_cast<T*>(y), sums);
  });
}

}  // namespace dltrain
