// layer_norm, rms_norm and their gradients. One thread computes a row, with sums by lanes in a
// fixed order; gradients of weight and bias are summed over fixed chunks of rows, and the chunks in
// order and in double. So results do not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_LAYER_NORM_ONCE
#define DLTRAIN_CPU_LAYER_NORM_ONCE
namespace dltrain {
namespace {

struct NormForward {
  const float *x, *weight, *bias;  // weight and bias may be nullptr
  float *y, *mean, *rstd;          // mean is nullptr for rms_norm
  int64_t columns;
  float epsilon;
};

struct NormBackward {
  const float *x, *dy, *weight, *mean, *rstd;  // weight and mean may be nullptr
  float* dx;
  int64_t columns;
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// Calls f(offset, mask) along a row; the mask is full except at the end.
template <typename F>
HWY_INLINE void along_row(int64_t count, const F& f) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    f(i, hn::FirstN(d, static_cast<size_t>(std::min(lanes, count - i))));
  }
}

void forward_rows(const NormForward& n, int64_t begin, int64_t end) {
  const Tag d;
  const auto count = static_cast<float>(n.columns);
  for (int64_t r = begin; r < end; ++r) {
    const float* x = n.x + r * n.columns;
    float* y = n.y + r * n.columns;
    Vec centre = hn::Zero(d), squares = hn::Zero(d);
    if (n.mean != nullptr) {
      Vec sum = hn::Zero(d);
      along_row(n.columns, [&](int64_t i, auto mask)
                               HWY_ATTR { sum = hn::Add(sum, hn::MaskedLoad(mask, d, x + i)); });
      n.mean[r] = hn::GetLane(hn::SumOfLanes(d, sum)) / count;
      centre = hn::Set(d, n.mean[r]);
    }
    along_row(n.columns, [&](int64_t i, auto mask) HWY_ATTR {
      const Vec v = hn::IfThenElseZero(mask, hn::Sub(hn::MaskedLoad(mask, d, x + i), centre));
      squares = hn::MulAdd(v, v, squares);
    });
    n.rstd[r] = 1 / std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)) / count + n.epsilon);
    const Vec rstd = hn::Set(d, n.rstd[r]);
    along_row(n.columns, [&](int64_t i, auto mask) HWY_ATTR {
      Vec v = hn::Mul(hn::Sub(hn::MaskedLoad(mask, d, x + i), centre), rstd);
      if (n.weight != nullptr) v = hn::Mul(v, hn::MaskedLoad(mask, d, n.weight + i));
      if (n.bias != nullptr) v = hn::Add(v, hn::MaskedLoad(mask, d, n.bias + i));
      hn::BlendedStore(v, mask, d, y + i);
    });
  }
}

// Writes dx of a chunk of rows, and the chunk's sums of dy·x̂ and dy (nullptr: not needed).
void backward_rows(const NormBackward& n, int64_t begin, int64_t end, float* dweight,
                   float* dbias) {
  const Tag d;
  if (dweight != nullptr) std::fill_n(dweight, n.columns, 0.0f);
  if (dbias != nullptr) std::fill_n(dbias, n.columns, 0.0f);
  const Vec inverse = hn::Set(d, 1 / static_cast<float>(n.columns));
  for (int64_t r = begin; r < end; ++r) {
    const float *x = n.x + r * n.columns, *dy = n.dy + r * n.columns;
    float* dx = n.dx + r * n.columns;
    const Vec centre = n.mean != nullptr ? hn::Set(d, n.mean[r]) : hn::Zero(d);
    const Vec rstd = hn::Set(d, n.rstd[r]);
    const auto normalised = [&](int64_t i, auto mask) HWY_ATTR {
      return hn::Mul(hn::Sub(hn::MaskedLoad(mask, d, x + i), centre), rstd);
    };
    const auto scaled = [&](int64_t i, auto mask, Vec gradient) HWY_ATTR {
      return n.weight != nullptr ? hn::Mul(gradient, hn::MaskedLoad(mask, d, n.weight + i))
                                 : gradient;
    };
    Vec plain = hn::Zero(d), weighted = hn::Zero(d);
    along_row(n.columns, [&](int64_t i, auto mask) HWY_ATTR {
      const Vec gradient = hn::MaskedLoad(mask, d, dy + i);
      const Vec g = scaled(i, mask, gradient), v = normalised(i, mask);
      plain = hn::Add(plain, g);
      weighted = hn::MulAdd(g, v, weighted);
      if (dweight != nullptr) {
        const Vec sum = hn::MulAdd(gradient, v, hn::MaskedLoad(mask, d, dweight + i));
        hn::BlendedStore(sum, mask, d, dweight + i);
      }
      if (dbias != nullptr) {
        const Vec sum = hn::Add(gradient, hn::MaskedLoad(mask, d, dbias + i));
        hn::BlendedStore(sum, mask, d, dbias + i);
      }
    });
    plain = n.mean != nullptr ? hn::Mul(hn::SumOfLanes(d, plain), inverse) : hn::Zero(d);
    weighted = hn::Mul(hn::SumOfLanes(d, weighted), inverse);
    along_row(n.columns, [&](int64_t i, auto mask) HWY_ATTR {
      const Vec g = scaled(i, mask, hn::MaskedLoad(mask, d, dy + i));
      const Vec rest = hn::NegMulAdd(normalised(i, mask), weighted, hn::Sub(g, plain));
      hn::BlendedStore(hn::Mul(rstd, rest), mask, d, dx + i);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

bool centred(const KernelRequest& request) {
  return request.op.starts_with("layer_norm");
}

int64_t rows_of(const Shape& x) {
  return x.elements() / x[-1];
}

// Returns the rows of a chunk, which depend only on the shape.
int64_t chunk_rows(const Shape& x) {
  return std::max<int64_t>(16, 16384 / x[-1]);
}

class LayerNormBackward {
 public:
  explicit LayerNormBackward(const KernelRequest& r)
      : centred_(centred(r)),
        has_weight_(!is_absent(r.inputs[2])),
        has_bias_(r.attributes.boolean("bias")),
        rows_(rows_of(r.inputs[0].shape)),
        chunk_(chunk_rows(r.inputs[0].shape)) {
    call_.columns = r.inputs[0].shape[-1];
  }

  size_t workspace_bytes() const {
    return static_cast<size_t>(chunks() * vectors() * call_.columns) * sizeof(float) +
           static_cast<size_t>(call_.columns) * sizeof(double);
  }

  void run(const Bindings& bindings) {
    call_.x = input<const float>(bindings, 0);
    call_.dy = input<const float>(bindings, 1);
    call_.weight = input<const float>(bindings, 2);
    call_.mean = centred_ ? input<const float>(bindings, 3) : nullptr;
    call_.rstd = input<const float>(bindings, centred_ ? 4 : 3);
    call_.dx = output<float>(bindings, 0);
    size_t next = 1;
    dweight_ = has_weight_ ? output<float>(bindings, next++) : nullptr;
    dbias_ = has_bias_ ? output<float>(bindings, next) : nullptr;
    total_ = static_cast<double*>(bindings.workspace);
    parts_ = reinterpret_cast<float*>(total_ + call_.columns);
    const auto function = HWY_DYNAMIC_DISPATCH(backward_rows);
    parallel_for(chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        function(call_, c * chunk_, std::min(rows_, (c + 1) * chunk_),
                 has_weight_ ? part(c, 0) : nullptr, has_bias_ ? part(c, vectors() - 1) : nullptr);
      }
    });
    if (has_weight_) merge(0, dweight_);
    if (has_bias_) merge(vectors() - 1, dbias_);
  }

 private:
  int64_t chunks() const { return ceil_div(rows_, chunk_); }
  int64_t vectors() const { return (has_weight_ ? 1 : 0) + (has_bias_ ? 1 : 0); }
  float* part(int64_t chunk, int64_t vector) const {
    return parts_ + (chunk * vectors() + vector) * call_.columns;
  }

  void merge(int64_t vector, float* to) const {
    parallel_for(call_.columns, 256, [&](int64_t begin, int64_t end) {
      std::fill(total_ + begin, total_ + end, 0.0);
      for (int64_t c = 0; c < chunks(); ++c) {
        const float* from = part(c, vector);
        for (int64_t k = begin; k < end; ++k) total_[k] += from[k];
      }
      for (int64_t k = begin; k < end; ++k) to[k] = static_cast<float>(total_[k]);
    });
  }

  bool centred_, has_weight_, has_bias_;
  int64_t rows_, chunk_;
  NormBackward call_{};
  float *dweight_ = nullptr, *dbias_ = nullptr;
  double* total_ = nullptr;
  float* parts_ = nullptr;
};

// The forms with further inputs and outputs are for GPUs.
bool usable(const KernelRequest& request, size_t inputs) {
  return computes_in_f32(request) && request.inputs[0].shape.elements() > 0 &&
         request.inputs.size() == inputs && !request.attributes.has("output_dtype");
}

}  // namespace

MadeKernel make_layer_norm(const KernelRequest& request) {
  if (!usable(request, centred(request) ? 3 : 2)) return nullptr;
  NormForward call{};
  call.columns = request.inputs[0].shape[-1];
  call.epsilon = static_cast<float>(request.attributes.number("epsilon"));
  const int64_t rows = rows_of(request.inputs[0].shape);
  return make_kernel([call, rows, has_mean = centred(request)](const Bindings& b, Stream&) {
    NormForward bound = call;
    bound.x = b.input<float>(0);
    bound.weight = b.input<float>(1);
    bound.bias = has_mean ? b.input<float>(2) : nullptr;
    bound.y = b.output<float>(0);
    bound.mean = has_mean ? b.output<float>(1) : nullptr;
    bound.rstd = b.output<float>(has_mean ? 2 : 1);
    const auto function = HWY_DYNAMIC_DISPATCH(forward_rows);
    const int64_t grain = std::max<int64_t>(1, 4096 / call.columns);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { function(bound, begin, end); });
  });
}

MadeKernel make_layer_norm_backward(const KernelRequest& request) {
  return usable(request, centred(request) ? 5 : 4) ? make_call_kernel<LayerNormBackward>(request)
                                                   : nullptr;
}

}  // namespace dltrain
#endif
