// layer_norm, rms_norm and their gradients, with the residual additions and casts around them
// (passes/fuse_norms.h; only rehearsals of gpu_check run these forms here). One thread computes a
// row, with sums by lanes in a fixed order; gradients of weight and bias are summed over fixed
// chunks of rows, and the chunks in order and in double. So results do not depend on the number of
// threads.
#include <algorithm>
#include <cmath>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_LAYER_NORM_ONCE
#define DLTRAIN_CPU_LAYER_NORM_ONCE
namespace dltrain {
namespace {

// Tensors named "low" are f32, or of the dtype `low` where is_low_… says so (ops/layer_norm.cpp).
struct NormForward {
  const float* x = nullptr;
  const void* delta = nullptr;                     // low; added to x; may be nullptr
  const float *weight = nullptr, *bias = nullptr;  // may be nullptr
  void* y = nullptr;                               // low
  float *mean = nullptr, *rstd = nullptr;          // mean is nullptr for rms_norm
  float* sum = nullptr;                            // x + delta
  float* wide = nullptr;                           // y in f32; may be nullptr
  int64_t columns = 0;
  float epsilon = 0;
  DType low = DType::f32;
  bool is_low_delta = false, is_low_y = false;
};

struct NormBackward {
  const float* x = nullptr;
  const void* dy = nullptr;                                         // low
  const float *weight = nullptr, *mean = nullptr, *rstd = nullptr;  // weight, mean may be nullptr
  const float *residual = nullptr, *more_dy = nullptr;  // added to dx, to dy; may be nullptr
  float* dx = nullptr;
  void* narrow = nullptr;  // dx in the dtype `low`; may be nullptr
  int64_t columns = 0;
  DType low = DType::f32;
  bool is_low_dy = false;
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
using Tag = ElementTag;
using Vec = ElementVec;

template <typename Low>
HWY_INLINE Vec load_low(const void* p, bool is_low, int64_t i, size_t n) {
  return is_low ? load_n(static_cast<const Low*>(p) + i, n)
                : load_n(static_cast<const float*>(p) + i, n);
}

template <typename Low>
void forward_rows_of(const NormForward& n, int64_t begin, int64_t end) {
  const Tag d;
  const auto count = static_cast<float>(n.columns);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t row = r * n.columns;
    const float* x = n.x + row;
    if (n.delta != nullptr) {
      float* sum = n.sum + row;
      along_row(n.columns, [&](int64_t i, auto mask, size_t lanes) HWY_ATTR {
        const Vec delta = load_low<Low>(n.delta, n.is_low_delta, row + i, lanes);
        hn::BlendedStore(hn::Add(hn::MaskedLoad(mask, d, x + i), delta), mask, d, sum + i);
      });
      x = sum;
    }
    Vec centre = hn::Zero(d), squares = hn::Zero(d);
    if (n.mean != nullptr) {
      Vec sum = hn::Zero(d);
      along_row(n.columns, [&](int64_t i, auto mask, size_t)
                               HWY_ATTR { sum = hn::Add(sum, hn::MaskedLoad(mask, d, x + i)); });
      n.mean[r] = hn::GetLane(hn::SumOfLanes(d, sum)) / count;
      centre = hn::Set(d, n.mean[r]);
    }
    along_row(n.columns, [&](int64_t i, auto mask, size_t) HWY_ATTR {
      const Vec v = hn::IfThenElseZero(mask, hn::Sub(hn::MaskedLoad(mask, d, x + i), centre));
      squares = hn::MulAdd(v, v, squares);
    });
    n.rstd[r] = 1 / std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)) / count + n.epsilon);
    const Vec rstd = hn::Set(d, n.rstd[r]);
    along_row(n.columns, [&](int64_t i, auto mask, size_t lanes) HWY_ATTR {
      Vec v = hn::Mul(hn::Sub(hn::MaskedLoad(mask, d, x + i), centre), rstd);
      if (n.weight != nullptr) v = hn::Mul(v, hn::MaskedLoad(mask, d, n.weight + i));
      if (n.bias != nullptr) v = hn::Add(v, hn::MaskedLoad(mask, d, n.bias + i));
      if (n.is_low_y) {
        store_n(v, static_cast<Low*>(n.y) + row + i, lanes);
      } else {
        hn::BlendedStore(v, mask, d, static_cast<float*>(n.y) + row + i);
      }
      if (n.wide != nullptr) hn::BlendedStore(v, mask, d, n.wide + row + i);
    });
  }
}

void forward_rows(const NormForward& n, int64_t begin, int64_t end) {
  with_element_type(n.low, [&](auto low) { forward_rows_of<decltype(low)>(n, begin, end); });
}

// Writes dx of a chunk of rows, and the chunk's sums of dy·x̂ and dy (nullptr: not needed).
template <typename Low>
void backward_rows_of(const NormBackward& n, int64_t begin, int64_t end, float* dweight,
                      float* dbias) {
  const Tag d;
  if (dweight != nullptr) std::fill_n(dweight, n.columns, 0.0f);
  if (dbias != nullptr) std::fill_n(dbias, n.columns, 0.0f);
  const Vec inverse = hn::Set(d, 1 / static_cast<float>(n.columns));
  for (int64_t r = begin; r < end; ++r) {
    const int64_t row = r * n.columns;
    const float* x = n.x + row;
    float* dx = n.dx + row;
    const Vec centre = n.mean != nullptr ? hn::Set(d, n.mean[r]) : hn::Zero(d);
    const Vec rstd = hn::Set(d, n.rstd[r]);
    const auto normalised = [&](int64_t i, auto mask) HWY_ATTR {
      return hn::Mul(hn::Sub(hn::MaskedLoad(mask, d, x + i), centre), rstd);
    };
    const auto scaled = [&](int64_t i, auto mask, Vec gradient) HWY_ATTR {
      return n.weight != nullptr ? hn::Mul(gradient, hn::MaskedLoad(mask, d, n.weight + i))
                                 : gradient;
    };
    const auto load_dy = [&](int64_t i, auto mask, size_t lanes) HWY_ATTR {
      const Vec dy = load_low<Low>(n.dy, n.is_low_dy, row + i, lanes);
      return n.more_dy != nullptr ? hn::Add(dy, hn::MaskedLoad(mask, d, n.more_dy + row + i)) : dy;
    };
    Vec plain = hn::Zero(d), weighted = hn::Zero(d);
    along_row(n.columns, [&](int64_t i, auto mask, size_t lanes) HWY_ATTR {
      const Vec gradient = load_dy(i, mask, lanes);
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
    along_row(n.columns, [&](int64_t i, auto mask, size_t lanes) HWY_ATTR {
      const Vec g = scaled(i, mask, load_dy(i, mask, lanes));
      const Vec rest = hn::NegMulAdd(normalised(i, mask), weighted, hn::Sub(g, plain));
      Vec gradient = hn::Mul(rstd, rest);
      if (n.residual != nullptr) {
        gradient = hn::Add(hn::MaskedLoad(mask, d, n.residual + row + i), gradient);
      }
      hn::BlendedStore(gradient, mask, d, dx + i);
      if (n.narrow != nullptr) store_n(gradient, static_cast<Low*>(n.narrow) + row + i, lanes);
    });
  }
}

void backward_rows(const NormBackward& n, int64_t begin, int64_t end, float* dweight,
                   float* dbias) {
  with_element_type(
      n.low, [&](auto low) { backward_rows_of<decltype(low)>(n, begin, end, dweight, dbias); });
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

// x is f32; the inputs and outputs that may be low have at most one other dtype
// (ops/layer_norm.cpp).
bool usable(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32 || request.inputs[0].shape.elements() == 0)
    return false;
  const auto known = [](const TensorSpec& spec) {
    return is_absent(spec) || spec.dtype == DType::f32 || is_low_precision(spec.dtype);
  };
  return std::ranges::all_of(request.inputs, known) && std::ranges::all_of(request.outputs, known);
}

// The 16-bit dtype among these, or f32.
DType low_of(std::initializer_list<const TensorSpec*> specs) {
  for (const TensorSpec* spec : specs) {
    if (spec != nullptr && is_low_precision(spec->dtype)) return spec->dtype;
  }
  return DType::f32;
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
  if (!usable(request)) return nullptr;
  const bool has_mean = centred(request);
  const size_t delta = has_mean ? 3 : 2;  // the input, and the output x + delta
  const bool adds = request.inputs.size() > delta, wide = request.attributes.boolean("wide");
  const TensorSpec* added = adds ? &request.inputs[delta] : nullptr;
  const int64_t columns = request.inputs[0].shape[-1];
  const int64_t rows = request.inputs[0].shape.elements() / columns;
  const NormForward form{.columns = columns,
                         .epsilon = static_cast<float>(request.attributes.number("epsilon")),
                         .low = low_of({&request.outputs[0], added}),
                         .is_low_delta = adds && is_low_precision(added->dtype),
                         .is_low_y = is_low_precision(request.outputs[0].dtype)};
  return make_kernel([=](const Bindings& b, Stream&) {
    NormForward call = form;
    call.x = b.input<float>(0);
    call.weight = b.input<float>(1);
    call.bias = has_mean ? b.input<float>(2) : nullptr;
    call.y = b.output<char>(0);
    call.mean = has_mean ? b.output<float>(1) : nullptr;
    call.rstd = b.output<float>(has_mean ? 2 : 1);
    if (adds) {
      call.delta = b.input<char>(delta);
      call.sum = b.output<float>(delta);
    }
    if (wide) call.wide = b.output<float>(adds ? delta + 1 : delta);
    const auto function = HWY_DYNAMIC_DISPATCH(forward_rows);
    const int64_t grain = std::max<int64_t>(1, 4096 / columns);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { function(call, begin, end); });
  });
}

std::unique_ptr<Kernel> make_layer_norm_backward(const KernelRequest& request) {
  if (!usable(request)) return nullptr;
  const bool has_mean = centred(request);
  const bool has_weight = !is_absent(request.inputs[2]),
             has_bias = request.attributes.boolean("bias");
  const size_t residual = has_mean ? 5 : 4;
  const bool adds = request.inputs.size() > residual;
  const bool to_dy = request.attributes.boolean("adds_to_dy");
  const int64_t vectors = (has_weight ? 1 : 0) + (has_bias ? 1 : 0);
  const size_t narrow = static_cast<size_t>(vectors) + 1;
  const bool narrows = request.outputs.size() > narrow;
  const int64_t columns = request.inputs[0].shape[-1];
  const int64_t rows = request.inputs[0].shape.elements() / columns;
  const int64_t chunk = std::max<int64_t>(16, 16384 / columns), chunks = ceil_div(rows, chunk);
  const NormBackward form{
      .columns = columns,
      .low = low_of({&request.inputs[1], narrows ? &request.outputs[narrow] : nullptr}),
      .is_low_dy = is_low_precision(request.inputs[1].dtype)};
  const auto run = [=](const Bindings& b, Stream&) {
    NormBackward call = form;
    call.x = b.input<float>(0);
    call.dy = b.input<char>(1);
    call.weight = b.input<float>(2);
    call.mean = has_mean ? b.input<float>(3) : nullptr;
    call.rstd = b.input<float>(has_mean ? 4 : 3);
    if (adds) (to_dy ? call.more_dy : call.residual) = b.input<float>(residual);
    call.dx = b.output<float>(0);
    call.narrow = narrows ? b.output<char>(narrow) : nullptr;
    auto* total = static_cast<double*>(b.workspace);
    // A chunk has the gradient of the weight, then that of the bias, where they are present.
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
