#include "cpu/channel_rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/channel_rows.cpp"
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
void chunk_statistics_simd(const float* x, int64_t rows, int64_t channels, float* mean,
                           float* squares) {
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
void chunk_gradient_sums_simd(const float* x, const float* dy, const float* mean, int64_t rows,
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
void normalise_simd(const float* x, const float* centre, const float* scale, const float* shift,
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
void input_gradient_simd(const float* x, const float* dy, const float* mean, const float* scale,
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
HWY_EXPORT(chunk_statistics_simd);
HWY_EXPORT(chunk_gradient_sums_simd);
HWY_EXPORT(normalise_simd);
HWY_EXPORT(input_gradient_simd);
}  // namespace

void chunk_statistics(const float* x, int64_t rows, int64_t channels, float* mean, float* squares) {
  HWY_DYNAMIC_DISPATCH(chunk_statistics_simd)(x, rows, channels, mean, squares);
}

void chunk_gradient_sums(const float* x, const float* dy, const float* mean, int64_t rows,
                         int64_t channels, float* sum_dy, float* sum_dy_x) {
  HWY_DYNAMIC_DISPATCH(chunk_gradient_sums_simd)(x, dy, mean, rows, channels, sum_dy, sum_dy_x);
}

void normalise(const float* x, const float* centre, const float* scale, const float* shift,
               int64_t rows, int64_t channels, float* y) {
  HWY_DYNAMIC_DISPATCH(normalise_simd)(x, centre, scale, shift, rows, channels, y);
}

void input_gradient(const float* x, const float* dy, const float* mean, const float* scale,
                    const float* slope, const float* offset, int64_t rows, int64_t channels,
                    float* dx) {
  HWY_DYNAMIC_DISPATCH(input_gradient_simd)(x, dy, mean, scale, slope, offset, rows, channels, dx);
}

}  // namespace dltrain
#endif
