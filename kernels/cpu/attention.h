// What the forward and backward kernels of attention share: blocks of tokens copied into padded
// buffers of their thread, and the dropout of the weights.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/philox.h"
#include "ops/attention.h"
#include "ops/kernel.h"
#include "ops/step_state.h"

namespace dltrain {

inline constexpr int64_t kAttentionBlock = 64;  // tokens, of queries and of keys

// Head sizes are padded with zeros to whole vectors of every instruction set.
inline int64_t padded_head(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

struct AttentionCall {
  AttentionSizes sizes;
  float scale = 1;
  AttentionPattern pattern;
  bool lengths = false;  // the mask has a length a sample
  double dropout = 0;
  uint64_t stream = 0;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const int32_t* mask = nullptr;     // with `masked`
  const StepState* state = nullptr;  // with dropout

  // Keys of sample n, from 0 on; what a mask hides among them, hidden() says.
  int64_t keys_of(int64_t n) const {
    return lengths ? std::clamp<int64_t>(mask[n], 0, sizes.keys) : sizes.keys;
  }
  // Of keys from `key` on: 0 where it is hidden; nullptr where none is.
  const int32_t* hidden(int64_t n, int64_t key) const {
    return pattern.masked && !lengths ? mask + n * sizes.keys + key : nullptr;
  }

  // Multiplies the weights of one query with the mask of the dropout: w[i·step] is key `first` + i.
  void drop(int64_t sample, int64_t head, int64_t query, int64_t first, int64_t count, float* w,
            int64_t step) const {
    const uint64_t row =
        (static_cast<uint64_t>((state->in.sample_offset + sample) * sizes.heads + head)) *
            static_cast<uint64_t>(sizes.queries) +
        static_cast<uint64_t>(query);
    const uint64_t begin = row * static_cast<uint64_t>(sizes.keys) + static_cast<uint64_t>(first);
    const auto kept = static_cast<float>(1 / (1 - dropout));
    for (int64_t i = 0; i < count; ++i) {
      const double u = random_uniform(state->in.seed, stream, static_cast<uint64_t>(state->in.step),
                                      begin + static_cast<uint64_t>(i));
      w[i * step] = u >= dropout ? w[i * step] * kept : 0;
    }
  }
};

// The attributes of a request whose queries are input `first`, and the addresses of that input and
// those after it.
AttentionCall attention_call(const KernelRequest& request, size_t first);
void bind_attention(AttentionCall& call, const Bindings& bindings, size_t first);

// `count` vectors of `head_dim`, `stride` apart, into rows of `width` (the rest zero); rows up to
// kAttentionBlock are zero.
inline void copy_block(const float* from, int64_t stride, int64_t count, int64_t head_dim,
                       float* to, int64_t width) {
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(from + i * stride, head_dim, to + i * width);
    std::fill(to + i * width + head_dim, to + (i + 1) * width, 0.0f);
  }
  std::fill(to + count * width, to + kAttentionBlock * width, 0.0f);
}

// The same transposed: `head_dim` rows of kAttentionBlock.
inline void copy_transposed(const float* from, int64_t stride, int64_t count, int64_t head_dim,
                            float* to) {
  for (int64_t d = 0; d < head_dim; ++d) {
    for (int64_t i = 0; i < count; ++i) to[d * kAttentionBlock + i] = from[i * stride + d];
    std::fill(to + d * kAttentionBlock + count, to + (d + 1) * kAttentionBlock, 0.0f);
  }
}

}  // namespace dltrain
