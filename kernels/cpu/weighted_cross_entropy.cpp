// weighted_cross_entropy and its gradient. Rows are processed in fixed chunks whose losses are
// added in double and in order, so that the loss does not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_WEIGHTED_CROSS_ENTROPY_ONCE
#define DLTRAIN_CPU_WEIGHTED_CROSS_ENTROPY_ONCE
namespace dltrain {
namespace {

struct WeightedArguments {
  const float* logits = nullptr;
  const int32_t* labels = nullptr;  // one of the two is nullptr
  const float* distributions = nullptr;
  const int32_t* mask = nullptr;  // optional, with distributions only
  float* log_sum_exp = nullptr;   // written by the forward, read by the backward
  int64_t classes = 0;
  double smoothing = 0, scale = 1;
  bool relative = false;
  std::span<const float> weights;  // one a class
  double weight_sum = 0;

  bool counts(int64_t row) const {
    if (labels != nullptr) return labels[row] >= 0;
    return (mask == nullptr || mask[row] >= 0) && !std::isnan(distributions[row * classes]);
  }
};

// Returns the index of the maximum, the first on ties.
inline int64_t first_greatest(const float* row, int64_t count) {
  return std::max_element(row, row + count) - row;
}

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weighted_cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// One vector of a row in several arrays; lanes beyond the row are zero.
struct RowLanes {
  int64_t at, count;

  HWY_INLINE FloatVec load(const float* row) const {
    const Floats d;
    if (count == static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, row + at);
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, row + at);
  }
  HWY_INLINE FloatVec only_used(FloatVec v) const {
    return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<size_t>(count)), v);
  }
};

template <typename F>
HWY_INLINE void along(int64_t classes, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t i = 0; i < classes; i += lanes) f(RowLanes{i, std::min(lanes, classes - i)});
}

HWY_INLINE double total(FloatVec v) {
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(Floats(), v)));
}

// A part of a row of targets, without the label's own term.
HWY_INLINE FloatVec smoothed(const WeightedArguments& a, int64_t row, RowLanes part, FloatVec keep,
                             FloatVec even) {
  if (a.labels != nullptr) return even;
  return hn::MulAdd(keep, part.load(a.distributions + row * a.classes), even);
}

// Σq and Σq·(x − shift) of a row (q: weighted, smoothed targets), without the label's own term.
struct TargetSums {
  double mass, dot;
};

HWY_INLINE TargetSums target_sums(const WeightedArguments& a, int64_t row, const float* x,
                                  float shift) {
  const FloatVec keep = constant(1 - a.smoothing);
  const FloatVec even = constant(a.smoothing / static_cast<double>(a.classes));
  const FloatVec shift_vec = hn::Set(Floats(), shift);
  FloatVec mass = hn::Zero(Floats()), dot = hn::Zero(Floats());
  along(a.classes, [&](RowLanes part) HWY_ATTR {
    const FloatVec q = hn::Mul(part.load(a.weights.data()), smoothed(a, row, part, keep, even));
    mass = hn::Add(mass, q);
    // A logit of a class that does not count may be -infinity.
    const FloatVec distance = part.only_used(hn::Sub(part.load(x), shift_vec));
    dot = hn::MulAdd(q, hn::IfThenElseZero(hn::Ne(q, hn::Zero(Floats())), distance), dot);
  });
  return {total(mass), total(dot)};
}

HWY_INLINE TargetSums with_label(const WeightedArguments& a, int64_t row, const float* x,
                                 float shift) {
  if (a.labels == nullptr) return target_sums(a, row, x, shift);
  TargetSums out{0, 0};
  if (a.smoothing != 0) out = target_sums(a, row, x, shift);
  const auto label = static_cast<size_t>(a.labels[row]);
  const double own = (1 - a.smoothing) * static_cast<double>(a.weights[label]);
  return {out.mass + own, out.dot + own * static_cast<double>(x[label] - shift)};
}

double negative_entropy(const float* targets, int64_t classes) {
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) {
    const double t = targets[k];
    if (t > 0) sum += t * std::log(t);
  }
  return sum;
}

LossSums weighted_forward(const WeightedArguments& a, int64_t begin, int64_t end) {
  LossSums sums;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = a.logits + r * a.classes;
    const int64_t best = first_greatest(x, a.classes);
    const float shift = x[best];
    const FloatVec shift_vec = hn::Set(Floats(), shift);
    FloatVec exp_sum = hn::Zero(Floats());
    along(a.classes, [&](RowLanes part) HWY_ATTR {
      const FloatVec e = exp_vec(hn::Sub(part.load(x), shift_vec));
      exp_sum = hn::Add(exp_sum, part.only_used(e));
    });
    const double log_sum = std::log(total(exp_sum));  // of exp(x − shift)
    a.log_sum_exp[r] = static_cast<float>(static_cast<double>(shift) + log_sum);
    if (!a.counts(r)) continue;
    const TargetSums q = with_label(a, r, x, shift);
    sums.loss += q.mass * log_sum - q.dot;
    if (a.labels != nullptr) {
      sums.correct += best == a.labels[r] ? 1 : 0;
      continue;
    }
    const float* targets = a.distributions + r * a.classes;
    if (a.relative) sums.loss += negative_entropy(targets, a.classes);
    sums.correct += best == first_greatest(targets, a.classes) ? 1 : 0;
  }
  return {a.scale * sums.loss, sums.correct};
}

void weighted_backward(const WeightedArguments& a, double dloss, float* dlogits, int64_t begin,
                       int64_t end) {
  const Floats d;
  const double factor = dloss * a.scale;
  const double even = a.smoothing / static_cast<double>(a.classes);
  const FloatVec factor_vec = constant(factor), even_vec = constant(even);
  const FloatVec keep = constant(1 - a.smoothing);
  for (int64_t r = begin; r < end; ++r) {
    const float* x = a.logits + r * a.classes;
    float* out = dlogits + r * a.classes;
    if (!a.counts(r)) {
      std::fill_n(out, a.classes, 0.0f);
      continue;
    }
    double mass = 0, own = 0;
    if (a.labels != nullptr) {
      own = (1 - a.smoothing) * static_cast<double>(a.weights[static_cast<size_t>(a.labels[r])]);
      mass = own + even * a.weight_sum;
    } else {
      mass = target_sums(a, r, x, 0).mass;
    }
    const FloatVec scaled_mass = constant(factor * mass);
    const FloatVec shift = hn::Set(d, a.log_sum_exp[r]);
    along(a.classes, [&](RowLanes part) HWY_ATTR {
      const FloatVec softmax = exp_vec(hn::Sub(part.load(x), shift));
      const FloatVec q = hn::Mul(part.load(a.weights.data()), smoothed(a, r, part, keep, even_vec));
      const FloatVec gradient = hn::MulSub(softmax, scaled_mass, hn::Mul(factor_vec, q));
      hn::BlendedStore(gradient, hn::FirstN(d, static_cast<size_t>(part.count)), d, out + part.at);
    });
    if (a.labels != nullptr) out[a.labels[r]] -= static_cast<float>(factor * own);
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(weighted_forward);
HWY_EXPORT(weighted_backward);

std::vector<float> class_weights(const KernelRequest& request) {
  std::vector<float> out(static_cast<size_t>(request.inputs[0].shape[-1]), 1.0f);
  const auto weights = request.attributes.numbers("class_weights");
  std::transform(weights.begin(), weights.end(), out.begin(),
                 [](double w) { return static_cast<float>(w); });
  return out;
}

WeightedArguments arguments(const KernelRequest& request) {
  WeightedArguments out;
  out.classes = request.inputs[0].shape[-1];
  out.smoothing = request.attributes.number("label_smoothing", 0);
  out.scale = request.attributes.number("scale", 1);
  out.relative = request.attributes.boolean("relative");
  for (float w : class_weights(request)) out.weight_sum += static_cast<double>(w);
  return out;
}

// `mask`: the index of the optional labels that accompany distributions.
void bind_targets(WeightedArguments& arguments, const Bindings& b, bool labels, size_t mask) {
  arguments.logits = b.input<float>(0);
  arguments.labels = labels ? b.input<int32_t>(1) : nullptr;
  arguments.distributions = labels ? nullptr : b.input<float>(1);
  arguments.mask = b.input<int32_t>(mask);
}

}  // namespace

std::unique_ptr<Kernel> make_weighted_cross_entropy(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const WeightedArguments call = arguments(request);
  const std::vector<float> weights = class_weights(request);
  const bool labels = request.inputs[1].dtype == DType::i32;
  const int64_t rows = request.inputs[0].shape.elements() / call.classes;
  const int64_t chunk = std::clamp<int64_t>(4096 / call.classes, 1, 64);
  const int64_t chunks = ceil_div(rows, chunk);
  const auto run = [=](const Bindings& b, Stream&) {
    WeightedArguments weighted = call;
    weighted.weights = weights;
    bind_targets(weighted, b, labels, 2);
    weighted.log_sum_exp = b.output<float>(1);
    auto* sums = static_cast<LossSums*>(b.workspace);
    const auto function = HWY_DYNAMIC_DISPATCH(weighted_forward);
    parallel_each(chunks, 1, [&](int64_t c) {
      sums[c] = function(weighted, c * chunk, std::min(rows, (c + 1) * chunk));
    });
    const LossSums all = total_of(sums, chunks);
    *b.output<double>(0) = all.loss;
    *b.output<double>(2) = all.correct;
  };
  return make_kernel(run, static_cast<size_t>(chunks) * sizeof(LossSums));
}

std::unique_ptr<Kernel> make_weighted_cross_entropy_backward(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const WeightedArguments call = arguments(request);
  const std::vector<float> weights = class_weights(request);
  const bool labels = request.inputs[1].dtype == DType::i32;
  const int64_t rows = request.inputs[0].shape.elements() / call.classes;
  return make_kernel([=](const Bindings& b, Stream&) {
    WeightedArguments weighted = call;
    weighted.weights = weights;
    bind_targets(weighted, b, labels, 4);
    weighted.log_sum_exp = static_cast<float*>(b.inputs[2]);
    const auto function = HWY_DYNAMIC_DISPATCH(weighted_backward);
    const int64_t grain = std::max<int64_t>(1, 4096 / weighted.classes);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      function(weighted, *b.input<double>(3), b.output<float>(0), begin, end);
    });
  });
}

}  // namespace dltrain
#endif
