// avg_pool2d, upsample2d, and their gradients: sparse maps of height and width (ops/image_maps.h),
// vectorised along the channels. Every output pixel gathers its inputs, so no two threads write the
// same element and sums have a fixed order.
#include "ops/image_maps.h"

#include <algorithm>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_IMAGE_MAPS_ONCE
#define DLTRAIN_CPU_IMAGE_MAPS_ONCE
namespace dltrain {
namespace {

// An AxisMap with f32 weights.
struct FloatMap {
  std::vector<int64_t> begin, index;
  std::vector<float> weight;
};

struct MapCall {
  const float* x;
  float* y;
  int64_t height, width, channels;  // of x
  int64_t out_height, out_width;
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/image_maps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// Computes output row `row`, counted over samples and rows.
void map_row(const MapCall& call, const FloatMap& rows, const FloatMap& columns, int64_t row) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), line = call.width * call.channels;
  const auto oh = static_cast<size_t>(row % call.out_height);
  const float* image = call.x + row / call.out_height * call.height * line;
  for (int64_t ow = 0; ow < call.out_width; ++ow) {
    const auto first = static_cast<size_t>(columns.begin[static_cast<size_t>(ow)]);
    const auto last = static_cast<size_t>(columns.begin[static_cast<size_t>(ow) + 1]);
    float* y = call.y + (row * call.out_width + ow) * call.channels;
    for (int64_t c = 0; c < call.channels; c += lanes) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(std::min(lanes, call.channels - c)));
      Vec sum = hn::Zero(d);
      for (int64_t h = rows.begin[oh]; h < rows.begin[oh + 1]; ++h) {
        const float* from = image + rows.index[static_cast<size_t>(h)] * line + c;
        Vec part = hn::Zero(d);
        for (size_t w = first; w < last; ++w) {
          const Vec x = hn::MaskedLoad(mask, d, from + columns.index[w] * call.channels);
          part = hn::MulAdd(x, hn::Set(d, columns.weight[w]), part);
        }
        sum = hn::MulAdd(part, hn::Set(d, rows.weight[static_cast<size_t>(h)]), sum);
      }
      hn::BlendedStore(sum, mask, d, y + c);
    }
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(map_row);

FloatMap in_floats(AxisMap map) {
  return {std::move(map.begin), std::move(map.index),
          std::vector<float>(map.weight.begin(), map.weight.end())};
}

}  // namespace

std::unique_ptr<Kernel> make_image_map(const KernelRequest& r) {
  if (!computes_in_f32(r) || r.outputs[0].shape.elements() == 0) return nullptr;
  const bool backward = r.op.ends_with("_backward");
  const Shape &x = r.inputs[0].shape, &y = r.outputs[0].shape, &image = backward ? y : x;
  ImageMaps maps = r.op.starts_with("upsample2d") ? upsampling_maps(image, r.attributes)
                                                  : pooling_maps(r.op, image, r.attributes);
  if (backward) maps = {transposed(maps.height, image[1]), transposed(maps.width, image[2])};
  const FloatMap rows = in_floats(std::move(maps.height)),
                 columns = in_floats(std::move(maps.width));
  const int64_t all_rows = x[0] * y[1];
  const MapCall call{nullptr, nullptr, x[1], x[2], x[3], y[1], y[2]};
  return make_kernel([=](const Bindings& b, Stream&) {
    MapCall bound = call;
    bound.x = b.input<float>(0);
    bound.y = b.output<float>(0);
    const auto function = HWY_DYNAMIC_DISPATCH(map_row);
    const int64_t grain = std::max<int64_t>(1, 4096 / (call.out_width * call.channels));
    parallel_each(all_rows, grain, [&](int64_t row) { function(bound, rows, columns, row); });
  });
}

}  // namespace dltrain
#endif
