// Shared by the attention kernels. Each warp has some rows (queries, or keys in the second half of
// the gradient) and reads tiles of the other operand from shared memory, one element per lane.
// Included by .cu files only.
#pragma once

#include <cmath>

#include "base/philox.h"
#include "cuda/attention.h"
#include "cuda/device_code.cuh"
#include "tensor/low_precision.h"

namespace dltrain {

inline constexpr int kAttentionWarps = 8;
inline constexpr int kAttentionBlock = kAttentionWarps * kWarp;

// Shared memory is static, at most 48 KiB. It limits the tokens of a tile and the rows of a warp,
// if both have `tensors` tensors of kDim numbers M. (Variables, since device code may not call host
// functions.)
template <typename M, int kDim>
inline constexpr int kVectorBytes = static_cast<int>(sizeof(M)) * kDim;
template <typename M, int kDim, int tensors>
inline constexpr int kAttentionTile = kVectorBytes<M, kDim> <= 512    ? kWarp
                                      : kVectorBytes<M, kDim> <= 1024 ? 16 / tensors
                                                                      : 4 / tensors;
template <typename M, int kDim, int tensors>
inline constexpr int kAttentionRows = kVectorBytes<M, kDim> <= 512 / tensors ? 2 : 1;

// The scores of one sample and head.
template <typename M>
struct AttentionScores {
  const AttentionCall& call;
  const int32_t* mask;
  int64_t sample, head;
  M slope;  // of ALiBi
  uint64_t seed = 0, step = 0;
  int64_t first_element = 0;  // of this sample and head in the global batch

  __device__ AttentionScores(const AttentionCall& c, const AttentionInputs& in, int64_t sample_,
                             int64_t head_)
      : call(c), mask(in.mask), sample(sample_), head(head_), slope(0) {
    if (c.pattern.alibi) slope = static_cast<M>(c.slope(head));
    if (c.dropout > 0) {
      const StepInputs& state = in.state->in;
      seed = state.seed;
      step = static_cast<uint64_t>(state.step);
      first_element = c.random_row(state.sample_offset + sample, head, 0);
    }
  }

  // The first key to which a query attends. It grows with the query.
  __device__ int64_t first_key(int64_t query) const {
    const int64_t first = call.pattern.first_key(query);
    if (call.mask != AttentionCall::Mask::documents) return first;
    const int64_t start = call.first_query + query - mask[sample * call.queries + query];
    return start > first ? start : first;
  }
  __device__ bool sees(int64_t query, int64_t key) const {
    if (query >= call.queries || key >= call.keys || key < call.pattern.first_key(query) ||
        key >= call.pattern.end_key(query, call.keys)) {
      return false;
    }
    if (call.mask == AttentionCall::Mask::none) return true;
    if (call.mask == AttentionCall::Mask::documents) return key >= first_key(query);
    if (call.mask == AttentionCall::Mask::lengths) return call.key_offset + key < mask[sample];
    return mask[sample * call.keys + key] != 0;
  }
  __device__ M score(M dot, int64_t query, int64_t key) const {
    const int64_t at = call.first_query + query, distance = at > key ? at - key : key - at;
    return static_cast<M>(call.scale) * dot - slope * static_cast<M>(distance);
  }
  // Returns the dropout's factor of a weight.
  __device__ M kept(int64_t query, int64_t key) const {
    if (call.dropout == 0) return M(1);
    const float u =
        random_uniform(seed, call.stream, step,
                       static_cast<uint64_t>(first_element + query * call.all_keys + key));
    return static_cast<double>(u) >= call.dropout ? static_cast<M>(1 / (1 - call.dropout)) : M(0);
  }
};

// Returns an operand of a product.
template <typename M>
__device__ M rounded_operand(bool tf32, M x) {
  return tf32 ? static_cast<M>(to_tf32(static_cast<float>(x))) : x;
}

// Vectors of kDim numbers, padded by one to avoid bank conflicts between lanes.
template <typename M, int kDim, int kCount>
struct VectorTile {
  M at[kCount][kDim + 1];

  // Loads the vector of token first + i as vector i, zeros from `end` on; address(token): its
  // offset.
  template <typename T, typename Address>
  __device__ void load(const T* from, int64_t first, int64_t end, int64_t dim,
                       const Address& address, bool tf32 = false) {
    for (int k = static_cast<int>(threadIdx.x); k < kCount * kDim; k += kAttentionBlock) {
      const int i = k / kDim, d = k % kDim;
      const M x = first + i < end && d < dim ? static_cast<M>(from[address(first + i) + d]) : M(0);
      at[i][d] = rounded_operand(tf32, x);
    }
  }
  __device__ M dot(int i, const M* other, int64_t dim) const {
    M sum = 0;
    for (int d = 0; d < dim; ++d) sum += at[i][d] * other[d];
    return sum;
  }
};

}  // namespace dltrain
