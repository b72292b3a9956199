// batch_norm, its gradient and its inference form over [rows, channels], vectorised along the
// channels.
//
// Statistics are taken over fixed chunks of rows that fit the cache: each chunk gives its mean and
// its sum of squared deviations, and the chunks are merged in order and in double (Chan, Golub &
// LeVeque 1979). So x is read from memory once for them, without cancellation, and the result does
// not depend on the number of threads.
//
// x, y and their gradients are f32, bf16 or f16; everything of a channel is f32. The gradient
// through a relu computes the forward's value anew, by the same arithmetic, rather than read y.
#include <algorithm>
#include <cmath>

#include "cpu/channel_rows.h"
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#ifndef DLTRAIN_CPU_BATCH_NORM_ONCE
#define DLTRAIN_CPU_BATCH_NORM_ONCE
namespace dltrain {
namespace {

// Of the forward: y = (x − centre)·scale + shift.
struct ChannelLine {
  const float *centre, *scale, *shift;
};

template <typename T>
struct ChannelFunctions {
  void (*statistics)(const T* x, int64_t rows, int64_t channels, float* mean, float* squares);
  void (*normalise)(const T* x, const ChannelLine& line, const T* residual, int64_t rows,
                    int64_t channels, T* y, bool far);
  // With relu, dy counts where the line is above 0.
  void (*gradient_sums)(const T* x, const T* dy, const ChannelLine& line, int64_t rows,
                        int64_t channels, float* sum_dy, float* sum_dy_x);
  void (*input_gradient)(const T* x, const T* dy, const ChannelLine& line, const float* slope,
                         const float* offset, int64_t rows, int64_t channels, T* dx, bool far);
};

enum class ChannelForm : uint8_t { plain, relu, residual_relu };

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
using Tag = ElementTag;
using Vec = ElementVec;

// Around the caches: what is written there is read too late to be found in them, and plain stores
// would read the lines first. The address is a multiple of the vector's size.
HWY_INLINE void stream(Vec v, float* p) {
  hn::Stream(v, ElementTag(), p);
}
template <typename T>
HWY_INLINE void stream(Vec v, T* p) {
  hn::Stream(narrow_bits(v, T{}), HalfTag(), half_bits(p));
}

// How a vector of channels is read and written: whole, or the last few.
struct Whole {
  template <typename T>
  HWY_INLINE Vec get(const T* p) const {
    return load(p);
  }
  template <typename T>
  HWY_INLINE void put(Vec v, T* p) const {
    store(v, p);
  }
  template <typename T>
  HWY_INLINE void put(Vec v, T* p, bool far) const {
    far ? stream(v, p) : store(v, p);
  }
};
struct Part {
  size_t count;
  template <typename T>
  HWY_INLINE Vec get(const T* p) const {
    return load_n(p, count);
  }
  template <typename T>
  HWY_INLINE void put(Vec v, T* p, bool = false) const {
    store_n(v, p, count);
  }
};

// Calls f(Whole or Part, first channel, vectors) for every group of kVectors vectors of channels,
// and one by one for what is left. Groups read memory in runs of several lines.
template <int kVectors, typename F>
HWY_INLINE void along_channels(int64_t channels, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t c = 0;
  for (; c + kVectors * lanes <= channels; c += kVectors * lanes) {
    f(Whole{}, c, std::integral_constant<int, kVectors>());
  }
  for (; c + lanes <= channels; c += lanes) f(Whole{}, c, std::integral_constant<int, 1>());
  if (c < channels) {
    f(Part{static_cast<size_t>(channels - c)}, c, std::integral_constant<int, 1>());
  }
}

// Mean and sum of squared deviations of each channel over a chunk of rows.
template <typename T>
void chunk_statistics(const T* x, int64_t rows, int64_t channels, float* mean, float* squares) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  along_channels<8>(channels, [&](auto part, int64_t c, auto vectors) HWY_ATTR {
    Vec sum[vectors], deviations[vectors];
    for (int v = 0; v < vectors; ++v) sum[v] = deviations[v] = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = x + r * channels + c;
      for (int v = 0; v < vectors; ++v) sum[v] = hn::Add(sum[v], part.get(from + v * lanes));
    }
    const Vec count = hn::Set(d, static_cast<float>(rows));
    for (int v = 0; v < vectors; ++v) sum[v] = hn::Div(sum[v], count);
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = x + r * channels + c;
      for (int v = 0; v < vectors; ++v) {
        const Vec distance = hn::Sub(part.get(from + v * lanes), sum[v]);
        deviations[v] = hn::MulAdd(distance, distance, deviations[v]);
      }
    }
    for (int v = 0; v < vectors; ++v) {
      part.put(sum[v], mean + c + v * lanes);
      part.put(deviations[v], squares + c + v * lanes);
    }
  });
}

template <typename Read>
HWY_INLINE Vec line_at(Read part, Vec centred, const ChannelLine& line, int64_t c) {
  return hn::MulAdd(centred, part.get(line.scale + c), part.get(line.shift + c));
}

// dy, or with relu what of it the forward lets through.
template <ChannelForm form, typename Read, typename T>
HWY_INLINE Vec gradient_at(Read part, const T* dy, Vec centred, const ChannelLine& line,
                           int64_t c) {
  const Vec gradient = part.get(dy);
  if constexpr (form == ChannelForm::plain) return gradient;
  return hn::IfThenElseZero(hn::Gt(line_at(part, centred, line, c), hn::Zero(Tag())), gradient);
}

// Σdy and Σdy·(x − mean) of each channel over a chunk of rows.
template <ChannelForm form, typename T>
void chunk_gradient_sums(const T* x, const T* dy, const ChannelLine& line, int64_t rows,
                         int64_t channels, float* sum_dy, float* sum_dy_x) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  along_channels<4>(channels, [&](auto part, int64_t c, auto vectors) HWY_ATTR {
    Vec centre[vectors], plain[vectors], weighted[vectors];
    for (int v = 0; v < vectors; ++v) {
      centre[v] = part.get(line.centre + c + v * lanes);
      plain[v] = weighted[v] = hn::Zero(d);
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t k = c + v * lanes, at = r * channels + k;
        const Vec centred = hn::Sub(part.get(x + at), centre[v]);
        const Vec gradient = gradient_at<form>(part, dy + at, centred, line, k);
        plain[v] = hn::Add(plain[v], gradient);
        weighted[v] = hn::MulAdd(gradient, centred, weighted[v]);
      }
    }
    for (int v = 0; v < vectors; ++v) {
      part.put(plain[v], sum_dy + c + v * lanes);
      part.put(weighted[v], sum_dy_x + c + v * lanes);
    }
  });
}

// y = (x − centre)·scale + shift, channel by channel; then the residual and relu.
template <ChannelForm form, typename T>
void normalise(const T* x, const ChannelLine& line, const T* residual, int64_t rows,
               int64_t channels, T* y, bool far) {
  for (int64_t r = 0; r < rows; ++r) {
    along_channels<1>(channels, [&](auto part, int64_t c, auto) HWY_ATTR {
      const int64_t at = r * channels + c;
      Vec v = line_at(part, hn::Sub(part.get(x + at), part.get(line.centre + c)), line, c);
      if constexpr (form == ChannelForm::residual_relu) v = hn::Add(v, part.get(residual + at));
      if constexpr (form != ChannelForm::plain) {
        v = hn::IfThenElse(hn::Lt(v, hn::Zero(Tag())), hn::Zero(Tag()), v);
      }
      part.put(v, y + at, far);
    });
  }
}

// dx = scale·dy − slope·(x − mean) − offset, channel by channel.
template <ChannelForm form, typename T>
void input_gradient(const T* x, const T* dy, const ChannelLine& line, const float* slope,
                    const float* offset, int64_t rows, int64_t channels, T* dx, bool far) {
  for (int64_t r = 0; r < rows; ++r) {
    along_channels<1>(channels, [&](auto part, int64_t c, auto) HWY_ATTR {
      const int64_t at = r * channels + c;
      const Vec centred = hn::Sub(part.get(x + at), part.get(line.centre + c));
      const Vec gradient = gradient_at<form>(part, dy + at, centred, line, c);
      const Vec scaled = hn::MulSub(gradient, part.get(line.scale + c), part.get(offset + c));
      part.put(hn::NegMulAdd(part.get(slope + c), centred, scaled), dx + at, far);
    });
  }
}

// The functions for one element type.
template <typename T>
ChannelFunctions<T> choose(ChannelForm form) {
  constexpr auto kPlain = ChannelForm::plain, kRelu = ChannelForm::relu;
  if (form == kPlain) {
    return {chunk_statistics<T>, normalise<kPlain, T>, chunk_gradient_sums<kPlain, T>,
            input_gradient<kPlain, T>};
  }
  return {chunk_statistics<T>,
          form == kRelu ? normalise<kRelu, T> : normalise<ChannelForm::residual_relu, T>,
          chunk_gradient_sums<kRelu, T>, input_gradient<kRelu, T>};
}
ChannelFunctions<float> choose_f32(ChannelForm form) {
  return choose<float>(form);
}
ChannelFunctions<Bf16> choose_bf16(ChannelForm form) {
  return choose<Bf16>(form);
}
ChannelFunctions<F16> choose_f16(ChannelForm form) {
  return choose<F16>(form);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose_f32);
HWY_EXPORT(choose_bf16);
HWY_EXPORT(choose_f16);

template <typename T>
ChannelFunctions<T> channel_functions(ChannelForm form) {
  if constexpr (std::is_same_v<T, float>) return HWY_DYNAMIC_DISPATCH(choose_f32)(form);
  if constexpr (std::is_same_v<T, Bf16>) return HWY_DYNAMIC_DISPATCH(choose_bf16)(form);
  if constexpr (std::is_same_v<T, F16>) return HWY_DYNAMIC_DISPATCH(choose_f16)(form);
}

// Of batch_norm and its gradient (whose inputs are no residual).
ChannelForm form_of(const KernelRequest& request) {
  if (request.attributes.text("activation").empty()) return ChannelForm::plain;
  return request.inputs.size() == 4 ? ChannelForm::residual_relu : ChannelForm::relu;
}

float channel_scale(float gamma, float variance, double epsilon) {
  return static_cast<float>(gamma / std::sqrt(variance + epsilon));
}

// What the three forms share: the shape as rows of channels, and the chunks of rows.
class ChannelKernel : public Kernel {
 public:
  explicit ChannelKernel(const KernelRequest& request)
      : channels_(request.inputs[0].shape[-1]),
        rows_(request.inputs[0].shape.elements() / std::max<int64_t>(1, channels_)),
        chunk_rows_(std::max<int64_t>(16, 16384 / std::max<int64_t>(1, channels_))),
        epsilon_(request.attributes.number("epsilon", 1e-5)),
        far_(request.outputs[0].bytes() >= kFarBytes && channels_ % 32 == 0) {}

 protected:
  // An output of this size is written around the caches (of which a core has a few MiB).
  static constexpr size_t kFarBytes = size_t{8} << 20;

  int64_t chunks() const { return ceil_div(rows_, chunk_rows_); }

  // f(chunk, first row, rows)
  template <typename F>
  void for_chunks(const F& f) const {
    parallel_for(chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) call(c, f);
    });
  }
  // The same from the last to the first: a second reading finds in the cache what the first read
  // last.
  template <typename F>
  void for_chunks_back(const F& f) const {
    parallel_for(chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = end; c-- > begin;) call(c, f);
    });
  }

  // Workspace of `per_chunk` channel vectors for every chunk, then `once` channel vectors.
  size_t workspace(int64_t per_chunk, int64_t once) const {
    return static_cast<size_t>((per_chunk * chunks() + once) * channels_) * sizeof(float);
  }

  int64_t channels_, rows_, chunk_rows_;
  double epsilon_;
  bool far_;

 private:
  template <typename F>
  void call(int64_t c, const F& f) const {
    f(c, c * chunk_rows_, std::min(chunk_rows_, rows_ - c * chunk_rows_));
  }
};

template <typename T>
class BatchNorm final : public ChannelKernel {
 public:
  explicit BatchNorm(const KernelRequest& request)
      : ChannelKernel(request), functions_(channel_functions<T>(form_of(request))) {}
  size_t workspace_bytes() const override { return workspace(2, 1); }

  void bind(const Bindings& bindings) override {
    x_ = input<const T>(bindings, 0);
    gamma_ = input<const float>(bindings, 1);
    beta_ = input<const float>(bindings, 2);
    residual_ = bindings.inputs.size() == 4 ? input<const T>(bindings, 3) : nullptr;
    y_ = output<T>(bindings, 0);
    mean_ = output<float>(bindings, 1);
    variance_ = output<float>(bindings, 2);
    means_ = static_cast<float*>(bindings.workspace);
    squares_ = means_ + chunks() * channels_;
    scale_ = squares_ + chunks() * channels_;
  }

  void run(Stream&) override {
    const auto statistics = functions_.statistics;
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      statistics(x_ + first * channels_, rows, channels_, means_ + c * channels_,
                 squares_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) merge(k);
    const auto apply = functions_.normalise;
    for_chunks_back([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      apply(x_ + at, {mean_, scale_, beta_}, residual_ == nullptr ? nullptr : residual_ + at, rows,
            channels_, y_ + at, far_);
    });
  }

 private:
  void merge(int64_t k) const {
    double count = 0, mean = 0, squares = 0;
    for (int64_t c = 0; c < chunks(); ++c) {
      const auto rows = static_cast<double>(std::min(chunk_rows_, rows_ - c * chunk_rows_));
      const double step = means_[c * channels_ + k] - mean;
      mean += step * rows / (count + rows);
      squares += squares_[c * channels_ + k] + step * step * count * rows / (count + rows);
      count += rows;
    }
    const double variance = squares / static_cast<double>(rows_);
    mean_[k] = static_cast<float>(mean);
    variance_[k] = static_cast<float>(variance);
    scale_[k] = channel_scale(gamma_[k], variance_[k], epsilon_);
  }

  ChannelFunctions<T> functions_;
  const T *x_ = nullptr, *residual_ = nullptr;
  T* y_ = nullptr;
  const float *gamma_ = nullptr, *beta_ = nullptr;
  float *mean_ = nullptr, *variance_ = nullptr;
  float *means_ = nullptr, *squares_ = nullptr, *scale_ = nullptr;
};

template <typename T>
class BatchNormBackward final : public ChannelKernel {
 public:
  explicit BatchNormBackward(const KernelRequest& request)
      : ChannelKernel(request), functions_(channel_functions<T>(form_of(request))) {}
  size_t workspace_bytes() const override { return workspace(2, 3); }

  void bind(const Bindings& bindings) override {
    x_ = input<const T>(bindings, 0);
    dy_ = input<const T>(bindings, 1);
    gamma_ = input<const float>(bindings, 2);
    mean_ = input<const float>(bindings, 3);
    variance_ = input<const float>(bindings, 4);
    beta_ = bindings.inputs.size() == 6 ? input<const float>(bindings, 5) : nullptr;
    dx_ = output<T>(bindings, 0);
    dgamma_ = output<float>(bindings, 1);
    dbeta_ = output<float>(bindings, 2);
    sums_ = static_cast<float*>(bindings.workspace);
    weighted_ = sums_ + chunks() * channels_;
    scale_ = weighted_ + chunks() * channels_;
    slope_ = scale_ + channels_;
    offset_ = slope_ + channels_;
  }

  void run(Stream&) override {
    for (int64_t k = 0; k < channels_; ++k) {
      scale_[k] = channel_scale(gamma_[k], variance_[k], epsilon_);
    }
    const ChannelLine line{mean_, scale_, beta_};
    const auto sum = functions_.gradient_sums;
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      sum(x_ + first * channels_, dy_ + first * channels_, line, rows, channels_,
          sums_ + c * channels_, weighted_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) finish(k);
    const auto apply = functions_.input_gradient;
    for_chunks_back([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      apply(x_ + at, dy_ + at, line, slope_, offset_, rows, channels_, dx_ + at, far_);
    });
  }

 private:
  void finish(int64_t k) const {
    double sum = 0, weighted = 0;
    for (int64_t c = 0; c < chunks(); ++c) {
      sum += sums_[c * channels_ + k];
      weighted += weighted_[c * channels_ + k];
    }
    const double inverse = 1 / std::sqrt(variance_[k] + epsilon_);
    const auto count = static_cast<double>(rows_);
    dbeta_[k] = static_cast<float>(sum);
    dgamma_[k] = static_cast<float>(weighted * inverse);
    const double scale = gamma_[k] * inverse;
    slope_[k] = static_cast<float>(scale * weighted * inverse * inverse / count);
    offset_[k] = static_cast<float>(scale * sum / count);
  }

  ChannelFunctions<T> functions_;
  const T *x_ = nullptr, *dy_ = nullptr;
  T* dx_ = nullptr;
  const float *gamma_ = nullptr, *beta_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
  float *dgamma_ = nullptr, *dbeta_ = nullptr;
  float *sums_ = nullptr, *weighted_ = nullptr;
  float *scale_ = nullptr, *slope_ = nullptr, *offset_ = nullptr;
};

template <typename T>
class BatchNormInference final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const override { return workspace(0, 1); }

  void bind(const Bindings& bindings) override {
    x_ = input<const T>(bindings, 0);
    gamma_ = input<const float>(bindings, 1);
    beta_ = input<const float>(bindings, 2);
    mean_ = input<const float>(bindings, 3);
    variance_ = input<const float>(bindings, 4);
    y_ = output<T>(bindings, 0);
    scale_ = static_cast<float*>(bindings.workspace);
  }

  void run(Stream&) override {
    for (int64_t k = 0; k < channels_; ++k) {
      scale_[k] = channel_scale(gamma_[k], variance_[k], epsilon_);
    }
    const auto apply = functions_.normalise;
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      apply(x_ + at, {mean_, scale_, beta_}, nullptr, rows, channels_, y_ + at, far_);
    });
  }

 private:
  ChannelFunctions<T> functions_ = channel_functions<T>(ChannelForm::plain);
  const T* x_ = nullptr;
  T* y_ = nullptr;
  const float *gamma_ = nullptr, *beta_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
  float* scale_ = nullptr;
};

template <template <typename> class Made>
MadeKernel make(const KernelRequest& request) {
  if (request.inputs[0].shape.elements() == 0) return nullptr;
  return with_element_type(request.inputs[0].dtype, [&]<typename T>(T) -> MadeKernel {
    return std::make_unique<Made<T>>(request);
  });
}

}  // namespace

MadeKernel make_batch_norm(const KernelRequest& request) {
  return make<BatchNorm>(request);
}

MadeKernel make_batch_norm_backward(const KernelRequest& request) {
  return make<BatchNormBackward>(request);
}

MadeKernel make_batch_norm_inference(const KernelRequest& request) {
  return make<BatchNormInference>(request);
}

namespace {
const ChannelFunctions<float>& plain_functions() {
  static const ChannelFunctions<float> functions = channel_functions<float>(ChannelForm::plain);
  return functions;
}
}  // namespace

void channel_statistics(const float* x, int64_t rows, int64_t channels, float* mean,
                        float* squares) {
  plain_functions().statistics(x, rows, channels, mean, squares);
}

void channel_gradient_sums(const float* x, const float* dy, const float* mean, int64_t rows,
                           int64_t channels, float* sum_dy, float* sum_dy_x) {
  plain_functions().gradient_sums(x, dy, {mean, nullptr, nullptr}, rows, channels, sum_dy,
                                  sum_dy_x);
}

void channel_normalise(const float* x, const float* centre, const float* scale, const float* shift,
                       int64_t rows, int64_t channels, float* y) {
  plain_functions().normalise(x, {centre, scale, shift}, nullptr, rows, channels, y, false);
}

void channel_input_gradient(const float* x, const float* dy, const float* mean, const float* scale,
                            const float* slope, const float* offset, int64_t rows, int64_t channels,
                            float* dx) {
  plain_functions().input_gradient(x, dy, {mean, scale, nullptr}, slope, offset, rows, channels, dx,
                                   false);
}

}  // namespace dltrain
#endif
