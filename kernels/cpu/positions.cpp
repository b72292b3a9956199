// rotary and sinusoidal_positions. Sines and cosines are in tables, computed once or, if positions
// are an input, in the workspace in every run.
#include "ops/positions.h"

#include <cmath>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

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
        positions_(request.attributes),
        frequencies_(rotary_frequencies(request.attributes, dim_)) {
    if (has_offsets_) return;
    table_.resize(static_cast<size_t>(tokens_ * dim_));
    for (int64_t token = 0; token < tokens_; ++token) {
      fill_row(table_.data(), token, positions_(token));
    }
  }

  size_t workspace_bytes() const override {
    return has_offsets_ ? static_cast<size_t>(rows_ * dim_) * sizeof(float) : 0;
  }

  void run(const Bindings& b, Stream&) const override {
    const float* table = table_.data();
    if (has_offsets_) {
      auto* own = static_cast<float*>(b.workspace);
      for (int64_t row = 0; row < rows_; ++row) {
        fill_row(own, row, b.input<int32_t>(1)[row / tokens_] + row % tokens_);
      }
      table = own;
    }
    const int64_t grain = std::max<int64_t>(1, 8192 / (heads_ * size_));
    parallel_for(rows_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        rotate(b.input<float>(0), table + (has_offsets_ ? row : row % tokens_) * dim_, row,
               b.output<float>(0));
      }
    });
  }

 private:
  // A row of the table: the cosines, then the sines.
  void fill_row(float* table, int64_t row, int64_t position) const {
    float *cosine = table + row * dim_, *sine = cosine + dim_ / 2;
    for (double f : frequencies_) {
      *cosine++ = static_cast<float>(std::cos(static_cast<double>(position) * f));
      *sine++ = static_cast<float>(sign_ * std::sin(static_cast<double>(position) * f));
    }
  }

  // Rotates all heads of one token. x and y may be the same tensor.
  void rotate(const float* from, const float* cosines, int64_t row, float* to) const {
    const int64_t half = dim_ / 2;
    const float* sines = cosines + half;
    for (int64_t head = 0; head < heads_; ++head) {
      const float* x = from + (row * heads_ + head) * size_;
      float* y = to + (row * heads_ + head) * size_;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float cosine = cosines[i];
        const float sine = sines[i];
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
  TokenPositions positions_;
  std::vector<double> frequencies_;
  std::vector<float> table_;  // [tokens, dim]; none with offsets
};

}  // namespace

std::unique_ptr<Kernel> make_rotary(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<Rotary>(request);
}

std::unique_ptr<Kernel> make_sinusoidal_positions(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const Shape& x = request.inputs[0].shape;
  const int64_t rows = x[0] * x[1], tokens = x[1], width = x[2], elements = x.elements();
  const TokenPositions positions(request.attributes);
  const auto fill_row = [width](float* row, int64_t position) {
    for (int64_t i = 0; i < width; ++i) {
      row[i] = static_cast<float>(sinusoid(position, i, width));
    }
  };
  const auto add = [elements](const Bindings& b, const float* table, int64_t size) {
    const auto* in = b.input<float>(0);
    auto* out = b.output<float>(0);
    parallel_for(elements, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = in[i] + table[i % size];
    });
  };
  if (request.inputs.size() == 2) {
    const auto run = [=](const Bindings& b, Stream&) {
      auto* table = static_cast<float*>(b.workspace);
      for (int64_t row = 0; row < rows; ++row) {
        fill_row(table + row * width, b.input<int32_t>(1)[row / tokens] + row % tokens);
      }
      add(b, table, elements);
    };
    return make_kernel(run, static_cast<size_t>(elements) * sizeof(float));
  }
  std::vector<float> table(static_cast<size_t>(tokens * width));
  for (int64_t token = 0; token < tokens; ++token) {
    fill_row(table.data() + token * width, positions(token));
  }
  return make_kernel([=](const Bindings& b, Stream&) { add(b, table.data(), tokens * width); });
}

}  // namespace dltrain
