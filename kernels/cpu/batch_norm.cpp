// batch_norm, its gradient and its inference form over [rows, channels], vectorised along the
// channels.
//
// Statistics are taken over fixed chunks of rows that fit the cache: each chunk gives its mean and
// its sum of squared deviations, and the chunks are merged in order and in double (Chan, Golub &
// LeVeque 1979). So x is read from memory once for them, without cancellation, and the result does
// not depend on the number of threads.
//
// x, y and their gradients are f32, bf16 or f16; everything of a channel is f32.
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

template <typename T>
struct ChannelFunctions {
  void (*statistics)(const T* x, int64_t rows, int64_t channels, float* mean, float* squares);
  void (*gradient_sums)(const T* x, const T* dy, const float* mean, int64_t rows, int64_t channels,
                        float* sum_dy, float* sum_dy_x);
  void (*normalise)(const T* x, const float* centre, const float* scale, const float* shift,
                    int64_t rows, int64_t channels, T* y);
  void (*input_gradient)(const T* x, const T* dy, const float* mean, const float* scale,
                         const float* slope, const float* offset, int64_t rows, int64_t channels,
                         T* dx);
};

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
};
struct Part {
  size_t count;
  template <typename T>
  HWY_INLINE Vec get(const T* p) const {
    return load_n(p, count);
  }
  template <typename T>
  HWY_INLINE void put(Vec v, T* p) const {
    store_n(v, p, count);
  }
};

// Calls f(Whole or Part, first channel) for every vector of channels.
template <typename F>
HWY_INLINE void along_channels(int64_t channels, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) f(Whole{}, c);
  if (c < channels) f(Part{static_cast<size_t>(channels - c)}, c);
}

// Mean and sum of squared deviations of each channel over a chunk of rows.
template <typename T>
void chunk_statistics(const T* x, int64_t rows, int64_t channels, float* mean, float* squares) {
  const Tag d;
  along_channels(channels, [&](auto part, int64_t c) HWY_ATTR {
    Vec sum = hn::Zero(d), deviations = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      sum = hn::Add(sum, part.get(x + r * channels + c));
    }
    const Vec average = hn::Div(sum, hn::Set(d, static_cast<float>(rows)));
    for (int64_t r = 0; r < rows; ++r) {
      const Vec v = hn::Sub(part.get(x + r * channels + c), average);
      deviations = hn::MulAdd(v, v, deviations);
    }
    part.put(average, mean + c);
    part.put(deviations, squares + c);
  });
}

// Σdy and Σdy·(x − mean) of each channel over a chunk of rows.
template <typename T>
void chunk_gradient_sums(const T* x, const T* dy, const float* mean, int64_t rows, int64_t channels,
                         float* sum_dy, float* sum_dy_x) {
  const Tag d;
  along_channels(channels, [&](auto part, int64_t c) HWY_ATTR {
    const Vec centre = part.get(mean + c);
    Vec plain = hn::Zero(d), weighted = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * channels + c;
      const Vec gradient = part.get(dy + at);
      plain = hn::Add(plain, gradient);
      weighted = hn::MulAdd(gradient, hn::Sub(part.get(x + at), centre), weighted);
    }
    part.put(plain, sum_dy + c);
    part.put(weighted, sum_dy_x + c);
  });
}

// y = (x − centre)·scale + shift, channel by channel.
template <typename T>
void normalise(const T* x, const float* centre, const float* scale, const float* shift,
               int64_t rows, int64_t channels, T* y) {
  for (int64_t r = 0; r < rows; ++r) {
    along_channels(channels, [&](auto part, int64_t c) HWY_ATTR {
      const int64_t at = r * channels + c;
      const Vec v = hn::Sub(part.get(x + at), part.get(centre + c));
      part.put(hn::MulAdd(v, part.get(scale + c), part.get(shift + c)), y + at);
    });
  }
}

// dx = scale·dy − slope·(x − mean) − offset, channel by channel.
template <typename T>
void input_gradient(const T* x, const T* dy, const float* mean, const float* scale,
                    const float* slope, const float* offset, int64_t rows, int64_t channels,
                    T* dx) {
  for (int64_t r = 0; r < rows; ++r) {
    along_channels(channels, [&](auto part, int64_t c) HWY_ATTR {
      const int64_t at = r * channels + c;
      const Vec centred = hn::Sub(part.get(x + at), part.get(mean + c));
      const Vec scaled = hn::MulSub(part.get(dy + at), part.get(scale + c), part.get(offset + c));
      part.put(hn::NegMulAdd(part.get(slope + c), centred, scaled), dx + at);
    });
  }
}

// The functions for one element type.
template <typename T>
ChannelFunctions<T> choose() {
  return {chunk_statistics<T>, chunk_gradient_sums<T>, normalise<T>, input_gradient<T>};
}
ChannelFunctions<float> choose_f32() {
  return choose<float>();
}
ChannelFunctions<Bf16> choose_bf16() {
  return choose<Bf16>();
}
ChannelFunctions<F16> choose_f16() {
  return choose<F16>();
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
ChannelFunctions<T> channel_functions() {
  if constexpr (std::is_same_v<T, float>) return HWY_DYNAMIC_DISPATCH(choose_f32)();
  if constexpr (std::is_same_v<T, Bf16>) return HWY_DYNAMIC_DISPATCH(choose_bf16)();
  if constexpr (std::is_same_v<T, F16>) return HWY_DYNAMIC_DISPATCH(choose_f16)();
}

// What the three forms share: the shape as rows of channels, and the chunks of rows.
class ChannelKernel : public Kernel {
 public:
  explicit ChannelKernel(const KernelRequest& request)
      : channels_(request.inputs[0].shape[-1]),
        rows_(request.inputs[0].shape.elements() / std::max<int64_t>(1, channels_)),
        chunk_rows_(std::max<int64_t>(16, 16384 / std::max<int64_t>(1, channels_))),
        epsilon_(request.attributes.number("epsilon", 1e-5)) {}

 protected:
  int64_t chunks() const { return ceil_div(rows_, chunk_rows_); }

  // f(chunk, first row, rows)
  template <typename F>
  void for_chunks(const F& f) const {
    parallel_for(chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        f(c, c * chunk_rows_, std::min(chunk_rows_, rows_ - c * chunk_rows_));
      }
    });
  }

  // Workspace of `per_chunk` channel vectors for every chunk, then `once` channel vectors.
  size_t workspace(int64_t per_chunk, int64_t once) const {
    return static_cast<size_t>((per_chunk * chunks() + once) * channels_) * sizeof(float);
  }

  int64_t channels_, rows_, chunk_rows_;
  double epsilon_;
};

template <typename T>
class BatchNorm final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const override { return workspace(2, 1); }

  void bind(const Bindings& bindings) override {
    x_ = input<const T>(bindings, 0);
    gamma_ = input<const float>(bindings, 1);
    beta_ = input<const float>(bindings, 2);
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
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      apply(x_ + first * channels_, mean_, scale_, beta_, rows, channels_, y_ + first * channels_);
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
    scale_[k] = static_cast<float>(gamma_[k] / std::sqrt(variance + epsilon_));
  }

  ChannelFunctions<T> functions_ = channel_functions<T>();
  const T* x_ = nullptr;
  T* y_ = nullptr;
  const float *gamma_ = nullptr, *beta_ = nullptr;
  float *mean_ = nullptr, *variance_ = nullptr;
  float *means_ = nullptr, *squares_ = nullptr, *scale_ = nullptr;
};

template <typename T>
class BatchNormBackward final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const override { return workspace(2, 3); }

  void bind(const Bindings& bindings) override {
    x_ = input<const T>(bindings, 0);
    dy_ = input<const T>(bindings, 1);
    gamma_ = input<const float>(bindings, 2);
    mean_ = input<const float>(bindings, 3);
    variance_ = input<const float>(bindings, 4);
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
    const auto sum = functions_.gradient_sums;
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      sum(x_ + first * channels_, dy_ + first * channels_, mean_, rows, channels_,
          sums_ + c * channels_, weighted_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) finish(k);
    const auto apply = functions_.input_gradient;
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      apply(x_ + at, dy_ + at, mean_, scale_, slope_, offset_, rows, channels_, dx_ + at);
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
    scale_[k] = static_cast<float>(scale);
    slope_[k] = static_cast<float>(scale * weighted * inverse * inverse / count);
    offset_[k] = static_cast<float>(scale * sum / count);
  }

  ChannelFunctions<T> functions_ = channel_functions<T>();
  const T *x_ = nullptr, *dy_ = nullptr;
  T* dx_ = nullptr;
  const float *gamma_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
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
      scale_[k] = static_cast<float>(gamma_[k] / std::sqrt(variance_[k] + epsilon_));
    }
    const auto apply = functions_.normalise;
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      apply(x_ + first * channels_, mean_, scale_, beta_, rows, channels_, y_ + first * channels_);
    });
  }

 private:
  ChannelFunctions<T> functions_ = channel_functions<T>();
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

void channel_statistics(const float* x, int64_t rows, int64_t channels, float* mean,
                        float* squares) {
  channel_functions<float>().statistics(x, rows, channels, mean, squares);
}

void channel_gradient_sums(const float* x, const float* dy, const float* mean, int64_t rows,
                           int64_t channels, float* sum_dy, float* sum_dy_x) {
  channel_functions<float>().gradient_sums(x, dy, mean, rows, channels, sum_dy, sum_dy_x);
}

void channel_normalise(const float* x, const float* centre, const float* scale, const float* shift,
                       int64_t rows, int64_t channels, float* y) {
  channel_functions<float>().normalise(x, centre, scale, shift, rows, channels, y);
}

void channel_input_gradient(const float* x, const float* dy, const float* mean, const float* scale,
                            const float* slope, const float* offset, int64_t rows, int64_t channels,
                            float* dx) {
  channel_functions<float>().input_gradient(x, dy, mean, scale, slope, offset, rows, channels, dx);
}

}  // namespace dltrain
#endif
