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
namespace dltrain::HWY_NAMESPACE {
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
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

bool centred(const KernelRequest& request) {
  return request.op.starts_with("layer_norm");
}

// The forms with further inputs and outputs are for GPUs.
bool usable(const KernelRequest& request, size_t inputs) {
  return computes_in_f32(request) && request.inputs[0].shape.elements() > 0 &&
         request.inputs.size() == inputs && !request.attributes.has("output_dtype");
}

// Adds up the vectors of all chunks, which are `stride` floats apart, in double.
void merge_chunks(const float* parts, int64_t chunks, int64_t stride, int64_t columns,
                  double* total, float* to) {
  parallel_for(columns, 256, [&](int64_t begin, int64_t end) {
    std::fill(total + begin, total + end, 0.0);
    for (int64_t c = 0; c < chunks; ++c) {
      const float* from = parts + c * stride;
      for (int64_t k = begin; k < end; ++k) total[k] += from[k];
    }
    for (int64_t k = begin; k < end; ++k) to[k] = static_cast<float>(total[k]);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_layer_norm(const KernelRequest& request) {
  if (!usable(request, centred(request) ? 3 : 2)) return nullptr;
  const int64_t columns = request.inputs[0].shape[-1];
  const int64_t rows = request.inputs[0].shape.elements() / columns;
  const auto epsilon = static_cast<float>(request.attributes.number("epsilon"));
  return make_kernel([=, has_mean = centred(request)](const Bindings& b, Stream&) {
    const NormForward call{.x = b.input<float>(0),
                           .weight = b.input<float>(1),
                           .bias = has_mean ? b.input<float>(2) : nullptr,
                           .y = b.output<float>(0),
                           .mean = has_mean ? b.output<float>(1) : nullptr,
                           .rstd = b.output<float>(has_mean ? 2 : 1),
                           .columns = columns,
                           .epsilon = epsilon};
    const auto function = HWY_DYNAMIC_DISPATCH(forward_rows);
    const int64_t grain = std::max<int64_t>(1, 4096 / columns);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { function(call, begin, end); });
  });
}

std::unique_ptr<Kernel> make_layer_norm_backward(const KernelRequest& request) {
  const bool has_mean = centred(request);
  if (!usable(request, has_mean ? 5 : 4)) return nullptr;
  const bool has_weight = !is_absent(request.inputs[2]),
             has_bias = request.attributes.boolean("bias");
  const int64_t columns = request.inputs[0].shape[-1];
  const int64_t rows = request.inputs[0].shape.elements() / columns;
  const int64_t chunk = std::max<int64_t>(16, 16384 / columns), chunks = ceil_div(rows, chunk);
  const int64_t vectors = (has_weight ? 1 : 0) + (has_bias ? 1 : 0);
  const auto run = [=](const Bindings& b, Stream&) {
    const NormBackward call{.x = b.input<float>(0),
                            .dy = b.input<float>(1),
                            .weight = b.input<float>(2),
                            .mean = has_mean ? b.input<float>(3) : nullptr,
                            .rstd = b.input<float>(has_mean ? 4 : 3),
                            .dx = b.output<float>(0),
                            .columns = columns};
    auto* total = static_cast<double*>(b.workspace);
    // Of each chunk: the gradient of the weight, then of the bias, where they are present.
    auto* parts = reinterpret_cast<float*>(total + columns);
    const int64_t stride = vectors * columns, bias_at = stride - columns;
    const auto function = HWY_DYNAMIC_DISPATCH(backward_rows);
    parallel_each(chunks, 1, [&](int64_t c) {
      float* part = parts + c * stride;
      function(call, c * chunk, std::min(rows, (c + 1) * chunk), has_weight ? part : nullptr,
               has_bias ? part + bias_at : nullptr);
    });
    if (has_weight) merge_chunks(parts, chunks, stride, columns, total, b.output<float>(1));
    if (has_bias) {
      float* dbias = b.output<float>(has_weight ? 2 : 1);
      merge_chunks(parts + bias_at, chunks, stride, columns, total, dbias);
    }
  };
  return make_kernel(run, static_cast<size_t>(chunks * vectors * columns) * sizeof(float) +
                              static_cast<size_t>(columns) * sizeof(double));
}

}  // namespace dltrain
#endif
