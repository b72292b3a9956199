// batch_norm, its gradient and its inference form over [rows, channels], and its statistics alone.
//
// Statistics are computed for fixed chunks of rows that fit in the cache: each chunk's mean and sum
// of squared deviations are merged in order and in double (Chan, Golub & LeVeque 1979). So x is
// read from memory once, without cancellation, and the result does not depend on the number of
// threads.
//
// The gradient of a fused relu recomputes the forward's value by the same arithmetic instead of
// reading y.
#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/channel_rows.h"
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// Arguments of batch_norm and its gradient, which has no residual among its inputs.
ChannelEpilogue form_of(const KernelRequest& request) {
  if (request.attributes.text("activation").empty()) return ChannelEpilogue::plain;
  return request.inputs.size() == 4 ? ChannelEpilogue::residual_relu : ChannelEpilogue::relu;
}

float channel_scale(float gamma, float variance, double epsilon) {
  return static_cast<float>(gamma / std::sqrt(variance + epsilon));
}

// Shared by the three forms: the shape as rows of channels, and the chunks of rows.
class ChannelKernel {
 public:
  explicit ChannelKernel(const KernelRequest& request)
      : channels_(request.inputs[0].shape[-1]),
        rows_(request.inputs[0].shape.elements() / std::max<int64_t>(1, channels_)),
        chunk_rows_(std::max<int64_t>(16, 16384 / std::max<int64_t>(1, channels_))),
        epsilon_(request.attributes.number("epsilon", 1e-5)),
        far_(request.outputs[0].bytes() >= kFarBytes && channels_ % 32 == 0) {}

 protected:
  // Outputs from this size on are written with non-temporal stores (a core's caches have a few
  // MiB).
  static constexpr size_t kFarBytes = size_t{8} << 20;

  int64_t chunks() const { return ceil_div(rows_, chunk_rows_); }

  // f(chunk, first row, rows)
  template <typename F>
  void for_chunks(const F& f) const {
    parallel_for(chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) call(c, f);
    });
  }
  // The same from the last chunk to the first: the second pass finds the end of the first pass in
  // the cache.
  template <typename F>
  void for_chunks_back(const F& f) const {
    parallel_for(chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = end; c-- > begin;) call(c, f);
    });
  }

  // f(first channel, channels) for blocks of at most kBlock channels, to combine results of chunks.
  static constexpr int64_t kBlock = 64;
  template <typename F>
  void for_channels(const F& f) const {
    const int64_t grain = std::max<int64_t>(1, 16384 / (kBlock * chunks()));
    parallel_for(ceil_div(channels_, kBlock), grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        f(b * kBlock, std::min(kBlock, channels_ - b * kBlock));
      }
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
class BatchNorm : public ChannelKernel {
 public:
  explicit BatchNorm(const KernelRequest& request)
      : ChannelKernel(request), functions_(channel_functions<T>(form_of(request))) {}
  size_t workspace_bytes() const { return workspace(2, 1); }

  void run(const Bindings& bindings) {
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
    const auto statistics = functions_.statistics;
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      statistics(x_ + first * channels_, rows, channels_, means_ + c * channels_,
                 squares_ + c * channels_);
    });
    for_channels([&](int64_t first, int64_t count) { merge(first, count); });
    const auto apply = functions_.normalise;
    for_chunks_back([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      apply(x_ + at, {mean_, scale_, beta_}, residual_ == nullptr ? nullptr : residual_ + at, rows,
            channels_, y_ + at, far_);
    });
  }

 private:
  void merge(int64_t first, int64_t channels) const {
    std::array<double, kBlock> mean{}, squares{};
    double count = 0;
    for (int64_t c = 0; c < chunks(); ++c) {
      const auto rows = static_cast<double>(std::min(chunk_rows_, rows_ - c * chunk_rows_));
      const double share = rows / (count + rows), weight = count * share;
      const float *chunk_mean = means_ + c * channels_ + first,
                  *chunk_squares = squares_ + c * channels_ + first;
      for (size_t k = 0; k < static_cast<size_t>(channels); ++k) {
        const double step = static_cast<double>(chunk_mean[k]) - mean[k];
        mean[k] += step * share;
        squares[k] += static_cast<double>(chunk_squares[k]) + step * step * weight;
      }
      count += rows;
    }
    for (size_t k = 0; k < static_cast<size_t>(channels); ++k) {
      const auto channel = first + static_cast<int64_t>(k);
      mean_[channel] = static_cast<float>(mean[k]);
      variance_[channel] = static_cast<float>(squares[k] / static_cast<double>(rows_));
      scale_[channel] = channel_scale(gamma_[channel], variance_[channel], epsilon_);
    }
  }

  ChannelFunctions<T> functions_;
  const T *x_ = nullptr, *residual_ = nullptr;
  T* y_ = nullptr;
  const float *gamma_ = nullptr, *beta_ = nullptr;
  float *mean_ = nullptr, *variance_ = nullptr;
  float *means_ = nullptr, *squares_ = nullptr, *scale_ = nullptr;
};

template <typename T>
class BatchNormBackward : public ChannelKernel {
 public:
  explicit BatchNormBackward(const KernelRequest& request)
      : ChannelKernel(request), functions_(channel_functions<T>(form_of(request))) {}
  size_t workspace_bytes() const { return workspace(2, 3); }

  void run(const Bindings& bindings) {
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
    for (int64_t k = 0; k < channels_; ++k) {
      scale_[k] = channel_scale(gamma_[k], variance_[k], epsilon_);
    }
    const ChannelAffine line{mean_, scale_, beta_};
    const auto sum = functions_.gradient_sums;
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      sum(x_ + first * channels_, dy_ + first * channels_, line, rows, channels_,
          sums_ + c * channels_, weighted_ + c * channels_);
    });
    for_channels([&](int64_t first, int64_t count) { finish(first, count); });
    const auto apply = functions_.input_gradient;
    for_chunks_back([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      apply(x_ + at, dy_ + at, line, slope_, offset_, rows, channels_, dx_ + at, far_);
    });
  }

 private:
  void finish(int64_t first, int64_t channels) const {
    std::array<double, kBlock> sum{}, weighted{};
    for (int64_t c = 0; c < chunks(); ++c) {
      const float *chunk_sum = sums_ + c * channels_ + first,
                  *chunk_weighted = weighted_ + c * channels_ + first;
      for (size_t k = 0; k < static_cast<size_t>(channels); ++k) {
        sum[k] += static_cast<double>(chunk_sum[k]);
        weighted[k] += static_cast<double>(chunk_weighted[k]);
      }
    }
    for (size_t k = 0; k < static_cast<size_t>(channels); ++k) {
      finish(first + static_cast<int64_t>(k), sum[k], weighted[k]);
    }
  }

  void finish(int64_t k, double sum, double weighted) const {
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
class BatchNormInference : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;
  size_t workspace_bytes() const { return workspace(0, 1); }

  void run(const Bindings& bindings) {
    x_ = input<const T>(bindings, 0);
    gamma_ = input<const float>(bindings, 1);
    beta_ = input<const float>(bindings, 2);
    mean_ = input<const float>(bindings, 3);
    variance_ = input<const float>(bindings, 4);
    y_ = output<T>(bindings, 0);
    scale_ = static_cast<float*>(bindings.workspace);
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
  ChannelFunctions<T> functions_ = channel_functions<T>(ChannelEpilogue::plain);
  const T* x_ = nullptr;
  T* y_ = nullptr;
  const float *gamma_ = nullptr, *beta_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
  float* scale_ = nullptr;
};

template <template <typename> class Made>
MadeKernel make_batch_norm_of(const KernelRequest& request) {
  if (request.inputs[0].shape.elements() == 0) return nullptr;
  return with_element_type(request.inputs[0].dtype, [&]<typename T>(T) -> MadeKernel {
    return make_call_kernel<Made<T>>(request);
  });
}

}  // namespace

MadeKernel make_batch_norm(const KernelRequest& request) {
  return make_batch_norm_of<BatchNorm>(request);
}

MadeKernel make_batch_norm_backward(const KernelRequest& request) {
  return make_batch_norm_of<BatchNormBackward>(request);
}

MadeKernel make_batch_norm_inference(const KernelRequest& request) {
  return make_batch_norm_of<BatchNormInference>(request);
}

}  // namespace dltrain
