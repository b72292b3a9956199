#include "cpu/channel_rows.h"

#include <type_traits>

#include "cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/channel_rows.cpp"
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

}  // namespace

template <>
ChannelFunctions<float> channel_functions(ChannelForm form) {
  return HWY_DYNAMIC_DISPATCH(choose_f32)(form);
}
template <>
ChannelFunctions<Bf16> channel_functions(ChannelForm form) {
  return HWY_DYNAMIC_DISPATCH(choose_bf16)(form);
}
template <>
ChannelFunctions<F16> channel_functions(ChannelForm form) {
  return HWY_DYNAMIC_DISPATCH(choose_f16)(form);
}

}  // namespace dltrain
#endif
