// Shared by the forward and backward kernels of attention: the call, and the dropout of the
// weights. Blocks of tokens are copied into padded buffers per thread (attention_blocks-inl.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/philox.h"
#include "ops/attention.h"
#include "ops/kernel.h"
#include "ops/step_state.h"

namespace dltrain {

inline constexpr int64_t kAttentionBlock = 64;  // tokens, of queries and of keys

// Head sizes are padded with zeros to full vectors of every instruction set.
inline int64_t padded_head(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

struct AttentionCall {
  AttentionSizes sizes;
  float scale = 1;
  AttentionPattern pattern;
  bool lengths = false;  // the mask has one length per sample
  double dropout = 0;
  uint64_t stream = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // f32 or bf16
  const int32_t* mask = nullptr;                        // with `masked`
  const StepState* state = nullptr;                     // with dropout

  // Returns the number of keys of sample n, some of which may be masked (key_mask).
  int64_t keys_of(int64_t n) const {
    return lengths ? std::clamp<int64_t>(mask[n] - sizes.key_offset, 0, sizes.keys) : sizes.keys;
  }
  // Returns the first key to which a query of sample n attends. It grows with the query.
  int64_t first_key(int64_t n, int64_t query) const {
    const int64_t first = pattern.first_key(query);
    if (!pattern.documents) return first;
    return std::max(first, pattern.first_query + query - mask[n * sizes.queries + query]);
  }
  // Returns the mask of keys from `key` on, 0 for masked ones; nullptr if none is masked.
  const int32_t* key_mask(int64_t n, int64_t key) const {
    return pattern.masked && !lengths && !pattern.documents ? mask + n * sizes.keys + key : nullptr;
  }

  // Multiplies the weights of one query with the dropout mask: w[i·step] is key `first` + i.
  void drop(int64_t sample, int64_t head, int64_t query, int64_t first, int64_t count, float* w,
            int64_t step) const {
    const auto begin = static_cast<uint64_t>(
        sizes.random_row(state->in.sample_offset + sample, head, query) + first);
    const auto kept = static_cast<float>(1 / (1 - dropout));
    for (int64_t i = 0; i < count; ++i) {
      const double u = random_uniform(state->in.seed, stream, static_cast<uint64_t>(state->in.step),
                                      begin + static_cast<uint64_t>(i));
      w[i * step] = u >= dropout ? w[i * step] * kept : 0;
    }
  }
};

// Read the attributes of a request whose queries are input `first`, and the addresses from that
// input on.
AttentionCall attention_call(const KernelRequest& request, size_t first);
AttentionCall bound_attention(AttentionCall call, const Bindings& bindings, size_t first);
// Returns true when every floating tensor has the dtype of the first input, or (the rows' sums)
// f32.
bool of_one_format(const KernelRequest& request);

}  // namespace dltrain
