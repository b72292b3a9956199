// avg_pool2d, upsample2d, and their gradients, which take the transposed maps.
#include "ops/image_maps.h"

#include "reference/call.h"
#include "reference/indexing.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

ImageMaps maps_of(const NaiveCall& c, bool backward) {
  const Shape& x = backward ? c.outputs[0].shape : c.inputs[0].shape;
  ImageMaps maps = c.op.starts_with("upsample2d") ? upsampling_maps(x, c.attributes)
                                                  : pooling_maps(c.op, x, c.attributes);
  if (!backward) return maps;
  return {transposed(maps.height, x[1]), transposed(maps.width, x[2])};
}

}  // namespace

std::unique_ptr<Kernel> reference_image_map(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ImageMaps maps = maps_of(c, c.op.ends_with("_backward"));
    const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t n = i / y[3] / y[2] / y[1];
      double sum = 0;
      visit(maps.height, i / y[3] / y[2] % y[1], [&](int64_t row, double a) {
        visit(maps.width, i / y[3] % y[2], [&](int64_t column, double b) {
          sum += a * b * c.input<T>(0)[((n * x[1] + row) * x[2] + column) * x[3] + i % y[3]];
        });
      });
      c.put<T>(0, i, sum);
    }
  });
}

}  // namespace dltrain
