#include "cuda_runtime/fake_attention.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "cuda/vendor/cudnn_attention_plan.h"
#include "cuda_runtime/fake_runtime.h"
#include "tensor/low_precision.h"

namespace dltrain {

namespace fake_cuda {
FakeAttention& fake_attention() {
  static FakeAttention instance;
  return instance;
}
}  // namespace fake_cuda

namespace {

using fake_cuda::fake_attention;
using Ids = CudnnAttentionPlan;

struct Element {
  DType dtype;
  float get(const void* data, int64_t i) const {
    return dtype == DType::bf16 ? to_f32(static_cast<const Bf16*>(data)[i])
                                : to_f32(static_cast<const F16*>(data)[i]);
  }
  void set(void* data, int64_t i, double value) const {
    dtype == DType::bf16 ? from_f32(static_cast<float>(value), static_cast<Bf16*>(data)[i])
                         : from_f32(static_cast<float>(value), static_cast<F16*>(data)[i]);
  }
};

// One head of one sample.
struct Head {
  const AttentionCall& c;
  CudnnAttentionPlan::Addresses& a;
  AttentionBias bias;
  int64_t n, h, g = c.kv_head(h);
  Element e{c.dtype};

  int64_t q(int64_t t) const { return c.query(n, t, h); }
  int64_t k(int64_t s) const { return (n * c.keys + s) * c.key_stride + g * c.head_dim; }
  double dot(Ids::Id x, int64_t i, Ids::Id y, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < c.head_dim; ++d) sum += e.get(a[x], i + d) * e.get(a[y], j + d);
    return sum;
  }
  double score(int64_t t, int64_t s) const {
    const int64_t row = n * bias.rows + (bias.rows > 1 ? t : 0);
    const double more = a.contains(Ids::kBias) ? e.get(a[Ids::kBias], row * bias.stride + s) : 0;
    return c.scale * dot(Ids::kQ, q(t), Ids::kK, k(s)) + more;
  }
  double kept(int64_t t, int64_t s) const {
    if (c.dropout == 0) return 1;
    const auto* seed = static_cast<const uint64_t*>(a[Ids::kSeed]);
    const auto* offset = static_cast<const uint64_t*>(a[Ids::kOffset]);
    const auto index = static_cast<uint64_t>(((n * c.heads + h) * c.queries + t) * c.keys + s);
    return random_uniform(*seed, 0, *offset, index) >= c.dropout ? 1 / (1 - c.dropout) : 0;
  }
  // Calls f(s, score) for the keys of a query.
  template <typename F>
  void each_key(int64_t t, const F& f) const {
    for (int64_t s = c.pattern.first_key(t); s < c.pattern.end_key(t, c.keys); ++s)
      f(s, score(t, s));
  }

  void forward(int64_t t) const {
    double most = -INFINITY, sum = 0;
    each_key(t, [&](int64_t, double x) { most = std::max(most, x); });
    std::vector<double> y(static_cast<size_t>(c.head_dim));
    each_key(t, [&](int64_t s, double x) {
      const double weight = std::exp(x - most);
      sum += weight;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        y[static_cast<size_t>(d)] += weight * kept(t, s) * e.get(a[Ids::kV], k(s) + d);
      }
    });
    for (int64_t d = 0; d < c.head_dim; ++d) {
      e.set(a[Ids::kY], c.output(n, t, h) + d, y[static_cast<size_t>(d)] / sum);
    }
    static_cast<float*>(a[Ids::kSums])[c.row(n, h, t)] = static_cast<float>(most + std::log(sum));
  }
  void backward(int64_t t, std::vector<double>& dk, std::vector<double>& dv) const {
    const int64_t y = c.output(n, t, h);
    const double delta = dot(Ids::kDy, y, Ids::kY, y);
    std::vector<double> dq(static_cast<size_t>(c.head_dim));
    each_key(t, [&](int64_t s, double x) {
      const double weight = std::exp(x - static_cast<float*>(a[Ids::kSums])[c.row(n, h, t)]);
      const double slope =
          weight * (dot(Ids::kDy, y, Ids::kV, k(s)) * kept(t, s) - delta) * c.scale;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const auto at = static_cast<size_t>(s * c.head_dim + d);
        dq[static_cast<size_t>(d)] += slope * e.get(a[Ids::kK], k(s) + d);
        dk[at] += slope * e.get(a[Ids::kQ], q(t) + d);
        dv[at] += weight * kept(t, s) * e.get(a[Ids::kDy], y + d);
      }
    });
    for (int64_t d = 0; d < c.head_dim; ++d)
      e.set(a[Ids::kDq], q(t) + d, dq[static_cast<size_t>(d)]);
  }
};

void compute(const AttentionCall& c, bool backward, CudnnAttentionPlan::Addresses a) {
  if (c.dropout > 0) fake_attention().seeds.push_back(*static_cast<uint64_t*>(a[Ids::kSeed]));
  const auto group = static_cast<size_t>(c.keys * c.head_dim);
  for (int64_t n = 0; n < c.samples; ++n) {
    std::vector<double> dk, dv;
    for (int64_t h = 0; h < c.heads; ++h) {
      const Head head{c, a, bias_of(c, backward), n, h};
      if (h % (c.heads / c.kv_heads) == 0) {
        dk.assign(group, 0);
        dv.assign(group, 0);
      }
      for (int64_t t = 0; t < c.queries; ++t) {
        backward ? head.backward(t, dk, dv) : head.forward(t);
      }
      if (!backward || (h + 1) % (c.heads / c.kv_heads) != 0) continue;
      for (size_t i = 0; i < group; ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t element = head.k(at / c.head_dim) + at % c.head_dim;
        head.e.set(a[Ids::kDk], element, dk[i]);
        head.e.set(a[Ids::kDv], element, dv[i]);
      }
    }
  }
}

struct Stored {
  AttentionCall call;
  bool backward = false;
  size_t proposal = 0;
};

class FakePlan final : public CudnnAttentionPlan {
 public:
  explicit FakePlan(const Stored& plan) : plan_(plan) {
    for (size_t i = 0; i < fake_attention().milliseconds.size(); ++i) {
      names_.push_back("engine " + std::to_string(i));
    }
  }
  const std::vector<std::string>& proposals() const override { return names_; }
  bool select(size_t proposal) override {
    ++fake_attention().builds;
    plan_.proposal = proposal;
    return fake_attention().milliseconds[proposal] >= 0;
  }
  bool select(const std::string& name) override {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name && select(i)) return true;
    }
    return select_first();
  }
  bool select_first() {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (select(i)) return true;
    }
    return false;
  }
  size_t workspace_bytes() const override { return 1024 * (plan_.proposal + 1); }
  std::string stored() const override {
    return {reinterpret_cast<const char*>(&plan_), sizeof plan_};
  }
  void run(cudnnHandle_t handle, Addresses& addresses, void*) const override {
    ++fake_attention().runs;
    fake_cuda::run_plan(
        fake_attention().milliseconds[plan_.proposal],
        static_cast<cudaStream_t>(fake_cuda::stream_of(handle)),
        [plan = plan_, addresses] { compute(plan.call, plan.backward, addresses); });
  }

 private:
  Stored plan_;
  std::vector<std::string> names_;
};

}  // namespace

std::string CudnnAttentionPlan::format() {
  return "of the tests";
}

std::unique_ptr<CudnnAttentionPlan> plan_attention(const AttentionCall& call, bool backward,
                                                   const AttentionTarget&, std::string* why) {
  ++fake_attention().plans;
  if (backward && !fake_attention().has_backward) {
    if (why != nullptr) *why = "no deterministic backward";
    return nullptr;
  }
  auto plan = std::make_unique<FakePlan>(Stored{call, backward});
  if (!plan->select_first()) return nullptr;
  return plan;
}

std::unique_ptr<CudnnAttentionPlan> restore_attention(const std::string& stored,
                                                      const AttentionTarget&) {
  Stored plan;
  if (stored.size() != sizeof plan) return nullptr;
  std::memcpy(&plan, stored.data(), sizeof plan);
  ++fake_attention().restored;
  return std::make_unique<FakePlan>(plan);
}

}  // namespace dltrain
