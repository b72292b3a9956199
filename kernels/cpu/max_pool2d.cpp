// max_pool2d, adaptive_max_pool2d, their gradients and tangents over NHWC, vectorised along the
// channels but for the tangents. The backward gathers: every input pixel adds up the windows whose
// maximum it is, so no two threads write the same element.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "ops/image_maps.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_MAX_POOL2D_ONCE
#define DLTRAIN_CPU_MAX_POOL2D_ONCE
namespace dltrain {
namespace {

// The part inside the image of a window, which begins at `corner`.
struct PoolWindow {
  int64_t corner, first, last;  // last: one beyond
};

struct PoolAxis {
  int64_t extent;
  bool overlaps = false;
  std::vector<PoolWindow> windows;                    // of the outputs
  std::vector<int64_t> first_output, outputs_beyond;  // of each input: the windows over it

  PoolAxis(int64_t inputs, std::vector<PoolWindow> of_outputs)
      : extent(inputs),
        windows(std::move(of_outputs)),
        first_output(static_cast<size_t>(inputs)),
        outputs_beyond(static_cast<size_t>(inputs)) {
    for (size_t o = windows.size(); o-- > 0;) {
      for (auto i = static_cast<size_t>(windows[o].first); i < static_cast<size_t>(windows[o].last);
           ++i) {
        overlaps = overlaps || outputs_beyond[i] != 0;
        first_output[i] = static_cast<int64_t>(o);
        if (outputs_beyond[i] == 0) outputs_beyond[i] = static_cast<int64_t>(o) + 1;
      }
    }
  }
  int64_t outputs() const { return static_cast<int64_t>(windows.size()); }
  const PoolWindow& window(int64_t o) const { return windows[static_cast<size_t>(o)]; }
};

// The position of a pixel in a window is (row − corner)·index_width + column − corner.
struct Pool {
  DType dtype;
  bool wide;  // positions are i32, not u8
  int64_t samples, channels, index_width;
  PoolAxis rows, columns;
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/max_pool2d.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
using IntTag = hn::RebindToSigned<ElementTag>;
using IntVec = hn::Vec<IntTag>;
using ByteTag = hn::Rebind<uint8_t, ElementTag>;

HWY_INLINE IntVec load_position(const int32_t* p) {
  return hn::LoadU(IntTag(), p);
}
HWY_INLINE IntVec load_position(const uint8_t* p) {
  return hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), p));
}
HWY_INLINE IntVec load_position(const int32_t* p, size_t count) {
  return hn::MaskedLoad(hn::FirstN(IntTag(), count), IntTag(), p);
}
HWY_INLINE IntVec load_position(const uint8_t* p, size_t count) {
#if DLTRAIN_AVX512()
  return hn::PromoteTo(IntTag(), hn::MaskedLoad(hn::FirstN(ByteTag(), count), ByteTag(), p));
#else
  if (count == hn::Lanes(ByteTag())) return load_position(p);
  uint8_t part[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(part, p, std::min(count, sizeof part));
  return load_position(part);
#endif
}
HWY_INLINE void store_position(IntVec v, int32_t* p, size_t count) {
  hn::BlendedStore(v, hn::FirstN(IntTag(), count), IntTag(), p);
}
HWY_INLINE void store_position(IntVec v, uint8_t* p, size_t count) {
  const auto bytes = hn::TruncateTo(ByteTag(), hn::BitCast(BitsTag(), v));
  hn::BlendedStore(bytes, hn::FirstN(ByteTag(), count), ByteTag(), p);
}

// Whole vectors need no mask, which costs much without AVX-512.
template <typename T>
HWY_INLINE ElementVec load_part(const T* p, size_t count) {
  return count == hn::Lanes(ElementTag()) ? load(p) : load_n(p, count);
}

HWY_INLINE hn::Mask<ElementTag> wins(ElementVec a, ElementVec b) {
  return hn::Or(hn::Gt(a, b), hn::IsNaN(a));
}

struct Best {
  ElementVec value;
  IntVec position;
};

// The maximum of 2 × 2 pixels, pairwise to shorten dependency chains.
template <typename T>
HWY_INLINE Best best_of_2x2(const T* x, int64_t line, int64_t channels, size_t count) {
  const IntTag di;
  const ElementVec v0 = load_part(x, count), v1 = load_part(x + channels, count);
  const ElementVec v2 = load_part(x + line, count), v3 = load_part(x + line + channels, count);
  const auto right0 = wins(v1, v0), right1 = wins(v3, v2);
  const ElementVec upper = hn::IfThenElse(right0, v1, v0), lower = hn::IfThenElse(right1, v3, v2);
  const auto down = wins(lower, upper);
  const IntVec place0 = hn::IfThenElseZero(hn::RebindMask(di, right0), hn::Set(di, 1));
  const IntVec place1 = hn::IfThenElse(hn::RebindMask(di, right1), hn::Set(di, 3), hn::Set(di, 2));
  return {hn::IfThenElse(down, lower, upper),
          hn::IfThenElse(hn::RebindMask(di, down), place1, place0)};
}

// The maximum of the pixels of a window.
template <typename T>
HWY_INLINE Best best_of(const Pool& g, const PoolWindow& rows, const PoolWindow& columns,
                        const T* image, int64_t line, size_t count) {
  const IntTag di;
  const auto index = [&](int64_t h, int64_t w) HWY_ATTR {
    const int64_t at = (h - rows.corner) * g.index_width + w - columns.corner;
    return hn::Set(di, static_cast<int32_t>(at));
  };
  Best best{hn::Set(ElementTag(), -std::numeric_limits<float>::infinity()),
            index(rows.first, columns.first)};
  for (int64_t h = rows.first; h < rows.last; ++h) {
    for (int64_t w = columns.first; w < columns.last; ++w) {
      const ElementVec v = load_part(image + h * line + w * g.channels, count);
      const auto won = wins(v, best.value);
      best.value = hn::IfThenElse(won, v, best.value);
      best.position = hn::IfThenElse(hn::RebindMask(di, won), index(h, w), best.position);
    }
  }
  return best;
}

// Computes one row of outputs: `row` counts over samples and output rows.
template <typename T, typename Position>
void pool_row(const Pool& g, const T* x, T* y, Position* position, int64_t row) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(ElementTag()));
  const int64_t channels = g.channels, line = g.columns.extent * channels;
  const PoolWindow rows = g.rows.window(row % g.rows.outputs());
  const T* image = x + row / g.rows.outputs() * g.rows.extent * line;
  const bool two_rows =
      g.index_width == 2 && rows.corner == rows.first && rows.last - rows.first == 2;
  int64_t out = row * g.columns.outputs() * channels;
  for (const PoolWindow& columns : g.columns.windows) {
    const bool two =
        two_rows && columns.corner == columns.first && columns.last - columns.first == 2;
    const T* first = image + rows.first * line + columns.first * channels;
    for (int64_t c = 0; c < channels; c += lanes) {
      const auto count = static_cast<size_t>(std::min(lanes, channels - c));
      const Best best = two ? best_of_2x2(first + c, line, channels, count)
                            : best_of(g, rows, columns, image + c, line, count);
      store_n(best.value, y + out + c, count);
      store_position(best.position, position + out + c, count);
    }
    out += channels;
  }
}

// Computes dx of one row of inputs if every input is in one window at most: `row` counts over
// samples and input rows. With few channels a full vector extends into the next pixel, which
// overwrites that part afterwards.
template <typename T, typename Position>
void pool_backward_apart(const Pool& g, const T* dy, const Position* position, T* dx, int64_t row) {
  const IntTag di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(ElementTag()));
  const int64_t channels = g.channels, sample = row / g.rows.extent, h = row % g.rows.extent;
  const int64_t oh = g.rows.first_output[static_cast<size_t>(h)];
  const bool covered = g.rows.outputs_beyond[static_cast<size_t>(h)] > 0;
  const int64_t from = (sample * g.rows.outputs() + oh) * g.columns.outputs() * channels;
  const T* const dy_end = dy + g.samples * g.rows.outputs() * g.columns.outputs() * channels;
  const int64_t extent = g.columns.extent;
  T* const to = dx + row * extent * channels;
  const T* const to_end = to + extent * channels;
  int64_t w = 0;  // the next column
  const int64_t corner = covered ? g.rows.window(oh).corner : 0, outputs = g.columns.outputs();
  const PoolWindow* windows = g.columns.windows.data();
  const int64_t index_width = g.index_width;
  for (int64_t ow = 0; covered && ow < outputs; ++ow) {
    const PoolWindow columns = windows[ow];
    if (w < columns.first) std::fill(to + w * channels, to + columns.first * channels, T{});
    const int64_t first = (h - corner) * index_width - columns.corner;
    for (w = columns.first; w < columns.last; ++w) {
      const auto index = hn::Set(di, static_cast<int32_t>(first + w));
      const T* gradient = dy + from + ow * channels;
      const Position* place = position + from + ow * channels;
      T* out = to + w * channels;
      for (int64_t c = 0; c < channels; c += lanes) {
        if (out + c + lanes <= to_end && gradient + c + lanes <= dy_end) {
          const auto won = hn::RebindMask(ElementTag(), hn::Eq(load_position(place + c), index));
          store(hn::IfThenElseZero(won, load(gradient + c)), out + c);
        } else {
          const auto count = static_cast<size_t>(std::min(lanes, channels - c));
          const auto won =
              hn::RebindMask(ElementTag(), hn::Eq(load_position(place + c, count), index));
          store_n(hn::IfThenElseZero(won, load_n(gradient + c, count)), out + c, count);
        }
      }
    }
  }
  if (w < extent) std::fill(to + w * channels, to + extent * channels, T{});
}

// The same for windows that may overlap.
template <typename T, typename Position>
void pool_backward_row(const Pool& g, const T* dy, const Position* position, T* dx, int64_t row) {
  const ElementTag d;
  const IntTag di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t sample = row / g.rows.extent, h = row % g.rows.extent;
  const auto at_row = static_cast<size_t>(h);
  for (int64_t w = 0; w < g.columns.extent; ++w) {
    const auto at_column = static_cast<size_t>(w);
    T* to = dx + (row * g.columns.extent + w) * g.channels;
    for (int64_t c = 0; c < g.channels; c += lanes) {
      const auto count = static_cast<size_t>(std::min(lanes, g.channels - c));
      auto sum = hn::Zero(d);
      for (int64_t oh = g.rows.first_output[at_row]; oh < g.rows.outputs_beyond[at_row]; ++oh) {
        const int64_t line = (h - g.rows.window(oh).corner) * g.index_width + w;
        for (int64_t ow = g.columns.first_output[at_column];
             ow < g.columns.outputs_beyond[at_column]; ++ow) {
          const auto index = static_cast<int32_t>(line - g.columns.window(ow).corner);
          const int64_t at =
              ((sample * g.rows.outputs() + oh) * g.columns.outputs() + ow) * g.channels + c;
          const auto won = hn::Eq(load_position(position + at, count), hn::Set(di, index));
          sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(d, won), load_part(dy + at, count)));
        }
      }
      store_n(sum, to + c, count);
    }
  }
}

// Computes rows [begin, end). `from`, `to`: x and y, or dy and dx.
template <typename Position>
void run_rows_of(const Pool& g, bool backward, const void* from, void* to, Position* position,
                 int64_t begin, int64_t end) {
  const bool overlaps = g.rows.overlaps || g.columns.overlaps;
  with_element_type(g.dtype, [&]<typename T>(T) {
    const auto* in = static_cast<const T*>(from);
    auto* out = static_cast<T*>(to);
    for (int64_t row = begin; row < end; ++row) {
      if (!backward) {
        pool_row(g, in, out, position, row);
      } else if (overlaps) {
        pool_backward_row(g, in, position, out, row);
      } else {
        pool_backward_apart(g, in, position, out, row);
      }
    }
  });
}
void run_rows(const Pool& g, bool backward, const void* from, void* to, void* position,
              int64_t begin, int64_t end) {
  g.wide ? run_rows_of(g, backward, from, to, static_cast<int32_t*>(position), begin, end)
         : run_rows_of(g, backward, from, to, static_cast<uint8_t*>(position), begin, end);
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(run_rows);

PoolAxis axis_of(const Attributes& attributes, size_t axis, int64_t inputs, int64_t outputs) {
  const auto kernel = attributes.integers("kernel"), stride = attributes.integers("stride", kernel),
             padding = attributes.integers("padding", {0, 0});
  std::vector<PoolWindow> windows;
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t corner = o * stride[axis] - padding[axis];
    windows.push_back(
        {corner, std::max<int64_t>(0, corner), std::min(inputs, corner + kernel[axis])});
  }
  return PoolAxis(inputs, windows);
}

// The inputs of an output of adaptive pooling are consecutive.
PoolAxis axis_of(const AxisMap& map, int64_t inputs) {
  std::vector<PoolWindow> windows;
  for (size_t o = 0; o + 1 < map.begin.size(); ++o) {
    const int64_t first = map.index[static_cast<size_t>(map.begin[o])];
    windows.push_back({0, first, first + map.begin[o + 1] - map.begin[o]});
  }
  return PoolAxis(inputs, windows);
}

Pool pool_of(const KernelRequest& r, bool backward) {
  const Shape &from = r.inputs[0].shape, &to = r.outputs[0].shape;
  const Shape &x = backward ? to : from, &y = backward ? from : to;
  const auto pool = [&](bool wide, int64_t index_width, PoolAxis rows, PoolAxis columns) {
    return Pool{r.inputs[0].dtype, wide, x[0], x[3], index_width, std::move(rows),
                std::move(columns)};
  };
  if (!r.attributes.has("output_size")) {
    return pool(false, r.attributes.integers("kernel")[1], axis_of(r.attributes, 0, x[1], y[1]),
                axis_of(r.attributes, 1, x[2], y[2]));
  }
  const ImageMaps maps = pooling_maps(r.op, x, r.attributes);
  return pool(true, x[2], axis_of(maps.height, x[1]), axis_of(maps.width, x[2]));
}

std::unique_ptr<Kernel> make_pool(const KernelRequest& r, bool backward) {
  const Pool pool = pool_of(r, backward);
  if (widen_function(pool.dtype) == nullptr || r.outputs[0].shape.elements() == 0) return nullptr;
  const int64_t rows = pool.samples * (backward ? pool.rows.extent : pool.rows.outputs());
  const int64_t grain = std::max<int64_t>(1, 4096 / (pool.columns.extent * pool.channels));
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto function = HWY_DYNAMIC_DISPATCH(run_rows);
    void* position = backward ? b.inputs[1] : b.outputs[1];
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      function(pool, backward, b.inputs[0], b.outputs[0], position, begin, end);
    });
  });
}

// dy of rows [begin, end) of outputs: dx at the maxima.
template <typename T, typename Position>
void select_rows(const Pool& g, const T* dx, const Position* position, T* dy, int64_t begin,
                 int64_t end) {
  const int64_t columns = g.columns.outputs(), line = g.columns.extent * g.channels;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t sample = row / g.rows.outputs();
    const int64_t top = g.rows.window(row % g.rows.outputs()).corner;
    for (int64_t ow = 0; ow < columns; ++ow) {
      const int64_t left = g.columns.window(ow).corner;
      for (int64_t c = 0; c < g.channels; ++c) {
        const int64_t at = (row * columns + ow) * g.channels + c;
        const int64_t index = position[at];
        const int64_t h = top + index / g.index_width, w = left + index % g.index_width;
        const bool inside = h >= 0 && h < g.rows.extent && w >= 0 && w < g.columns.extent;
        dy[at] = inside ? dx[(sample * g.rows.extent + h) * line + w * g.channels + c] : T{};
      }
    }
  }
}

std::unique_ptr<Kernel> make_select(const Pool& pool) {
  const int64_t columns = pool.columns.outputs(), rows = pool.samples * pool.rows.outputs();
  const int64_t grain = std::max<int64_t>(1, 4096 / (columns * pool.channels));
  return make_kernel([=](const Bindings& b, Stream&) {
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      with_element_type(pool.dtype, [&]<typename T>(T) {
        const auto* dx = static_cast<const T*>(b.inputs[0]);
        auto* dy = static_cast<T*>(b.outputs[0]);
        pool.wide ? select_rows(pool, dx, static_cast<const int32_t*>(b.inputs[1]), dy, begin, end)
                  : select_rows(pool, dx, static_cast<const uint8_t*>(b.inputs[1]), dy, begin, end);
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_max_pool2d(const KernelRequest& request) {
  return make_pool(request, false);
}
std::unique_ptr<Kernel> make_max_pool2d_backward(const KernelRequest& request) {
  return make_pool(request, true);
}
std::unique_ptr<Kernel> make_max_pool2d_tangent(const KernelRequest& request) {
  if (widen_function(request.inputs[0].dtype) == nullptr ||
      request.outputs[0].shape.elements() == 0) {
    return nullptr;
  }
  return make_select(pool_of(request, false));
}

}  // namespace dltrain
#endif
