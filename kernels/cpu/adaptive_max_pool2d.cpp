// adaptive_max_pool2d and its gradient over NHWC, vectorised along the channels. The backward
// gathers: every input pixel adds up the windows whose maximum it is.
#include <algorithm>
#include <limits>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/image_maps.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_ADAPTIVE_MAX_POOL2D_ONCE
#define DLTRAIN_CPU_ADAPTIVE_MAX_POOL2D_ONCE
namespace dltrain {
namespace {

// Consecutive places of an axis.
struct Range {
  int64_t first, last;  // last: one beyond
};

struct AdaptivePool {
  int64_t height, width, channels;  // of the image
  int64_t out_height, out_width;
  std::vector<Range> rows, columns;          // of the image, for each output row and column
  std::vector<Range> out_rows, out_columns;  // windows over each row and column of the image
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/adaptive_max_pool2d.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<Tag>;

void pool_row(const AdaptivePool& p, const float* x, float* y, int32_t* position, int64_t row) {
  const Tag d;
  const IntTag di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), line = p.width * p.channels;
  const float* image = x + row / p.out_height * p.height * line;
  const Range rows = p.rows[static_cast<size_t>(row % p.out_height)];
  for (int64_t ow = 0; ow < p.out_width; ++ow) {
    const Range columns = p.columns[static_cast<size_t>(ow)];
    const int64_t out = (row * p.out_width + ow) * p.channels;
    for (int64_t c = 0; c < p.channels; c += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, p.channels - c));
      const auto mask = hn::FirstN(d, count);
      auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
      auto winner = hn::Set(di, static_cast<int32_t>(rows.first * p.width + columns.first));
      for (int64_t h = rows.first; h < rows.last; ++h) {
        for (int64_t w = columns.first; w < columns.last; ++w) {
          const auto v = hn::MaskedLoad(mask, d, image + h * line + w * p.channels + c);
          const auto wins = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
          best = hn::IfThenElse(wins, v, best);
          winner = hn::IfThenElse(hn::RebindMask(di, wins),
                                  hn::Set(di, static_cast<int32_t>(h * p.width + w)), winner);
        }
      }
      hn::BlendedStore(best, mask, d, y + out + c);
      hn::BlendedStore(winner, hn::FirstN(di, count), di, position + out + c);
    }
  }
}

void pool_backward_row(const AdaptivePool& p, const float* dy, const int32_t* position, float* dx,
                       int64_t row) {
  const Tag d;
  const IntTag di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t sample = row / p.height, h = row % p.height;
  const Range rows = p.out_rows[static_cast<size_t>(h)];
  for (int64_t w = 0; w < p.width; ++w) {
    const Range columns = p.out_columns[static_cast<size_t>(w)];
    const auto pixel = hn::Set(di, static_cast<int32_t>(h * p.width + w));
    for (int64_t c = 0; c < p.channels; c += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, p.channels - c));
      const auto mask = hn::FirstN(d, count);
      auto sum = hn::Zero(d);
      for (int64_t oh = rows.first; oh < rows.last; ++oh) {
        for (int64_t ow = columns.first; ow < columns.last; ++ow) {
          const int64_t at = ((sample * p.out_height + oh) * p.out_width + ow) * p.channels + c;
          const auto winner = hn::MaskedLoad(hn::FirstN(di, count), di, position + at);
          const auto won = hn::RebindMask(d, hn::Eq(winner, pixel));
          sum = hn::Add(sum, hn::IfThenElseZero(won, hn::MaskedLoad(mask, d, dy + at)));
        }
      }
      hn::BlendedStore(sum, mask, d, dx + (row * p.width + w) * p.channels + c);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(pool_row);
HWY_EXPORT(pool_backward_row);

// Returns for each row of the map its columns, which are consecutive.
std::vector<Range> ranges(const AxisMap& map) {
  std::vector<Range> out;
  for (size_t o = 0; o + 1 < map.begin.size(); ++o) {
    const int64_t count = map.begin[o + 1] - map.begin[o];
    const int64_t first = count == 0 ? 0 : map.index[static_cast<size_t>(map.begin[o])];
    out.push_back({first, first + count});
  }
  return out;
}

AdaptivePool pool_of(const Shape& x, const Shape& y, const KernelRequest& request) {
  const ImageMaps maps = pooling_maps(request.op, x, request.attributes);
  return {.height = x[1],
          .width = x[2],
          .channels = x[3],
          .out_height = y[1],
          .out_width = y[2],
          .rows = ranges(maps.height),
          .columns = ranges(maps.width),
          .out_rows = ranges(transposed(maps.height, x[1])),
          .out_columns = ranges(transposed(maps.width, x[2]))};
}

int64_t row_grain(const AdaptivePool& p) {
  return std::max<int64_t>(1, 4096 / (p.width * p.channels));
}

bool usable(const KernelRequest& request) {
  return computes_in_f32(request) && request.outputs[0].shape.elements() > 0;
}

}  // namespace

MadeKernel make_adaptive_max_pool2d(const KernelRequest& r) {
  if (!usable(r)) return nullptr;
  const AdaptivePool pool = pool_of(r.inputs[0].shape, r.outputs[0].shape, r);
  return make_kernel([pool, samples = r.inputs[0].shape[0]](const Bindings& b, Stream&) {
    const auto function = HWY_DYNAMIC_DISPATCH(pool_row);
    parallel_for(samples * pool.out_height, row_grain(pool), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        function(pool, b.input<float>(0), b.output<float>(0), b.output<int32_t>(1), row);
      }
    });
  });
}

MadeKernel make_adaptive_max_pool2d_backward(const KernelRequest& r) {
  if (!usable(r)) return nullptr;
  const AdaptivePool pool = pool_of(r.outputs[0].shape, r.inputs[0].shape, r);
  return make_kernel([pool, samples = r.inputs[0].shape[0]](const Bindings& b, Stream&) {
    const auto function = HWY_DYNAMIC_DISPATCH(pool_backward_row);
    parallel_for(samples * pool.height, row_grain(pool), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        function(pool, b.input<float>(0), b.input<int32_t>(1), b.output<float>(0), row);
      }
    });
  });
}

}  // namespace dltrain
#endif
