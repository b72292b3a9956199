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

namespace dltrain {
namespace {

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
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      chunk_statistics(x_ + first * channels_, rows, channels_, means_ + c * channels_,
                       squares_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) merge(k);
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      normalise(x_ + first * channels_, mean_, scale_, beta_, rows, channels_,
                y_ + first * channels_);
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
    for_chunks([&](int64_t c, int64_t first, int64_t rows) {
      chunk_gradient_sums(x_ + first * channels_, dy_ + first * channels_, mean_, rows, channels_,
                          sums_ + c * channels_, weighted_ + c * channels_);
    });
    for (int64_t k = 0; k < channels_; ++k) finish(k);
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      const int64_t at = first * channels_;
      input_gradient(x_ + at, dy_ + at, mean_, scale_, slope_, offset_, rows, channels_, dx_ + at);
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
    for_chunks([&](int64_t, int64_t first, int64_t rows) {
      normalise(x_ + first * channels_, mean_, scale_, beta_, rows, channels_,
                y_ + first * channels_);
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

}  // namespace dltrain
