// cached_attention and the ops of texts in slots, element by element.
#include <algorithm>
#include <cmath>

#include "ops/cached_attention.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct CachedAttention {
  explicit CachedAttention(const NaiveCall& call)
      : c(call),
        s(cached_attention_sizes(c.inputs, c.attributes)),
        first(cache_input(c.inputs)),
        scale(c.attributes.number("scale", 1 / std::sqrt(static_cast<double>(s.tokens.head_dim)))),
        pattern(c.attributes),
        weights(static_cast<size_t>(s.capacity)) {
    pattern.causal = true;
  }

  void run() {
    const AttentionSizes& a = s.tokens;
    const auto *positions = c.input<int32_t>(first + 2), *counts = c.input<int32_t>(first + 3),
               *slots = c.input<int32_t>(first + 4);
    std::fill_n(c.output<T>(0), c.outputs[0].shape.elements(), T(0));
    for (int64_t n = 0; n < a.samples; ++n) {
      for (int64_t t = 0; t < counts[n]; ++t) {
        for (int64_t g = 0; g < a.kv_heads; ++g) keep(n, t, g, slots[n], positions[n] + t);
      }
      for (int64_t t = 0; t < counts[n]; ++t) {
        for (int64_t h = 0; h < a.heads; ++h) attend(n, t, h, slots[n], positions[n] + t);
      }
    }
  }

  void keep(int64_t n, int64_t t, int64_t g, int64_t slot, int64_t position) const {
    const AttentionSizes& a = s.tokens;
    const T *k = c.input<T>(a.packed ? 0 : 1), *v = c.input<T>(a.packed ? 0 : 2);
    for (int64_t d = 0; d < a.head_dim; ++d) {
      c.output<T>(1)[s.key(slot, g, position, d)] = k[a.key(n, t, g) + d];
      c.output<T>(2)[s.value(slot, g, position) + d] = v[a.value(n, t, g) + d];
    }
  }

  void attend(int64_t n, int64_t t, int64_t h, int64_t slot, int64_t position) {
    const AttentionSizes& a = s.tokens;
    const int64_t g = a.kv_head(h), begin = pattern.first_key(position);
    const T *q = c.input<T>(0) + a.query(n, t, h), *keys = c.output<T>(1), *values = c.output<T>(2);
    double most = -HUGE_VAL, sum = 0;
    for (int64_t key = begin; key <= position; ++key) {
      double score = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) score += double{q[d]} * keys[s.key(slot, g, key, d)];
      score *= scale;
      if (pattern.alibi) score -= static_cast<double>(position - key) * alibi_slope(h, a.heads);
      weights[static_cast<size_t>(key)] = score;
      most = std::max(most, score);
    }
    for (int64_t key = begin; key <= position; ++key) {
      double& weight = weights[static_cast<size_t>(key)];
      sum += weight = std::exp(weight - most);
    }
    for (int64_t d = 0; d < a.head_dim; ++d) {
      double y = 0;
      for (int64_t key = begin; key <= position; ++key) {
        y += weights[static_cast<size_t>(key)] * values[s.value(slot, g, key) + d];
      }
      c.output<T>(0)[a.output(n, t, h) + d] = static_cast<T>(y / sum);
    }
  }

  const NaiveCall& c;
  CachedAttentionSizes s;
  size_t first;
  double scale;
  AttentionPattern pattern;
  std::vector<double> weights;
};

}  // namespace

std::unique_ptr<Kernel> reference_cached_attention(const KernelRequest& request) {
  return make_naive(request,
                    []<typename T>(const NaiveCall& c, T) { CachedAttention<T>(c).run(); });
}
std::unique_ptr<Kernel> reference_last_token(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape& x = c.inputs[0].shape;
    const int64_t width = x.elements(2, x.rank());
    for (int64_t n = 0; n < x[0]; ++n) {
      const int64_t last = std::clamp<int64_t>(c.input<int32_t>(1)[n] - 1, 0, x[1] - 1);
      for (int64_t i = 0; i < width; ++i) {
        c.put<T>(0, n * width + i, c.input<T>(0)[(n * x[1] + last) * width + i]);
      }
    }
  });
}
std::unique_ptr<Kernel> reference_slot_state(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape& state = c.inputs[0].shape;
    const int64_t width = state.elements(1, state.rank());
    for (int64_t n = 0; n < c.outputs[0].shape[0]; ++n) {
      const bool begins = c.input<int32_t>(1)[n] == 0;
      const T* from = c.input<T>(0) + c.input<int32_t>(2)[n] * width;
      for (int64_t i = 0; i < width; ++i) c.put<T>(0, n * width + i, begins ? 0 : from[i]);
    }
  });
}

std::unique_ptr<Kernel> reference_slot_state_update(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape &state = c.inputs[0].shape, &y = c.inputs[1].shape;
    const int64_t width = state.elements(1, state.rank());
    for (int64_t n = 0; n < y[0]; ++n) {
      const int64_t count = c.input<int32_t>(2)[n];
      if (count > 0) {
        std::copy_n(c.input<T>(1) + (n * y[1] + count - 1) * width, width,
                    c.output<T>(0) + c.input<int32_t>(3)[n] * width);
      }
    }
  });
}

std::unique_ptr<Kernel> reference_token_positions(const KernelRequest& request) {
  return make_naive_of<int32_t>(request, [](const NaiveCall& c, int32_t) {
    const int64_t tokens = c.attributes.integer("tokens"), limit = c.attributes.integer("limit");
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      const int64_t position = c.input<int32_t>(0)[i / tokens] + i % tokens;
      c.output<int32_t>(0)[i] = static_cast<int32_t>(std::min(position, limit - 1));
    }
  });
}

}  // namespace dltrain
