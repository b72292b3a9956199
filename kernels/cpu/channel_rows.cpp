#include "cpu/channel_rows.h"

#include <type_traits>

#include "cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/channel_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
using Tag = ElementTag;
using Vec = ElementVec;

// Vectors of channels that are stored together: two vectors of 16-bit elements fill one in memory.
constexpr int kWritten = 2;

#if DLTRAIN_AVX512()
// Rounding by instructions of AVX512_BF16, which flush subnormal numbers to 0.
struct NativeBf16 {};
HWY_INLINE hn::Vec<hn::ScalableTag<uint16_t>> narrow_two(const Vec* v, NativeBf16) {
  return narrow_native(v[0], v[1]);
}
#endif
template <typename Rounding>
HWY_INLINE hn::Vec<hn::ScalableTag<uint16_t>> narrow_two(const Vec* v, Rounding rounding) {
  return hn::Combine(hn::ScalableTag<uint16_t>(), narrow_bits(v[1], rounding),
                     narrow_bits(v[0], rounding));
}

// Access to a vector of channels: a full one, or the last few channels.
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

// Prefetches the cache lines of `kVectors` vectors from p on. Prefetching beyond the end of memory
// is harmless.
template <int kVectors, typename T>
HWY_INLINE void fetch(const T* p) {
  const int64_t bytes = kVectors * static_cast<int64_t>(hn::Lanes(Tag()) * sizeof(T));
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(p) + i, 0, 2);
  }
}

// `far`: non-temporal stores, for results that are read too late to be found in the caches; plain
// stores would read the lines first. The address must then be aligned to the vectors' size.
template <bool far, typename Rounding, int kVectors, typename Read, typename T>
HWY_INLINE void put_all(Read part, const Vec* v, T* p) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  if constexpr (kVectors == kWritten && sizeof(T) == 2) {
    const hn::ScalableTag<uint16_t> d;
    const auto both = narrow_two(v, Rounding());
    far ? hn::Stream(both, d, half_bits(p)) : hn::StoreU(both, d, half_bits(p));
    return;
  }
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (far && std::is_same_v<T, float>) {
      hn::Stream(v[i], Tag(), p + i * lanes);
    } else {
      part.put(v[i], p + i * lanes);
    }
  }
}

// Calls f(Whole or Part, first channel, vectors) for every group of kVectors vectors of channels,
// then for the remaining vectors one by one. Groups read several consecutive cache lines.
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

// Mean and sum of squared deviations of each channel over a chunk of rows, in one pass: sums of the
// differences to the mean of the first few rows, which is close enough to the chunk's mean to limit
// cancellation. They are added up by blocks of rows, so that rounding errors do not grow with the
// chunk.
template <typename T>
void chunk_statistics(const T* x, int64_t rows, int64_t channels, float* mean, float* squares) {
  constexpr int64_t kBlock = 32;
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t first_rows = HWY_MIN(16, HWY_MAX(1, rows / 16));
  const Vec count = hn::Set(d, static_cast<float>(rows));
  const Vec first_count = hn::Set(d, static_cast<float>(first_rows));
  along_channels<4>(channels, [&](auto part, int64_t c, auto vectors) HWY_ATTR {
    Vec centre[vectors], sum[vectors], square[vectors];
    for (int v = 0; v < vectors; ++v) centre[v] = sum[v] = square[v] = hn::Zero(d);
    for (int64_t r = 0; r < first_rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        centre[v] = hn::Add(centre[v], part.get(x + r * channels + c + v * lanes));
      }
    }
    for (int v = 0; v < vectors; ++v) centre[v] = hn::Div(centre[v], first_count);
    for (int64_t begin = 0; begin < rows; begin += kBlock) {
      const int64_t end = HWY_MIN(begin + kBlock, rows);
      Vec block_sum[vectors], block_square[vectors];
      for (int v = 0; v < vectors; ++v) block_sum[v] = block_square[v] = hn::Zero(d);
      for (int64_t r = begin; r < end; ++r) {
        const T* from = x + r * channels + c;
        fetch<vectors>(from + rows * channels);
        for (int v = 0; v < vectors; ++v) {
          const Vec distance = hn::Sub(part.get(from + v * lanes), centre[v]);
          block_sum[v] = hn::Add(block_sum[v], distance);
          block_square[v] = hn::MulAdd(distance, distance, block_square[v]);
        }
      }
      for (int v = 0; v < vectors; ++v) {
        sum[v] = hn::Add(sum[v], block_sum[v]);
        square[v] = hn::Add(square[v], block_square[v]);
      }
    }
    for (int v = 0; v < vectors; ++v) {
      const Vec shift = hn::Div(sum[v], count);
      part.put(hn::Add(centre[v], shift), mean + c + v * lanes);
      part.put(hn::Max(hn::NegMulAdd(shift, sum[v], square[v]), hn::Zero(d)),
               squares + c + v * lanes);
    }
  });
}

template <typename Read>
HWY_INLINE Vec line_at(Read part, Vec centred, const ChannelAffine& line, int64_t c) {
  return hn::MulAdd(centred, part.get(line.scale + c), part.get(line.shift + c));
}

// Returns dy, or with relu dy where the forward is positive, else 0.
template <ChannelEpilogue form, typename Read, typename T>
HWY_INLINE Vec gradient_at(Read part, const T* dy, Vec centred, const ChannelAffine& line,
                           int64_t c) {
  const Vec gradient = part.get(dy);
  if constexpr (form == ChannelEpilogue::plain) return gradient;
  return hn::IfThenElseZero(hn::Gt(line_at(part, centred, line, c), hn::Zero(Tag())), gradient);
}

// Σdy and Σdy·(x − mean) of each channel over a chunk of rows.
template <ChannelEpilogue form, typename T>
void chunk_gradient_sums(const T* x, const T* dy, const ChannelAffine& line, int64_t rows,
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
      const int64_t next = (r + rows) * channels + c;
      fetch<vectors>(x + next);
      fetch<vectors>(dy + next);
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
template <ChannelEpilogue form, bool far, typename Rounding, typename T>
void normalise_rows(const T* x, const ChannelAffine& line, const T* residual, int64_t rows,
                    int64_t channels, T* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  for (int64_t r = 0; r < rows; ++r) {
    along_channels<kWritten>(channels, [&](auto part, int64_t c, auto vectors) HWY_ATTR {
      const int64_t at = r * channels + c;
      Vec out[vectors];
      for (int i = 0; i < vectors; ++i) {
        const int64_t k = c + i * lanes, from = at + i * lanes;
        Vec v = line_at(part, hn::Sub(part.get(x + from), part.get(line.centre + k)), line, k);
        if constexpr (form == ChannelEpilogue::residual_relu)
          v = hn::Add(v, part.get(residual + from));
        if constexpr (form != ChannelEpilogue::plain) {
          v = hn::IfThenElse(hn::Lt(v, hn::Zero(Tag())), hn::Zero(Tag()), v);
        }
        out[i] = v;
      }
      put_all<far, Rounding, vectors>(part, out, y + at);
    });
  }
}

// dx = scale·dy − slope·(x − mean) − offset, channel by channel.
template <ChannelEpilogue form, bool far, typename Rounding, typename T>
void gradient_rows(const T* x, const T* dy, const ChannelAffine& line, const float* slope,
                   const float* offset, int64_t rows, int64_t channels, T* dx) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  for (int64_t r = 0; r < rows; ++r) {
    along_channels<kWritten>(channels, [&](auto part, int64_t c, auto vectors) HWY_ATTR {
      const int64_t at = r * channels + c;
      Vec out[vectors];
      for (int i = 0; i < vectors; ++i) {
        const int64_t k = c + i * lanes, from = at + i * lanes;
        const Vec centred = hn::Sub(part.get(x + from), part.get(line.centre + k));
        const Vec gradient = gradient_at<form>(part, dy + from, centred, line, k);
        const Vec scaled = hn::MulSub(gradient, part.get(line.scale + k), part.get(offset + k));
        out[i] = hn::NegMulAdd(part.get(slope + k), centred, scaled);
      }
      put_all<far, Rounding, vectors>(part, out, dx + at);
    });
  }
}

template <ChannelEpilogue form, typename Rounding, typename T>
void normalise(const T* x, const ChannelAffine& line, const T* residual, int64_t rows,
               int64_t channels, T* y, bool far) {
  const auto run =
      far ? normalise_rows<form, true, Rounding, T> : normalise_rows<form, false, Rounding, T>;
  run(x, line, residual, rows, channels, y);
}

template <ChannelEpilogue form, typename Rounding, typename T>
void input_gradient(const T* x, const T* dy, const ChannelAffine& line, const float* slope,
                    const float* offset, int64_t rows, int64_t channels, T* dx, bool far) {
  const auto run =
      far ? gradient_rows<form, true, Rounding, T> : gradient_rows<form, false, Rounding, T>;
  run(x, dy, line, slope, offset, rows, channels, dx);
}

// The functions for one element type.
template <typename T, typename Rounding = T>
ChannelFunctions<T> choose(ChannelEpilogue form) {
  constexpr auto kPlain = ChannelEpilogue::plain, kRelu = ChannelEpilogue::relu;
  if (form == kPlain) {
    return {chunk_statistics<T>, normalise<kPlain, Rounding, T>, chunk_gradient_sums<kPlain, T>,
            input_gradient<kPlain, Rounding, T>};
  }
  return {chunk_statistics<T>,
          form == kRelu ? normalise<kRelu, Rounding, T>
                        : normalise<ChannelEpilogue::residual_relu, Rounding, T>,
          chunk_gradient_sums<kRelu, T>, input_gradient<kRelu, Rounding, T>};
}
AllChannelFunctions choose_all(ChannelEpilogue form) {
  auto bf16 = choose<Bf16>(form);
#if DLTRAIN_AVX512()
  if (__builtin_cpu_supports("avx512bf16")) bf16 = choose<Bf16, NativeBf16>(form);
#endif
  return {choose<float>(form), bf16, choose<F16>(form)};
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
HWY_EXPORT(choose_all);

AllChannelFunctions all_channel_functions(ChannelEpilogue form) {
  return HWY_DYNAMIC_DISPATCH(choose_all)(form);
}

}  // namespace dltrain
#endif
