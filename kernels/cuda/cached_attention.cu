// cached_attention (lib/ops/cached_attention.cpp; layouts of the caches in
// lib/ops/cached_attention.h, mirrored here). New keys and values are written to the caches first;
// then a block computes one head of one token, a thread one key at a time: keys are transposed, so
// accesses are coalesced. The softmax is online (Milakov and Gimelshein 2018). The order of a row's
// additions depends only on its position, so its bits do not depend on the rest of the batch.
#include "cuda/attention.h"
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/cached_attention.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct CachedAttentionCall {
  AttentionCall tokens;  // of the new tokens; `keys` counts the same tokens
  int64_t capacity = 0;  // tokens of a slot
  int64_t block = 64;    // tokens of a block of keys
  int64_t width = 0;     // elements of a value in the cache

  DLTRAIN_HD int64_t cached_key(int64_t slot, int64_t kv_head, int64_t token, int64_t d) const {
    const int64_t blocks = capacity / block;
    return (((slot * tokens.kv_heads + kv_head) * blocks + token / block) * tokens.head_dim + d) *
               block +
           token % block;
  }
  DLTRAIN_HD int64_t cached_value(int64_t slot, int64_t kv_head, int64_t token) const {
    return ((slot * tokens.kv_heads + kv_head) * capacity + token) * width;
  }
};

struct CachedAttentionData {
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // equal for a packed tensor
  void *keys = nullptr, *values = nullptr, *y = nullptr;
  const int32_t *positions = nullptr, *counts = nullptr, *slots = nullptr;
};

constexpr int kBlock = 128;  // also keys at a time
constexpr int kCopyBlock = 256;
constexpr int kMaxPerThread = static_cast<int>(AttentionCall::kMaxHeadDim) / kBlock;

template <typename T>
__global__ void keep_kernel(CachedAttentionCall c, CachedAttentionData x) {
  const AttentionCall& a = c.tokens;
  const T *k = static_cast<const T*>(x.k), *v = static_cast<const T*>(x.v);
  T *keys = static_cast<T*>(x.keys), *values = static_cast<T*>(x.values);
  const int64_t count = a.samples * a.queries * a.kv_heads * a.head_dim;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t d = i % a.head_dim, head = i / a.head_dim % a.kv_heads;
    const int64_t token = i / (a.head_dim * a.kv_heads) % a.queries;
    const int64_t n = i / (a.head_dim * a.kv_heads * a.queries);
    if (token >= x.counts[n]) continue;
    const int64_t slot = x.slots[n], position = x.positions[n] + token;
    keys[c.cached_key(slot, head, position, d)] = k[a.key(n, token, head) + d];
    values[c.cached_value(slot, head, position) + d] = v[a.value(n, token, head) + d];
  }
}

template <typename T>
__global__ void attend_kernel(CachedAttentionCall c, CachedAttentionData x) {
  using M = MathOf<T>;
  __shared__ M query[AttentionCall::kMaxHeadDim];
  __shared__ M weights[kBlock];
  const AttentionCall& a = c.tokens;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t head = blockIdx.x % a.heads, token = blockIdx.x / a.heads % a.queries;
  const int64_t n = blockIdx.x / (a.heads * a.queries), kv_head = a.kv_head(head);
  T* y = static_cast<T*>(x.y) + a.output(n, token, head);
  if (token >= x.counts[n]) {
    for (int64_t d = thread; d < a.head_dim; d += kBlock) y[d] = T(0);
    return;
  }
  const T* q = static_cast<const T*>(x.q) + a.query(n, token, head);
  for (int64_t d = thread; d < a.head_dim; d += kBlock) query[d] = static_cast<M>(q[d]);
  __syncthreads();
  const int64_t slot = x.slots[n], position = x.positions[n] + token;
  const int64_t first_key = a.pattern.first_key(position);
  const T *keys = static_cast<const T*>(x.keys), *values = static_cast<const T*>(x.values);
  const M slope = a.pattern.alibi ? static_cast<M>(alibi_slope(head, a.heads)) : M(0);
  M greatest = -static_cast<M>(INFINITY), sum = 0, out[kMaxPerThread] = {};
  for (int64_t first = first_key / kBlock * kBlock; first <= position; first += kBlock) {
    const int64_t key = first + thread;
    M score = -static_cast<M>(INFINITY);
    if (key <= position && key >= first_key) {
      const T* from = keys + c.cached_key(slot, kv_head, key, 0);
      M dot = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) {
        dot += query[d] * static_cast<M>(from[d * c.block]);
      }
      score = static_cast<M>(a.scale) * dot - slope * static_cast<M>(position - key);
    }
    const M before = greatest, here = block_max(score);
    greatest = here > greatest || here != here ? here : greatest;
    const M weight = std::exp(score - greatest);
    weights[thread] = weight;
    const M factor = before == -static_cast<M>(INFINITY) ? M(0) : std::exp(before - greatest);
    sum = sum * factor + block_sum(weight);  // includes a barrier
    const int64_t begin = first > first_key ? first : first_key;
    const int64_t end = position + 1 < first + kBlock ? position + 1 : first + kBlock;
    for (int i = 0; i < kMaxPerThread; ++i) {
      const int64_t d = thread + i * kBlock;
      if (d >= a.head_dim) break;
      M total = out[i] * factor;
      for (int64_t k = begin; k < end; ++k) {
        total += weights[k - first] * static_cast<M>(values[c.cached_value(slot, kv_head, k) + d]);
      }
      out[i] = total;
    }
    __syncthreads();  // before the weights are overwritten
  }
  for (int i = 0; i < kMaxPerThread; ++i) {
    const int64_t d = thread + i * kBlock;
    if (d < a.head_dim) y[d] = static_cast<T>(out[i] / sum);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_cached_attention(const KernelRequest& request) {
  const CachedAttentionSizes sizes = cached_attention_sizes(request.inputs, request.attributes);
  const CachedAttentionCall call{
      .tokens = attention_call(sizes.tokens, request.inputs[0].dtype, request.attributes),
      .capacity = sizes.capacity,
      .block = kCacheBlock,
      .width = sizes.width()};
  const AttentionCall& a = call.tokens;
  const int64_t rows = a.samples * a.heads * a.queries;
  if (a.head_dim > AttentionCall::kMaxHeadDim || rows >= (int64_t{1} << 31)) return nullptr;
  const int64_t kept = a.samples * a.queries * a.kv_heads * a.head_dim;
  // `first`: index of the caches among the inputs.
  return make_kernel([=, first = cache_input(request.inputs)](const Bindings& b, Stream& stream) {
    if (kept == 0) return;
    const bool packed = first == 1;
    const CachedAttentionData data{.q = b.inputs[0],
                                   .k = b.inputs[packed ? 0 : 1],
                                   .v = b.inputs[packed ? 0 : 2],
                                   .keys = b.inputs[first],
                                   .values = b.inputs[first + 1],
                                   .y = b.outputs[0],
                                   .positions = b.input<int32_t>(first + 2),
                                   .counts = b.input<int32_t>(first + 3),
                                   .slots = b.input<int32_t>(first + 4)};
    with_floating(call.tokens.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(keep_kernel<T>, stride_grid(kept, kCopyBlock), kCopyBlock, stream.native(),
                     call, data);
      DLTRAIN_LAUNCH(attend_kernel<T>, static_cast<unsigned>(rows), kBlock, stream.native(), call,
                     data);
    });
  });
}

}  // namespace dltrain
