// rotary and sinusoidal_positions. Sines and cosines are in tables, computed once or, if positions
// are an input, in every run.
#include "ops/positions.h"

#include <cmath>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

class Rotary final : public Kernel {
 public:
  explicit Rotary(const KernelRequest& request)
      : tokens_(request.inputs[0].shape[1]),
        heads_(request.inputs[0].shape[2]),
        size_(request.inputs[0].shape[3]),
        dim_(rotary_dim(request.inputs[0], request.attributes)),
        rows_(request.inputs[0].shape.elements(0, 2)),
        has_offsets_(request.inputs.size() == 2),
        sign_(request.attributes.boolean("inverse") ? -1 : 1),
        frequencies_(rotary_frequencies(request.attributes, dim_)) {
    const auto size = static_cast<size_t>((has_offsets_ ? rows_ : tokens_) * (dim_ / 2));
    cosines_.resize(size);
    sines_.resize(size);
    for (int64_t token = 0; token < tokens_ && !has_offsets_; ++token) fill_row(token, token);
  }

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    offsets_ = has_offsets_ ? input<const int32_t>(bindings, 1) : nullptr;
    y_ = output<float>(bindings, 0);
  }

  void run(Stream&) override {
    for (int64_t row = 0; row < rows_ && has_offsets_; ++row) {
      fill_row(row, offsets_[row / tokens_] + row % tokens_);
    }
    const int64_t grain = std::max<int64_t>(1, 8192 / (heads_ * size_));
    parallel_for(rows_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) rotate(row);
    });
  }

 private:
  void fill_row(int64_t row, int64_t position) {
    auto at = static_cast<size_t>(row * (dim_ / 2));
    for (double f : frequencies_) {
      cosines_[at] = static_cast<float>(std::cos(static_cast<double>(position) * f));
      sines_[at++] = static_cast<float>(sign_ * std::sin(static_cast<double>(position) * f));
    }
  }

  // Rotates all heads of one token. x and y may be the same tensor.
  void rotate(int64_t row) const {
    const int64_t half = dim_ / 2, at = (has_offsets_ ? row : row % tokens_) * half;
    for (int64_t head = 0; head < heads_; ++head) {
      const float* x = x_ + (row * heads_ + head) * size_;
      float* y = y_ + (row * heads_ + head) * size_;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float cosine = cosines_[static_cast<size_t>(at + i)];
        const float sine = sines_[static_cast<size_t>(at + i)];
        const float a = x[i], b = x[i + half];
        y[i] = a * cosine - b * sine;
        y[i + half] = b * cosine + a * sine;
      }
      if (y != x) std::copy(x + dim_, x + size_, y + dim_);
    }
  }

  int64_t tokens_, heads_, size_, dim_, rows_;
  bool has_offsets_;
  double sign_;
  std::vector<double> frequencies_;
  std::vector<float> cosines_,
      sines_;  // [tokens, dim / 2]; with offsets [samples · tokens, dim / 2]
  const float* x_ = nullptr;
  const int32_t* offsets_ = nullptr;
  float* y_ = nullptr;
};

class SinusoidalPositions final : public Kernel {
 public:
  explicit SinusoidalPositions(const KernelRequest& request)
      : samples_(request.inputs[0].shape[0]),
        tokens_(request.inputs[0].shape[1]),
        width_(request.inputs[0].shape[2]),
        has_offsets_(request.inputs.size() == 2),
        table_(static_cast<size_t>((has_offsets_ ? samples_ : 1) * tokens_ * width_)) {
    for (int64_t token = 0; token < tokens_ && !has_offsets_; ++token) fill_row(token, token);
  }

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    offsets_ = has_offsets_ ? input<const int32_t>(bindings, 1) : nullptr;
    y_ = output<float>(bindings, 0);
  }

  void run(Stream&) override {
    for (int64_t row = 0; row < samples_ * tokens_ && has_offsets_; ++row) {
      fill_row(row, offsets_[row / tokens_] + row % tokens_);
    }
    const auto size = static_cast<int64_t>(table_.size());
    parallel_for(samples_ * tokens_ * width_, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y_[i] = x_[i] + table_[static_cast<size_t>(i % size)];
      }
    });
  }

 private:
  void fill_row(int64_t row, int64_t position) {
    for (int64_t i = 0; i < width_; ++i) {
      table_[static_cast<size_t>(row * width_ + i)] =
          static_cast<float>(sinusoid(position, i, width_));
    }
  }

  int64_t samples_, tokens_, width_;
  bool has_offsets_;
  std::vector<float> table_;  // [tokens, width]; with offsets [samples, tokens, width]
  const float* x_ = nullptr;
  const int32_t* offsets_ = nullptr;
  float* y_ = nullptr;
};

}  // namespace

MadeKernel make_rotary(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<Rotary>(request);
}

MadeKernel make_sinusoidal_positions(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<SinusoidalPositions>(request);
}

}  // namespace dltrain
