// max_pool2d and max_pool2d_backward over NHWC, vectorised along the channels. The backward
// gathers: every input pixel adds up the windows whose maximum it is, so no two threads write the
// same element.
#include <algorithm>
#include <limits>
#include <tuple>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_MAX_POOL2D_ONCE
#define DLTRAIN_CPU_MAX_POOL2D_ONCE
namespace dltrain {
namespace {

struct PoolGeometry {
  int64_t height, width, channels;  // of the input
  int64_t out_height, out_width;
  int64_t kernel[2], stride[2], padding[2];
};

// The functions for one element type.
template <typename T>
struct PoolFunctions {
  void (*row)(const PoolGeometry& g, const T* x, const T* x_end, T* y, uint8_t* position,
              int64_t row);
  void (*backward_tiles)(const PoolGeometry& g, const T* dy, const uint8_t* position,
                         const T* dy_end, T* dx, int64_t row);
  void (*backward_row)(const PoolGeometry& g, const T* dy, const uint8_t* position, T* dx,
                       int64_t row);
};
using AllPoolFunctions = std::tuple<PoolFunctions<float>, PoolFunctions<Bf16>, PoolFunctions<F16>>;

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/max_pool2d.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
using Tag = ElementTag;
using Vec = ElementVec;
using IntTag = hn::RebindToSigned<Tag>;
using ByteTag = hn::Rebind<uint8_t, Tag>;

// The part of a window inside the image.
struct Inside {
  int64_t first_row, last_row, first_column, last_column;  // last: one beyond
};

template <bool masked, typename T>
HWY_INLINE Vec load_part(const T* x, size_t count) {
  if constexpr (masked) return load_n(x, count);
  return load(x);
}

// Computes one vector of channels of one window whose corner is at `corner` (perhaps outside the
// image). Unless masked, full vectors are read and written, regardless of `count`.
template <bool masked, typename T>
HWY_INLINE void pool_vector(const PoolGeometry& g, const T* corner, const Inside& inside,
                            size_t count, T* y, uint8_t* position) {
  const Tag d;
  const IntTag di;
  const hn::RebindToUnsigned<IntTag> du;
  const ByteTag du8;
  const int64_t line = g.width * g.channels;
  auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto winner =
      hn::Set(di, static_cast<int32_t>(inside.first_row * g.kernel[1] + inside.first_column));
  for (int64_t kh = inside.first_row; kh < inside.last_row; ++kh) {
    for (int64_t kw = inside.first_column; kw < inside.last_column; ++kw) {
      const Vec v = load_part<masked>(corner + kh * line + kw * g.channels, count);
      const auto wins = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
      best = hn::IfThenElse(wins, v, best);
      winner = hn::IfThenElse(hn::RebindMask(di, wins),
                              hn::Set(di, static_cast<int32_t>(kh * g.kernel[1] + kw)), winner);
    }
  }
  const auto bytes = hn::TruncateTo(du8, hn::BitCast(du, winner));
  if constexpr (masked) {
    store_n(best, y, count);
    hn::BlendedStore(bytes, hn::FirstN(du8, count), du8, position);
  } else {
    store(best, y);
    hn::StoreU(bytes, du8, position);
  }
}

// The same for 2 × 2 windows inside the image: pairwise, to shorten dependency chains.
template <bool masked, typename T>
HWY_INLINE void pool_vector_2x2(const PoolGeometry& g, const T* corner, size_t count, T* y,
                                uint8_t* position) {
  const IntTag di;
  const hn::RebindToUnsigned<IntTag> du;
  const ByteTag du8;
  const int64_t line = g.width * g.channels;
  const Vec v0 = load_part<masked>(corner, count),
            v1 = load_part<masked>(corner + g.channels, count);
  const Vec v2 = load_part<masked>(corner + line, count),
            v3 = load_part<masked>(corner + line + g.channels, count);
  const auto wins = [](Vec a, Vec b) HWY_ATTR { return hn::Or(hn::Gt(a, b), hn::IsNaN(a)); };
  const auto right0 = wins(v1, v0), right1 = wins(v3, v2);
  const Vec upper = hn::IfThenElse(right0, v1, v0), lower = hn::IfThenElse(right1, v3, v2);
  const auto down = wins(lower, upper);
  const auto place0 = hn::IfThenElseZero(hn::RebindMask(di, right0), hn::Set(di, 1));
  const auto place1 = hn::IfThenElse(hn::RebindMask(di, right1), hn::Set(di, 3), hn::Set(di, 2));
  const auto winner = hn::IfThenElse(hn::RebindMask(di, down), place1, place0);
  const Vec best = hn::IfThenElse(down, lower, upper);
  const auto bytes = hn::TruncateTo(du8, hn::BitCast(du, winner));
  if constexpr (masked) {
    store_n(best, y, count);
    hn::BlendedStore(bytes, hn::FirstN(du8, count), du8, position);
  } else {
    store(best, y);
    hn::StoreU(bytes, du8, position);
  }
}

// Computes one row of outputs: `row` counts over samples and output rows. With few channels a full
// vector extends into the next pixel, which overwrites that part afterwards; vectors are masked
// only if there is no next pixel or a load would leave the tensor.
template <typename T>
void pool_row(const PoolGeometry& g, const T* x, const T* x_end, T* y, uint8_t* position,
              int64_t row) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  const int64_t sample = row / g.out_height, oh = row % g.out_height;
  const T* image = x + sample * g.height * g.width * g.channels;
  const int64_t h0 = oh * g.stride[0] - g.padding[0];
  Inside inside{std::max<int64_t>(0, -h0), std::min(g.kernel[0], g.height - h0), 0, 0};
  const int64_t out_end = (row + 1) * g.out_width * g.channels;
  for (int64_t ow = 0; ow < g.out_width; ++ow) {
    const int64_t w0 = ow * g.stride[1] - g.padding[1];
    inside.first_column = std::max<int64_t>(0, -w0);
    inside.last_column = std::min(g.kernel[1], g.width - w0);
    const T* corner = image + (h0 * g.width + w0) * g.channels;
    const bool whole_2x2 = g.kernel[0] == 2 && g.kernel[1] == 2 &&
                           inside.last_row - inside.first_row == 2 &&
                           inside.last_column - inside.first_column == 2;
    const T* last =
        corner + ((inside.last_row - 1) * g.width + inside.last_column - 1) * g.channels;
    const int64_t out = (row * g.out_width + ow) * g.channels;
    for (int64_t c = 0; c < g.channels; c += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, g.channels - c));
      const bool room = out + c + lanes <= out_end && last + c + lanes <= x_end;
      if (whole_2x2) {
        room ? pool_vector_2x2<false>(g, corner + c, count, y + out + c, position + out + c)
             : pool_vector_2x2<true>(g, corner + c, count, y + out + c, position + out + c);
      } else if (room) {
        pool_vector<false>(g, corner + c, inside, count, y + out + c, position + out + c);
      } else {
        pool_vector<true>(g, corner + c, inside, count, y + out + c, position + out + c);
      }
    }
  }
}

// Computes dx of one row of outputs, if windows neither overlap nor leave gaps nor include padding:
// every input pixel belongs to one window, or to none at the right and lower edge.
template <typename T>
void pool_backward_tiles(const PoolGeometry& g, const T* dy, const uint8_t* position,
                         const T* dy_end, T* dx, int64_t row) {
  const Tag d;
  const IntTag di;
  const ByteTag du8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), line = g.width * g.channels;
  const int64_t sample = row / g.out_height, oh = row % g.out_height;
  const int64_t from = row * g.out_width * g.channels;
  T* image = dx + sample * g.height * line;
  const int64_t last_row = oh + 1 == g.out_height ? g.height : (oh + 1) * g.kernel[0];
  for (int64_t h = oh * g.kernel[0]; h < last_row; ++h) {
    T* to = image + h * line;
    const int64_t kh = h - oh * g.kernel[0];
    int64_t w = 0;
    for (; kh < g.kernel[0] && w < g.out_width * g.kernel[1]; ++w) {
      const int64_t at = from + w / g.kernel[1] * g.channels;
      const auto index = hn::Set(di, static_cast<int32_t>(kh * g.kernel[1] + w % g.kernel[1]));
      for (int64_t c = 0; c < g.channels; c += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, g.channels - c));
        // As in pool_row, the next pixel overwrites the excess lanes.
        if (w * g.channels + c + lanes <= line && dy + at + c + lanes <= dy_end) {
          const auto winner = hn::PromoteTo(di, hn::LoadU(du8, position + at + c));
          const auto won = hn::RebindMask(d, hn::Eq(winner, index));
          store(hn::IfThenElseZero(won, load(dy + at + c)), to + w * g.channels + c);
        } else {
          const auto winner =
              hn::PromoteTo(di, hn::MaskedLoad(hn::FirstN(du8, count), du8, position + at + c));
          const auto won = hn::RebindMask(d, hn::Eq(winner, index));
          store_n(hn::IfThenElseZero(won, load_n(dy + at + c, count)), to + w * g.channels + c,
                  count);
        }
      }
    }
    std::fill(to + w * g.channels, to + line, T{});
  }
}

// Computes dx of one row of inputs: `row` counts over samples and input rows.
template <typename T>
void pool_backward_row(const PoolGeometry& g, const T* dy, const uint8_t* position, T* dx,
                       int64_t row) {
  const Tag d;
  const IntTag di;
  const ByteTag du8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t sample = row / g.height, h = row % g.height + g.padding[0];
  const int64_t first_oh = h < g.kernel[0] ? 0 : (h - g.kernel[0]) / g.stride[0] + 1;
  const int64_t last_oh = std::min(g.out_height - 1, h / g.stride[0]);
  for (int64_t column = 0; column < g.width; ++column) {
    const int64_t w = column + g.padding[1];
    const int64_t first_ow = w < g.kernel[1] ? 0 : (w - g.kernel[1]) / g.stride[1] + 1;
    const int64_t last_ow = std::min(g.out_width - 1, w / g.stride[1]);
    T* to = dx + (row * g.width + column) * g.channels;
    for (int64_t c = 0; c < g.channels; c += lanes) {
      const size_t n = static_cast<size_t>(std::min(lanes, g.channels - c));
      auto sum = hn::Zero(d);
      for (int64_t oh = first_oh; oh <= last_oh; ++oh) {
        for (int64_t ow = first_ow; ow <= last_ow; ++ow) {
          const int64_t index = (h - oh * g.stride[0]) * g.kernel[1] + (w - ow * g.stride[1]);
          const int64_t at = ((sample * g.out_height + oh) * g.out_width + ow) * g.channels + c;
          const auto winner =
              hn::PromoteTo(di, hn::MaskedLoad(hn::FirstN(du8, n), du8, position + at));
          const auto won = hn::Eq(winner, hn::Set(di, static_cast<int32_t>(index)));
          sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(d, won), load_n(dy + at, n)));
        }
      }
      store_n(sum, to + c, n);
    }
  }
}

template <typename T>
PoolFunctions<T> choose() {
  return {pool_row<T>, pool_backward_tiles<T>, pool_backward_row<T>};
}
AllPoolFunctions choose_all() {
  return {choose<float>(), choose<Bf16>(), choose<F16>()};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose_all);

template <typename T>
PoolFunctions<T> pool_functions() {
  return std::get<PoolFunctions<T>>(HWY_DYNAMIC_DISPATCH(choose_all)());
}

PoolGeometry geometry(const Shape& x, const Shape& y, const Attributes& attributes) {
  const auto kernel = attributes.integers("kernel"), stride = attributes.integers("stride", kernel),
             padding = attributes.integers("padding", {0, 0});
  return {.height = x[1],
          .width = x[2],
          .channels = x[3],
          .out_height = y[1],
          .out_width = y[2],
          .kernel = {kernel[0], kernel[1]},
          .stride = {stride[0], stride[1]},
          .padding = {padding[0], padding[1]}};
}

// Returns the least number of rows per thread.
int64_t row_grain(const PoolGeometry& g) {
  return std::max<int64_t>(1, 4096 / (g.width * g.channels));
}

}  // namespace

MadeKernel make_max_pool2d(const KernelRequest& request) {
  const PoolGeometry g =
      geometry(request.inputs[0].shape, request.outputs[0].shape, request.attributes);
  const int64_t samples = request.inputs[0].shape[0];
  return with_element_type(request.inputs[0].dtype, [&]<typename T>(T) -> MadeKernel {
    return make_kernel(
        [g, samples, function = pool_functions<T>().row](const Bindings& b, Stream&) {
          const T* x = b.input<T>(0);
          const T* x_end = x + samples * g.height * g.width * g.channels;
          parallel_for(samples * g.out_height, row_grain(g), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              function(g, x, x_end, b.output<T>(0), b.output<uint8_t>(1), row);
            }
          });
        });
  });
}

MadeKernel make_max_pool2d_backward(const KernelRequest& request) {
  const PoolGeometry g =
      geometry(request.outputs[0].shape, request.inputs[0].shape, request.attributes);
  const int64_t samples = request.inputs[0].shape[0];
  // Adjacent windows without padding.
  const bool tiles = g.stride[0] == g.kernel[0] && g.stride[1] == g.kernel[1] &&
                     g.padding[0] == 0 && g.padding[1] == 0 &&
                     g.out_height * g.kernel[0] <= g.height && g.out_width * g.kernel[1] <= g.width;
  return with_element_type(request.inputs[0].dtype, [&]<typename T>(T) -> MadeKernel {
    return make_kernel([g, samples, tiles, functions = pool_functions<T>()](const Bindings& b,
                                                                            Stream&) {
      const T *dy = b.input<T>(0), *dy_end = dy + samples * g.out_height * g.out_width * g.channels;
      const auto* position = b.input<uint8_t>(1);
      T* dx = b.output<T>(0);
      parallel_for(samples * (tiles ? g.out_height : g.height), row_grain(g),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       if (tiles) {
                         functions.backward_tiles(g, dy, position, dy_end, dx, row);
                       } else {
                         functions.backward_row(g, dy, position, dx, row);
                       }
                     }
                   });
    });
  });
}

}  // namespace dltrain
#endif
