// batch_norm, its gradient and its inference form over [rows, channels], vectorised along the
// channels.
//
// Statistics are taken over fixed chunks of rows that fit the cache: each chunk gives its mean and
// its sum of squared deviations, and the chunks are merged in order and in double (Chan, Golub &
// LeVeque 1979). So x is read from memory once for them, without cancellation, and the result does
// not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "cpu/channel_rows.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// Calls f(mask, first channel) for every vector of channels.
template <typename F>
HWY_INLINE void along_channels(int64_t channels, const F& f) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < channels; c += lanes) {
    f(hn::FirstN(d, static_cast<size_t>(std::min(lanes, channels - c))), c);
  }
}

// Mean and sum of squared deviations of each channel over a chunk of rows.
void chunk_statistics(const float* x, int64_t rows, int64_t channels, float* mean, float* squares) {
  const Tag d;
  along_channels(channels, [&](auto mask, int64_t c) HWY_ATTR {
    Vec sum = hn::Zero(d), deviations = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      sum = hn::Add(sum, hn::MaskedLoad(mask, d, x + r * channels + c));
    }
    const Vec average = hn::Div(sum, hn::Set(d, static_cast<float>(rows)));
    for (int64_t r = 0; r < rows; ++r) {
      const Vec v = hn::Sub(hn::MaskedLoad(mask, d, x + r * channels + c), average);
      deviations = hn::MulAdd(v, v, deviations);
    }
    hn::BlendedStore(average, mask, d, mean + c);
    hn::BlendedStore(deviations, mask, d, squares + c);
  });
}

// Σdy and Σdy·(x − mean) of each channel over a chunk of rows.
void chunk_gradient_sums(const float* x, const float* dy, const float* mean, int64_t rows,
                         int64_t channels, float* sum_dy, float* sum_dy_x) {
  const Tag d;
  along_channels(channels, [&](auto mask, int64_t c) HWY_ATTR {
    const Vec centre = hn::MaskedLoad(mask, d, mean + c);
    Vec plain = hn::Zero(d), weighted = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * channels + c;
      const Vec gradient = hn::MaskedLoad(mask, d, dy + at);
      plain = hn::Add(plain, gradient);
      weighted = hn::MulAdd(gradient, hn::Sub(hn::MaskedLoad(mask, d, x + at), centre), weighted);
    }
    hn::BlendedStore(plain, mask, d, sum_dy + c);
    hn::BlendedStore(weighted, mask, d, sum_dy_x + c);
  });
}

// y = (x − centre)·scale + shift, channel by channel.
void normalise(const float* x, const float* centre, const float* scale, const float* shift,
               int64_t rows, int64_t channels, float* y) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    along_channels(channels, [&](auto mask, int64_t c) HWY_ATTR {
      const int64_t at = r * channels + c;
      const Vec v = hn::Sub(hn::MaskedLoad(mask, d, x + at), hn::MaskedLoad(mask, d, centre + c));
      hn::BlendedStore(
          hn::MulAdd(v, hn::MaskedLoad(mask, d, scale + c), hn::MaskedLoad(mask, d, shift + c)),
          mask, d, y + at);
    });
  }
}

// dx = scale·dy − slope·(x − mean) − offset, channel by channel.
void input_gradient(const float* x, const float* dy, const float* mean, const float* scale,
                    const float* slope, const float* offset, int64_t rows, int64_t channels,
                    float* dx) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r) {
    along_channels(channels, [&](auto mask, int64_t c) HWY_ATTR {
      const int64_t at = r * channels + c;
      const Vec centred =
          hn::Sub(hn::MaskedLoad(mask, d, x + at), hn::MaskedLoad(mask, d, mean + c));
      const Vec scaled =
          hn::MulSub(hn::MaskedLoad(mask, d, dy + at), hn::MaskedLoad(mask, d, scale + c),
                     hn::MaskedLoad(mask, d, offset + c));
      hn::BlendedStore(hn::NegMulAdd(hn::MaskedLoad(mask, d, slope + c), centred, scaled), mask, d,
                       dx + at);
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
HWY_EXPORT(chunk_statistics);
HWY_EXPORT(chunk_gradient_sums);
HWY_EXPORT(normalise);
HWY_EXPORT(input_gradient);

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

class BatchNorm final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const override { return workspace(2, 1); }

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    gamma_ = input<const float>(bindings, 1);
    beta_ = input<const float>(bindings, 2);
    y_ = output<float>(bindings, 0);
    mean_ = output<float>(bindings, 1);
    variance_ = output<float>(bindings, 2);
    means_ = static_cast<float*>(bindings.workspace);
    squares_ = means_ + chunks() * channels_;
    scale_ = squares_ + chunks() * channels_;
  }

  void run(Stream&) override {
    const auto statistics = HWY_DYNAMIC_DISPATCH(chunk_statistics);
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      statistics(x_ + first * channels_, rows, channels_, means_ + c * channels_,
                 squares_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) merge(k);
    const auto apply = HWY_DYNAMIC_DISPATCH(normalise);
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

  const float *x_ = nullptr, *gamma_ = nullptr, *beta_ = nullptr;
  float *y_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
  float *means_ = nullptr, *squares_ = nullptr, *scale_ = nullptr;
};

class BatchNormBackward final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const override { return workspace(2, 3); }

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    dy_ = input<const float>(bindings, 1);
    gamma_ = input<const float>(bindings, 2);
    mean_ = input<const float>(bindings, 3);
    variance_ = input<const float>(bindings, 4);
    dx_ = output<float>(bindings, 0);
    dgamma_ = output<float>(bindings, 1);
    dbeta_ = output<float>(bindings, 2);
    sums_ = static_cast<float*>(bindings.workspace);
    weighted_ = sums_ + chunks() * channels_;
    scale_ = weighted_ + chunks() * channels_;
    slope_ = scale_ + channels_;
    offset_ = slope_ + channels_;
  }

  void run(Stream&) override {
    const auto sum = HWY_DYNAMIC_DISPATCH(chunk_gradient_sums);
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      sum(x_ + first * channels_, dy_ + first * channels_, mean_, rows, channels_,
          sums_ + c * channels_, weighted_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) finish(k);
    const auto apply = HWY_DYNAMIC_DISPATCH(input_gradient);
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

  const float *x_ = nullptr, *dy_ = nullptr, *gamma_ = nullptr;
  const float *mean_ = nullptr, *variance_ = nullptr;
  float *dx_ = nullptr, *dgamma_ = nullptr, *dbeta_ = nullptr;
  float *sums_ = nullptr, *weighted_ = nullptr;
  float *scale_ = nullptr, *slope_ = nullptr, *offset_ = nullptr;
};

class BatchNormInference final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const override { return workspace(0, 1); }

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    gamma_ = input<const float>(bindings, 1);
    beta_ = input<const float>(bindings, 2);
    mean_ = input<const float>(bindings, 3);
    variance_ = input<const float>(bindings, 4);
    y_ = output<float>(bindings, 0);
    scale_ = static_cast<float*>(bindings.workspace);
  }

  void run(Stream&) override {
    for (int64_t k = 0; k < channels_; ++k) {
      scale_[k] = static_cast<float>(gamma_[k] / std::sqrt(variance_[k] + epsilon_));
    }
    const auto apply = HWY_DYNAMIC_DISPATCH(normalise);
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      apply(x_ + first * channels_, mean_, scale_, beta_, rows, channels_, y_ + first * channels_);
    });
  }

 private:
  const float *x_ = nullptr, *gamma_ = nullptr, *beta_ = nullptr;
  const float *mean_ = nullptr, *variance_ = nullptr;
  float *y_ = nullptr, *scale_ = nullptr;
};

bool usable(const KernelRequest& request) {
  return computes_in_f32(request) && request.inputs[0].shape.elements() > 0;
}

}  // namespace

MadeKernel make_batch_norm(const KernelRequest& request) {
  return usable(request) ? std::make_unique<BatchNorm>(request) : nullptr;
}

MadeKernel make_batch_norm_backward(const KernelRequest& request) {
  return usable(request) ? std::make_unique<BatchNormBackward>(request) : nullptr;
}

MadeKernel make_batch_norm_inference(const KernelRequest& request) {
  return usable(request) ? std::make_unique<BatchNormInference>(request) : nullptr;
}

void channel_statistics(const float* x, int64_t rows, int64_t channels, float* mean,
                        float* squares) {
  HWY_DYNAMIC_DISPATCH(chunk_statistics)(x, rows, channels, mean, squares);
}

void channel_gradient_sums(const float* x, const float* dy, const float* mean, int64_t rows,
                           int64_t channels, float* sum_dy, float* sum_dy_x) {
  HWY_DYNAMIC_DISPATCH(chunk_gradient_sums)(x, dy, mean, rows, channels, sum_dy, sum_dy_x);
}

void channel_normalise(const float* x, const float* centre, const float* scale, const float* shift,
                       int64_t rows, int64_t channels, float* y) {
  HWY_DYNAMIC_DISPATCH(normalise)(x, centre, scale, shift, rows, channels, y);
}

void channel_input_gradient(const float* x, const float* dy, const float* mean, const float* scale,
                            const float* slope, const float* offset, int64_t rows, int64_t channels,
                            float* dx) {
  HWY_DYNAMIC_DISPATCH(input_gradient)
  (x, dy, mean, scale, slope, offset, rows, channels, dx);
}

}  // namespace dltrain
#endif
