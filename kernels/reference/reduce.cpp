// reduce: sum, mean or max over a set of axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

// A subset of a shape's axes, traversed by one flat index.
struct Axes {
  void add(int64_t extent, int64_t stride) {
    extents.push_back(extent);
    strides.push_back(stride);
    count *= extent;
  }
  int64_t offset(int64_t i) const {
    int64_t out = 0;
    for (size_t axis = extents.size(); axis-- > 0; i /= extents[axis]) {
      out += i % extents[axis] * strides[axis];
    }
    return out;
  }

  std::vector<int64_t> extents, strides;
  int64_t count = 1;
};

}  // namespace

std::unique_ptr<Kernel> reference_reduce(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const std::string kind = c.attributes.text("kind");
    const Shape& shape = c.inputs[0].shape;
    const auto axes = c.attributes.integers("axes");
    Axes kept, reduced;
    for (int i = 0; i < shape.rank(); ++i) {
      const bool reduce = std::find(axes.begin(), axes.end(), i) != axes.end();
      (reduce ? reduced : kept).add(shape[i], shape.elements(i + 1, shape.rank()));
    }
    for (int64_t o = 0; o < kept.count; ++o) {
      const T* x = c.input<T>(0) + kept.offset(o);
      double sum = 0, greatest = -std::numeric_limits<double>::infinity();
      for (int64_t r = 0; r < reduced.count; ++r) {
        const double v = x[reduced.offset(r)];
        sum += v;
        if (v > greatest || std::isnan(v)) greatest = v;
      }
      if (kind == "mean") sum /= static_cast<double>(reduced.count);
      c.put<T>(0, o, kind == "max" ? greatest : sum);
    }
  });
}

}  // namespace dltrain
