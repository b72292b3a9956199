// attention and its backward: every softmax weight is computed separately, in double.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

// Shared by forward and backward. `first`: the index of the queries among the inputs.
template <typename T>
struct Naive {
  Naive(const NaiveCall& call, size_t first)
      : c(call),
        a(attention_sizes(c.op, std::span(c.inputs).subspan(first), c.attributes)),
        first(first),
        scale(c.attributes.number("scale", 1 / std::sqrt(static_cast<double>(a.head_dim)))),
        pattern(c.attributes),
        dropout(c.attributes.number("dropout")),
        stream(static_cast<uint64_t>(c.attributes.integer("stream"))) {}

  const T* q() const { return c.input<T>(first); }
  const T* k() const { return c.input<T>(a.packed ? first : first + 1); }
  const T* v() const { return c.input<T>(a.packed ? first : first + 2); }

  // Returns true if query t of sample n attends to key s.
  bool sees(int64_t n, int64_t t, int64_t s) const {
    if (s < pattern.first_key(t) || s >= pattern.end_key(t, a.keys)) return false;
    if (!pattern.masked) return true;
    const size_t at = first + (a.packed ? 1 : 3);
    const auto* mask = c.input<int32_t>(at);
    if (pattern.documents) return s >= pattern.first_query + t - mask[n * a.queries + t];
    return c.inputs[at].shape.rank() == 1 ? a.key_offset + s < mask[n] : mask[n * a.keys + s] != 0;
  }

  double score(int64_t n, int64_t h, int64_t t, int64_t s) const {
    double sum = 0;
    const int64_t from = a.query(n, t, h), to = a.key(n, s, a.kv_head(h));
    for (int64_t d = 0; d < a.head_dim; ++d) {
      sum += c.factor(q()[from + d]) * c.factor(k()[to + d]);
    }
    const double distance =
        pattern.alibi ? static_cast<double>(std::abs(a.first_query + t - s)) : 0;
    return scale * sum - distance * a.slope(h);
  }

  // Returns the dropout's factor of a weight.
  double kept(int64_t n, int64_t h, int64_t t, int64_t s) const {
    if (dropout == 0) return 1;
    const StepInputs& state = static_cast<const StepState*>(c.in.back())->in;
    const int64_t element = a.random_row(state.sample_offset + n, h, t) + s;
    const double u = random_uniform(state.seed, stream, static_cast<uint64_t>(state.step),
                                    static_cast<uint64_t>(element));
    return u >= dropout ? 1 / (1 - dropout) : 0;
  }

  template <typename F>
  void each_row(const F& f) const {
    for (int64_t n = 0; n < a.samples; ++n) {
      for (int64_t h = 0; h < a.heads; ++h) {
        for (int64_t t = 0; t < a.queries; ++t) f(n, h, t);
      }
    }
  }

  const NaiveCall& c;
  AttentionSizes a;
  size_t first;
  double scale;
  AttentionPattern pattern;
  double dropout;
  uint64_t stream;
};

}  // namespace

std::unique_ptr<Kernel> reference_attention(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Naive<T> op(c, 0);
    const AttentionSizes& a = op.a;
    std::vector<double> w(static_cast<size_t>(a.keys));
    op.each_row([&](int64_t n, int64_t h, int64_t t) {
      for (int64_t s = 0; s < a.keys; ++s) {
        w[static_cast<size_t>(s)] = op.sees(n, t, s) ? op.score(n, h, t, s) : -HUGE_VAL;
      }
      const double most = *std::max_element(w.begin(), w.end());
      const bool none = most == -HUGE_VAL;
      double sum = 0;
      for (double& weight : w) sum += weight = none ? 0 : std::exp(weight - most);
      for (int64_t s = 0; s < a.keys && !none; ++s) {
        w[static_cast<size_t>(s)] *= op.kept(n, h, t, s) / sum;
      }
      for (int64_t d = 0; d < a.head_dim; ++d) {
        double y = 0;
        for (int64_t s = 0; s < a.keys; ++s) {
          y += c.factor(w[static_cast<size_t>(s)]) *
               c.factor(op.v()[a.value(n, s, a.kv_head(h)) + d]);
        }
        c.put<T>(0, a.output(n, t, h) + d, y);
      }
      c.put<T>(1, a.row(n, h, t), none ? HUGE_VAL : most + std::log(sum));
    });
  });
}

std::unique_ptr<Kernel> reference_attention_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Naive<T> op(c, 3);
    const AttentionSizes& a = op.a;
    std::vector<std::vector<double>> sums;  // of each output
    for (size_t i = 0; i < c.outputs.size(); ++i) sums.push_back(c.zeros(i));
    const T *dy = c.input<T>(0), *y = c.input<T>(1), *logs = c.input<T>(2);
    double *dq = sums[0].data(), *dk = sums[a.packed ? 0 : 1].data(),
           *dv = sums[a.packed ? 0 : 2].data();
    op.each_row([&](int64_t n, int64_t h, int64_t t) {
      const int64_t out = a.output(n, t, h), query = a.query(n, t, h), g = a.kv_head(h);
      double delta = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) delta += double{dy[out + d]} * y[out + d];
      for (int64_t s = 0; s < a.keys; ++s) {
        if (!op.sees(n, t, s)) continue;
        const int64_t key = a.key(n, s, g), value = a.value(n, s, g);
        const double p = std::exp(op.score(n, h, t, s) - logs[a.row(n, h, t)]);
        const double kept = op.kept(n, h, t, s);
        double dp = 0;
        for (int64_t d = 0; d < a.head_dim; ++d) {
          dp += c.factor(dy[out + d]) * c.factor(op.v()[value + d]);
          dv[value + d] += c.factor(p * kept) * c.factor(dy[out + d]);
        }
        const double ds = c.factor(op.scale * p * (dp * kept - delta));
        for (int64_t d = 0; d < a.head_dim; ++d) {
          dq[query + d] += ds * c.factor(op.k()[key + d]);
          dk[key + d] += ds * c.factor(op.q()[query + d]);
        }
      }
    });
    for (size_t i = 0; i < sums.size(); ++i) c.put_all<T>(i, sums[i]);
  });
}

}  // namespace dltrain
