// row_norms: one thread computes a row, with eight sums in double, which are added in order.
#include <array>
#include <cmath>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

double norm_of_row(const float* w, const float* p, double scale, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  const auto add = [&](int64_t lane, int64_t i) {
    const double value = double{w[i]} + scale * double{p[i]};
    sums[static_cast<size_t>(lane)] += value * value;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(lane, i + lane);
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) add(lane, i);
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

}  // namespace

std::unique_ptr<Kernel> make_row_norms(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const Shape shape = request.inputs[0].shape;
  return make_kernel([rows = shape[0], columns = shape[1],
                      scale = request.attributes.number("scale", 1)](const Bindings& b, Stream&) {
    const auto *w = b.input<float>(0), *p = b.input<float>(1);
    auto* norm = b.output<float>(0);
    parallel_for(rows, 1 + 16384 / std::max<int64_t>(columns, 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        norm[row] =
            static_cast<float>(norm_of_row(w + row * columns, p + row * columns, scale, columns));
      }
    });
  });
}

}  // namespace dltrain
