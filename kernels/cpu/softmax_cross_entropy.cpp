// softmax_cross_entropy and its gradient, or both. Rows are processed in fixed chunks whose losses
// are added in double and in order, so that the loss does not depend on the number of threads. Rows
// of 16-bit logits are widened one at a time, in a buffer per thread.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_SOFTMAX_CROSS_ENTROPY_ONCE
#define DLTRAIN_CPU_SOFTMAX_CROSS_ENTROPY_ONCE
namespace dltrain {
namespace {

struct CrossEntropyArguments {
  const float* logits = nullptr;
  const int32_t* targets = nullptr;
  float* log_sum_exp = nullptr;  // written by the forward, read by the backward
  double* row_losses = nullptr;  // written by the forward; nullptr: not wanted
  int64_t columns, classes, ignore_index;
  int64_t first, all_classes;  // the classes of a shard
  double smoothing, z_loss;

  // Returns the column of a target; −1: another rank has it.
  int64_t column(int64_t target) const {
    const int64_t at = target - first;
    return at >= 0 && at < classes ? at : -1;
  }

  // Returns the arguments with the logits and targets of a call.
  CrossEntropyArguments of_call(const Bindings& b) const {
    CrossEntropyArguments out = *this;
    out.logits = b.input<float>(0);
    out.targets = b.input<int32_t>(1);
    return out;
  }

  // Returns the arguments for row `r` alone, with its logits at `wide`.
  CrossEntropyArguments row(int64_t r, const float* wide) const {
    CrossEntropyArguments out = *this;
    out.logits = wide;
    out.targets += r;
    if (out.log_sum_exp != nullptr) out.log_sum_exp += r;
    if (out.row_losses != nullptr) out.row_losses += r;
    return out;
  }
};

// Rows of 16-bit logits.
struct LowRows {
  int64_t columns = 0;
  DType dtype = DType::f32;
  WidenFunction widen = nullptr;
  NarrowFunction narrow = nullptr;

  explicit LowRows(const TensorSpec& logits) : columns(logits.shape[-1]), dtype(logits.dtype) {
    if (!is_low_precision(dtype)) return;
    widen = widen_function(dtype);
    narrow = narrow_function(dtype);
  }
  explicit operator bool() const { return widen != nullptr; }
  // Bytes of one row per thread.
  size_t buffer_bytes() const {
    return widen == nullptr ? 0 : static_cast<size_t>(columns * thread_count()) * sizeof(float);
  }
  void load(const void* from, int64_t row, float* wide) const {
    widen(static_cast<const uint16_t*>(from) + row * columns, wide, columns);
  }
  void store(const float* wide, int64_t row, void* to) const {
    narrow(wide, static_cast<uint16_t*>(to) + row * columns, columns);
  }
};

constexpr int64_t kPartsOfRow = 5;  // of cross_entropy_parts

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax_cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// Calls f(vector, offset, lanes in use) along a row; unused lanes are `padding`.
template <typename F>
HWY_INLINE void along_row(const float* row, int64_t count, float padding, const F& f) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(hn::LoadU(d, row + i), i, lanes);
  if (i < count) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(count - i));
    f(hn::IfThenElse(mask, hn::MaskedLoad(mask, d, row + i), hn::Set(d, padding)), i, count - i);
  }
}

struct RowSums {
  float greatest;
  double log_sum_exp;
  double total;  // with smoothing
};

RowSums row_sums(const CrossEntropyArguments& a, const float* row) {
  const Floats d;
  const float lowest = -std::numeric_limits<float>::infinity();
  FloatVec greatest_vec = hn::Set(d, lowest), total_vec = hn::Zero(d);
  along_row(row, a.classes, lowest, [&](FloatVec v, int64_t, int64_t) HWY_ATTR {
    greatest_vec = hn::Max(greatest_vec, v);
  });
  const float greatest = hn::GetLane(hn::MaxOfLanes(d, greatest_vec));
  const FloatVec shift = hn::Set(d, greatest);
  FloatVec exp_sum = hn::Zero(d);
  along_row(row, a.classes, lowest, [&](FloatVec v, int64_t, int64_t) HWY_ATTR {
    exp_sum = hn::Add(exp_sum, exp_vec(hn::Sub(v, shift)));
  });
  if (a.smoothing != 0) {
    along_row(row, a.classes, 0,
              [&](FloatVec v, int64_t, int64_t) HWY_ATTR { total_vec = hn::Add(total_vec, v); });
  }
  return {greatest,
          greatest + std::log(static_cast<double>(hn::GetLane(hn::SumOfLanes(d, exp_sum)))),
          static_cast<double>(hn::GetLane(hn::SumOfLanes(d, total_vec)))};
}

// Returns whether the target has the greatest logit; the first of equal ones wins.
bool leads(const float* row, int64_t target, float greatest) {
  return row[target] == greatest && std::find(row, row + target, greatest) == row + target;
}

void backward_rows(const CrossEntropyArguments& a, double dloss, float* dlogits, int64_t begin,
                   int64_t end) {
  const Floats d;
  const FloatVec everywhere = constant(dloss * a.smoothing / static_cast<double>(a.all_classes));
  for (int64_t r = begin; r < end; ++r) {
    const float* row = a.logits + r * a.columns;
    float* out = dlogits + r * a.columns;
    std::fill(out + a.classes, out + a.columns, 0.0f);
    const int64_t target = a.column(a.targets[r]);
    if (a.targets[r] == a.ignore_index) {
      std::fill_n(out, a.classes, 0.0f);
      continue;
    }
    const FloatVec shift = hn::Set(d, a.log_sum_exp[r]);
    const FloatVec scale = constant(dloss * (1 + 2 * a.z_loss * a.log_sum_exp[r]));
    along_row(row, a.classes, 0, [&](FloatVec v, int64_t at, int64_t count) HWY_ATTR {
      const FloatVec softmax = exp_vec(hn::Sub(v, shift));
      const FloatVec gradient = hn::MulSub(softmax, scale, everywhere);
      hn::BlendedStore(gradient, hn::FirstN(d, static_cast<size_t>(count)), d, out + at);
    });
    if (target >= 0) out[target] -= static_cast<float>(dloss * (1 - a.smoothing));
  }
}

// With `dlogits` each row's gradient follows while the row is in the cache.
LossSums forward_rows(const CrossEntropyArguments& a, double dloss, float* dlogits, int64_t begin,
                      int64_t end) {
  LossSums sums;
  for (int64_t r = begin; r < end; ++r) {
    const float* row = a.logits + r * a.columns;
    const auto [greatest, log_sum_exp, total] = row_sums(a, row);
    a.log_sum_exp[r] = static_cast<float>(log_sum_exp);
    const int64_t target = a.targets[r];
    if (a.row_losses != nullptr) a.row_losses[r] = 0;
    if (target != a.ignore_index) {
      double expected = (1 - a.smoothing) * row[target];
      if (a.smoothing != 0) expected += a.smoothing / static_cast<double>(a.classes) * total;
      const double loss = log_sum_exp - expected + a.z_loss * log_sum_exp * log_sum_exp;
      if (a.row_losses != nullptr) a.row_losses[r] = loss;
      sums.loss += loss;
      sums.correct += leads(row, target, greatest) ? 1 : 0;
    }
    if (dlogits != nullptr) backward_rows(a, dloss, dlogits, r, r + 1);
  }
  return sums;
}

void part_rows(const CrossEntropyArguments& a, float* parts, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r, parts += kPartsOfRow) {
    const float* row = a.logits + r * a.columns;
    const RowSums sums = row_sums(a, row);
    const int64_t target = a.column(a.targets[r]);
    parts[0] = static_cast<float>(sums.log_sum_exp);
    parts[1] = sums.greatest;
    parts[2] = target >= 0 ? row[target] : 0;
    parts[3] = target >= 0 && leads(row, target, sums.greatest) ? 1 : 0;
    parts[4] = static_cast<float>(sums.total);
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
HWY_EXPORT(part_rows);

CrossEntropyArguments arguments(const KernelRequest& request) {
  const int64_t classes = cross_entropy_classes(request.inputs[0], request.attributes);
  return {.columns = request.inputs[0].shape[-1],
          .classes = classes,
          .ignore_index = request.attributes.integer("ignore_index", -100),
          .first = request.attributes.integer("first_class"),
          .all_classes = request.attributes.integer("all_classes", classes),
          .smoothing = request.attributes.number("label_smoothing", 0),
          .z_loss = request.attributes.number("z_loss", 0)};
}

// The losses of the rows, output 3 with the attribute row_losses.
double* row_losses(const Bindings& b) {
  return b.outputs.size() > 3 ? b.output<double>(3) : nullptr;
}

bool with_f32_sums(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  return dtype == DType::f32 || is_low_precision(dtype);
}

// The loss from the parts of the ranks: little work, so one thread does it.
std::unique_ptr<Kernel> make_joined_cross_entropy(const KernelRequest& request) {
  const CrossEntropyArguments a = arguments(request);
  const int64_t rows = request.inputs[1].shape.elements();
  const int64_t ranks = request.inputs[2].shape[0] / rows;
  return make_kernel([a, rows, ranks](const Bindings& b, Stream&) {
    LossSums total;
    for (int64_t r = 0; r < rows; ++r) {
      const auto part = [&](int64_t rank, int64_t i) {
        return b.input<float>(2)[(rank * rows + r) * kPartsOfRow + i];
      };
      int64_t best = 0;  // the first rank with the greatest logit
      double shift = part(0, 0), sum = 0, expected = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        if (part(rank, 1) > part(best, 1)) best = rank;
        shift = std::max<double>(shift, part(rank, 0));
        expected += (1 - a.smoothing) * part(rank, 2) +
                    a.smoothing / static_cast<double>(a.all_classes) * part(rank, 4);
      }
      for (int64_t rank = 0; rank < ranks; ++rank) sum += std::exp(part(rank, 0) - shift);
      const double log_sum_exp = shift + std::log(sum);
      b.output<float>(1)[r] = static_cast<float>(log_sum_exp);
      double* const losses = row_losses(b);
      if (losses != nullptr) losses[r] = 0;
      if (b.input<int32_t>(1)[r] == a.ignore_index) continue;
      const double loss = log_sum_exp - expected + a.z_loss * log_sum_exp * log_sum_exp;
      if (losses != nullptr) losses[r] = loss;
      total.loss += loss;
      total.correct += part(best, 3);
    }
    *b.output<double>(0) = total.loss;
    *b.output<double>(2) = total.correct;
  });
}

// The loss, with the gradient or with log_sum_exp.
std::unique_ptr<Kernel> make_summed_cross_entropy(const KernelRequest& request, bool gradient) {
  if (!with_f32_sums(request)) return nullptr;
  const CrossEntropyArguments call = arguments(request);
  const LowRows low(request.inputs[0]);
  const int64_t rows = request.inputs[1].shape.elements();
  const int64_t chunk = std::clamp<int64_t>(4096 / std::max<int64_t>(1, call.classes), 1, 64);
  const int64_t chunks = ceil_div(rows, chunk);
  return make_kernel(
      [call, low, rows, chunk, chunks, gradient](const Bindings& b, Stream&) {
        auto* sums = static_cast<LossSums*>(b.workspace);
        auto* buffers = reinterpret_cast<float*>(sums + chunks);
        CrossEntropyArguments bound = call.of_call(b);
        bound.log_sum_exp = gradient ? buffers : b.output<float>(1);
        bound.row_losses = row_losses(b);
        if (gradient) buffers += rows;
        const double dloss = gradient ? *b.input<double>(2) : 0;
        float* dlogits = gradient ? b.output<float>(0) : nullptr;
        const auto function = HWY_DYNAMIC_DISPATCH(forward_rows);
        parallel_parts(chunks, thread_count(), [&](int64_t begin, int64_t end, int64_t part) {
          float* wide = buffers + part * call.columns;
          for (int64_t c = begin; c < end; ++c) {
            const int64_t first = c * chunk, last = std::min(rows, first + chunk);
            if (!low) {
              sums[c] = function(bound, dloss, dlogits, first, last);
              continue;
            }
            sums[c] = {};
            for (int64_t r = first; r < last; ++r) {
              low.load(bound.logits, r, wide);
              sums[c] += function(bound.row(r, wide), dloss, gradient ? wide : nullptr, 0, 1);
              if (gradient) low.store(wide, r, dlogits);
            }
          }
        });
        const LossSums total = total_of(sums, chunks);
        *b.output<double>(gradient ? 1 : 0) = total.loss;
        *b.output<double>(2) = total.correct;
      },
      low.buffer_bytes() + static_cast<size_t>(chunks) * sizeof(LossSums) +
          (gradient ? static_cast<size_t>(rows) * sizeof(float) : 0));
}

}  // namespace

std::unique_ptr<Kernel> make_cross_entropy_parts(const KernelRequest& request) {
  if (!with_f32_sums(request)) return nullptr;
  const CrossEntropyArguments call = arguments(request);
  const LowRows low(request.inputs[0]);
  const int64_t rows = request.inputs[1].shape.elements();
  return make_kernel(
      [call, low, rows](const Bindings& b, Stream&) {
        CrossEntropyArguments bound = call.of_call(b);
        auto* parts = b.output<float>(0);
        const auto function = HWY_DYNAMIC_DISPATCH(part_rows);
        parallel_parts(rows, thread_count(), [&](int64_t begin, int64_t end, int64_t part) {
          if (!low) return function(bound, parts + begin * kPartsOfRow, begin, end);
          float* wide = static_cast<float*>(b.workspace) + part * call.columns;
          for (int64_t r = begin; r < end; ++r) {
            low.load(bound.logits, r, wide);
            function(bound.row(r, wide), parts + r * kPartsOfRow, 0, 1);
          }
        });
      },
      low.buffer_bytes());
}

std::unique_ptr<Kernel> make_softmax_cross_entropy(const KernelRequest& request) {
  if (request.inputs.size() == 2) return make_summed_cross_entropy(request, false);
  return with_f32_sums(request) ? make_joined_cross_entropy(request) : nullptr;
}

std::unique_ptr<Kernel> make_softmax_cross_entropy_gradient(const KernelRequest& request) {
  return make_summed_cross_entropy(request, true);
}

std::unique_ptr<Kernel> make_softmax_cross_entropy_backward(const KernelRequest& request) {
  if (!with_f32_sums(request)) return nullptr;
  const CrossEntropyArguments call = arguments(request);
  const LowRows low(request.inputs[0]);
  const int64_t rows = request.inputs[1].shape.elements();
  return make_kernel(
      [call, low, rows](const Bindings& b, Stream&) {
        CrossEntropyArguments bound = call.of_call(b);
        bound.log_sum_exp = static_cast<float*>(b.inputs[2]);
        const double dloss = *b.input<double>(3);
        auto* dlogits = b.output<float>(0);
        const auto function = HWY_DYNAMIC_DISPATCH(backward_rows);
        if (!low) {
          const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, call.classes));
          parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
            function(bound, dloss, dlogits, begin, end);
          });
          return;
        }
        parallel_parts(rows, thread_count(), [&](int64_t begin, int64_t end, int64_t part) {
          float* wide = static_cast<float*>(b.workspace) + part * call.columns;
          for (int64_t r = begin; r < end; ++r) {
            low.load(bound.logits, r, wide);
            function(bound.row(r, wide), dloss, wide, 0, 1);
            low.store(wide, r, dlogits);
          }
        });
      },
      low.buffer_bytes());
}

}  // namespace dltrain
#endif
