// reduce: sum, mean or max over axes of an f32, bf16 or f16 tensor, in f32.
//
// The tensor is treated as [outer, reduced, inner]. Rows of the reduced axis
// are added in fixed chunks, and the chunks' results in order and in double, so that sums do not
// depend on the number of threads. Non-adjacent reduced axes take several rounds, each over one run
// of axes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

template <bool max, typename V>
HWY_INLINE V combine(V a, V b) {
  // Returns the sum, or the maximum (NaN if one is NaN).
  if constexpr (max) return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
  return hn::Add(a, b);
}

// out[inner] = the reduction of `rows` rows of `inner` values.
template <bool max, typename T>
void reduce_columns(const T* x, int64_t rows, int64_t inner, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto start = hn::Set(d, max ? -std::numeric_limits<float>::infinity() : 0.0f);
  int64_t i = 0;
  for (; i + 4 * lanes <= inner; i += 4 * lanes) {
    auto s0 = start, s1 = start, s2 = start, s3 = start;
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = x + r * inner + i;
      s0 = combine<max>(s0, load(row));
      s1 = combine<max>(s1, load(row + lanes));
      s2 = combine<max>(s2, load(row + 2 * lanes));
      s3 = combine<max>(s3, load(row + 3 * lanes));
    }
    hn::StoreU(s0, d, out + i);
    hn::StoreU(s1, d, out + i + lanes);
    hn::StoreU(s2, d, out + i + 2 * lanes);
    hn::StoreU(s3, d, out + i + 3 * lanes);
  }
  for (; i < inner; i += lanes) {
    const auto count = static_cast<size_t>(std::min(lanes, inner - i));
    auto s = start;
    for (int64_t r = 0; r < rows; ++r) {
      s = combine<max>(s, load_n(x + r * inner + i, count));
    }
    store_n(s, out + i, count);
  }
}

// Reduces `count` contiguous values.
template <bool max, typename T>
float reduce_row(const T* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float start = max ? -std::numeric_limits<float>::infinity() : 0.0f;
  auto s0 = hn::Set(d, start), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    s0 = combine<max>(s0, load(x + i));
    s1 = combine<max>(s1, load(x + i + lanes));
  }
  s0 = combine<max>(s0, s1);
  HWY_ALIGN float lane[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(s0, d, lane);
  float out = start;
  const auto add = [&](float v) { out = max ? (v > out || std::isnan(v) ? v : out) : out + v; };
  for (int64_t l = 0; l < lanes; ++l) add(lane[l]);
  for (; i < count; ++i) add(to_f32(x[i]));
  return out;
}

// For few columns: several rows fill a vector; lanes are combined at the end.
template <bool max, typename T>
void reduce_narrow(const T* x, int64_t rows, int64_t inner, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t rows_at_once = lanes / std::gcd(inner, lanes), width = rows_at_once * inner;
  float wide[HWY_MAX_BYTES / sizeof(float) * HWY_MAX_BYTES / sizeof(float)];
  const int64_t whole = rows / rows_at_once;
  reduce_columns<max>(x, whole, width, wide);
  std::copy_n(wide, inner, out);
  const auto fold = [&](const auto* row) {
    for (int64_t i = 0; i < inner; ++i) {
      const float v = to_f32(row[i]);
      out[i] = max ? (v > out[i] || std::isnan(v) ? v : out[i]) : out[i] + v;
    }
  };
  for (int64_t r = 1; r < rows_at_once; ++r) fold(wide + r * inner);
  for (int64_t r = whole * rows_at_once; r < rows; ++r) fold(x + r * inner);
}

template <bool max, typename T>
void columns_of(const T* x, int64_t rows, int64_t inner, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  if (inner == 1) {
    *out = reduce_row<max>(x, rows);
  } else if (inner < lanes && rows > lanes) {
    reduce_narrow<max>(x, rows, inner, out);
  } else {
    reduce_columns<max>(x, rows, inner, out);
  }
}

// `begin`: the first element of x that is read.
void columns(bool max, DType dtype, const void* x, int64_t begin, int64_t rows, int64_t inner,
             float* out) {
  with_element_type(dtype, [&]<typename T>(T) {
    const T* from = static_cast<const T*>(x) + begin;
    max ? columns_of<true>(from, rows, inner, out) : columns_of<false>(from, rows, inner, out);
  });
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(columns);

struct ReductionPass {
  int64_t outer, reduced, inner;
  int64_t chunk_rows;  // of the reduced axis
  int64_t chunks() const { return ceil_div(reduced, chunk_rows); }
};

// Approximate values per chunk: enough to be worth starting a thread, few enough for the cache.
constexpr int64_t kChunkValues = 16384;

std::vector<ReductionPass> plan_passes(const Shape& shape, std::vector<int64_t> axes) {
  std::sort(axes.begin(), axes.end());
  std::vector<int64_t> extents(shape.begin(), shape.end());
  std::vector<ReductionPass> passes;
  for (size_t last = axes.size(); last > 0;) {  // runs of adjacent axes, innermost first
    size_t first = last - 1;
    while (first > 0 && axes[first - 1] + 1 == axes[first]) --first;
    ReductionPass pass{1, 1, 1, 1};
    for (size_t i = 0; i < extents.size(); ++i) {
      const auto axis = static_cast<int64_t>(i);
      int64_t& part = axis < axes[first]       ? pass.outer
                      : axis <= axes[last - 1] ? pass.reduced
                                               : pass.inner;
      part *= extents[i];
      if (&part == &pass.reduced) extents[i] = 1;
    }
    pass.chunk_rows =
        std::clamp<int64_t>(kChunkValues / std::max<int64_t>(1, pass.inner), 16, 16384);
    passes.push_back(pass);
    last = first;
  }
  if (passes.empty()) passes.push_back({1, 1, shape.elements(), 1});
  return passes;
}

class Reduce final : public Kernel {
 public:
  explicit Reduce(const KernelRequest& request)
      : passes_(plan_passes(request.inputs[0].shape, request.attributes.integers("axes"))),
        max_(request.attributes.text("kind") == "max"),
        dtype_(request.inputs[0].dtype),
        accumulate_(request.accumulate) {
    const double in = static_cast<double>(request.inputs[0].shape.elements());
    const double out = static_cast<double>(request.outputs[0].shape.elements());
    if (request.attributes.text("kind") == "mean") scale_ = out / in;
    for (const ReductionPass& r : passes_) {
      partial_floats_ = std::max(partial_floats_, r.outer * r.chunks() * r.inner);
      between_floats_ = std::max(between_floats_, r.outer * r.inner);
    }
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(partial_floats_ + 2 * between_floats_) * sizeof(float);
  }

  void run(const Bindings& bindings, Stream&) const override {
    auto* partials = static_cast<float*>(bindings.workspace);
    const void* from = bindings.inputs[0];
    DType dtype = dtype_;  // of the first round; between rounds f32
    for (size_t i = 0; i < passes_.size(); ++i) {
      const bool last = i + 1 == passes_.size();
      float* to =
          last ? bindings.output<float>(0) : partials + partial_floats_ + between_floats_ * (i % 2);
      run_pass(passes_[i], dtype, from, partials, to, last);
      from = to;
      dtype = DType::f32;
    }
  }

 private:
  void run_pass(const ReductionPass& r, DType dtype, const void* from, float* partials, float* to,
                bool last) const {
    const int64_t chunks = r.chunks();
    const auto function = HWY_DYNAMIC_DISPATCH(columns);
    const int64_t work = std::min(r.chunk_rows, r.reduced) * r.inner;
    const int64_t grain = std::max<int64_t>(1, kChunkValues / std::max<int64_t>(1, work));
    parallel_each(r.outer * chunks, grain, [&](int64_t at) {
      const int64_t o = at / chunks, first = at % chunks * r.chunk_rows;
      const int64_t rows = std::min(r.chunk_rows, r.reduced - first);
      function(max_, dtype, from, (o * r.reduced + first) * r.inner, rows, r.inner,
               partials + at * r.inner);
    });
    parallel_each(r.outer * r.inner, 2048, [&](int64_t at) {
      const float* partial = partials + at / r.inner * chunks * r.inner + at % r.inner;
      finish(combine_chunks(partial, chunks, r.inner), to[at], last);
    });
  }

  double combine_chunks(const float* partial, int64_t chunks, int64_t stride) const {
    double value = *partial;
    for (int64_t c = 1; c < chunks; ++c) {
      const double v = partial[c * stride];
      value = !max_ ? value + v : v > value || std::isnan(v) ? v : value;
    }
    return value;
  }

  void finish(double value, float& out, bool last) const {
    if (!last) {
      out = static_cast<float>(value);
      return;
    }
    const auto result = static_cast<float>(value * scale_);
    out = accumulate_ ? out + result : result;
  }

  std::vector<ReductionPass> passes_;
  bool max_;
  DType dtype_;
  bool accumulate_;
  double scale_ = 1;
  int64_t partial_floats_ = 0, between_floats_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_reduce(const KernelRequest& request) {
  if (widen_function(request.inputs[0].dtype) == nullptr) return nullptr;
  const std::string kind = request.attributes.text("kind");
  check_internal(kind == "sum" || kind == "mean" || kind == "max", "reduce: kind '{}'", kind);
  if (request.inputs[0].shape.elements() == 0) return nullptr;
  return std::make_unique<Reduce>(request);
}

}  // namespace dltrain
#endif
