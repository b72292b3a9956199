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
  Naive(const NaiveCall& c, size_t first)
      : a(attention_sizes(c.op, std::span(c.inputs).subspan(first), c.attributes)),
        first(first),
        scale(c.attributes.number("scale", 1 / std::sqrt(static_cast<double>(a.head_dim)))),
        pattern(c.attributes),
        dropout(c.attributes.number("dropout")),
        stream(static_cast<uint64_t>(c.attributes.integer("stream"))),
        weights(static_cast<size_t>(a.keys)) {}

  const T* q(const NaiveCall& c) const { return c.input<T>(first); }
  const T* k(const NaiveCall& c) const { return c.input<T>(a.packed ? first : first + 1); }
  const T* v(const NaiveCall& c) const { return c.input<T>(a.packed ? first : first + 2); }

  // Returns true if query t of sample n attends to key s.
  bool sees(const NaiveCall& c, int64_t n, int64_t t, int64_t s) const {
    if (s < pattern.first_key(t) || s >= pattern.end_key(t, a.keys)) return false;
    if (!pattern.masked) return true;
    const size_t at = first + (a.packed ? 1 : 3);
    const auto* mask = c.input<int32_t>(at);
    return c.inputs[at].shape.rank() == 1 ? s < mask[n] : mask[n * a.keys + s] != 0;
  }

  double score(const NaiveCall& c, int64_t n, int64_t h, int64_t t, int64_t s) const {
    double sum = 0;
    const int64_t from = a.query(n, t, h), to = a.key(n, s, a.kv_head(h));
    for (int64_t d = 0; d < a.head_dim; ++d) sum += double{q(c)[from + d]} * k(c)[to + d];
    const double distance = pattern.alibi ? static_cast<double>(std::abs(t - s)) : 0;
    return scale * sum - distance * alibi_slope(h, a.heads);
  }

  // Returns the dropout's factor of a weight.
  double kept(const NaiveCall& c, int64_t n, int64_t h, int64_t t, int64_t s) const {
    if (dropout == 0) return 1;
    const StepInputs& state = static_cast<const StepState*>(c.in.back())->in;
    const int64_t element =
        (((state.sample_offset + n) * a.heads + h) * a.queries + t) * a.keys + s;
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

  AttentionSizes a;
  size_t first;
  double scale;
  AttentionPattern pattern;
  double dropout;
  uint64_t stream;
  mutable std::vector<double> weights;  // of one row
};

template <typename T>
struct Attention : Naive<T> {
  explicit Attention(const NaiveCall& c) : Naive<T>(c, 0) {}

  void run(const NaiveCall& c) const {
    const auto& a = this->a;
    this->each_row([&](int64_t n, int64_t h, int64_t t) {
      auto& w = this->weights;
      const int64_t count = a.keys;
      for (int64_t s = 0; s < count; ++s) {
        w[static_cast<size_t>(s)] = this->sees(c, n, t, s) ? this->score(c, n, h, t, s) : -HUGE_VAL;
      }
      const double most = *std::max_element(w.begin(), w.end());
      const bool none = most == -HUGE_VAL;
      double sum = 0;
      for (double& weight : w) sum += weight = none ? 0 : std::exp(weight - most);
      for (int64_t s = 0; s < count && !none; ++s) {
        w[static_cast<size_t>(s)] *= this->kept(c, n, h, t, s) / sum;
      }
      for (int64_t d = 0; d < a.head_dim; ++d) {
        double y = 0;
        for (int64_t s = 0; s < count; ++s) {
          y += w[static_cast<size_t>(s)] * this->v(c)[a.value(n, s, a.kv_head(h)) + d];
        }
        c.put<T>(0, a.output(n, t, h) + d, y);
      }
      c.put<T>(1, a.row(n, h, t), none ? HUGE_VAL : most + std::log(sum));
    });
  }
};

template <typename T>
struct AttentionBackward : Naive<T> {
  explicit AttentionBackward(const NaiveCall& c) : Naive<T>(c, 3) {
    for (const TensorSpec& spec : c.outputs) {
      sums.emplace_back(static_cast<size_t>(spec.shape.elements()));
    }
  }

  void run(const NaiveCall& c) const {
    const auto& a = this->a;
    const T *dy = c.input<T>(0), *y = c.input<T>(1), *logs = c.input<T>(2);
    for (auto& sum : sums) std::fill(sum.begin(), sum.end(), 0.0);
    double *dq = sums[0].data(), *dk = sums[a.packed ? 0 : 1].data(),
           *dv = sums[a.packed ? 0 : 2].data();
    this->each_row([&](int64_t n, int64_t h, int64_t t) {
      const int64_t out = a.output(n, t, h), query = a.query(n, t, h), g = a.kv_head(h);
      double delta = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) delta += double{dy[out + d]} * y[out + d];
      for (int64_t s = 0; s < a.keys; ++s) {
        if (!this->sees(c, n, t, s)) continue;
        const int64_t key = a.key(n, s, g), value = a.value(n, s, g);
        const double p = std::exp(this->score(c, n, h, t, s) - logs[a.row(n, h, t)]);
        const double kept = this->kept(c, n, h, t, s);
        double dp = 0;
        for (int64_t d = 0; d < a.head_dim; ++d) {
          dp += double{dy[out + d]} * this->v(c)[value + d];
          dv[value + d] += p * kept * dy[out + d];
        }
        const double ds = this->scale * p * (dp * kept - delta);
        for (int64_t d = 0; d < a.head_dim; ++d) {
          dq[query + d] += ds * this->k(c)[key + d];
          dk[key + d] += ds * this->q(c)[query + d];
        }
      }
    });
    for (size_t i = 0; i < sums.size(); ++i) {
      for (size_t e = 0; e < sums[i].size(); ++e) c.put<T>(i, static_cast<int64_t>(e), sums[i][e]);
    }
  }

  mutable std::vector<std::vector<double>> sums;  // of each output
};

}  // namespace

std::unique_ptr<Kernel> reference_attention(const KernelRequest& request) {
  return make_naive<Attention>(request);
}
std::unique_ptr<Kernel> reference_attention_backward(const KernelRequest& request) {
  return make_naive<AttentionBackward>(request);
}

}  // namespace dltrain
