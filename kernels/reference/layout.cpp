// concat, slice, pad and transpose: copies element by element.
#include <array>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

using MultiIndex = std::array<int64_t, Shape::kMaxRank>;

MultiIndex index_of(int64_t element, const Shape& shape) {
  MultiIndex index{};
  for (int i = shape.rank(); i-- > 0; element /= shape[i]) {
    index[static_cast<size_t>(i)] = element % shape[i];
  }
  return index;
}

int64_t element_at(const MultiIndex& index, const Shape& shape) {
  int64_t element = 0;
  for (int i = 0; i < shape.rank(); ++i)
    element = element * shape[i] + index[static_cast<size_t>(i)];
  return element;
}

// A kernel for any dtype: work(call, number).
template <typename Work>
std::unique_ptr<Kernel> make_any(const KernelRequest& request, Work work) {
  switch (request.inputs[0].dtype) {
    case DType::f32:
      return make_naive_of<float>(request, work);
    case DType::f64:
      return make_naive_of<double>(request, work);
    case DType::i32:
      return make_naive_of<int32_t>(request, work);
    case DType::u8:
      return make_naive_of<uint8_t>(request, work);
    default:
      return nullptr;
  }
}

}  // namespace

std::unique_ptr<Kernel> reference_concat(const KernelRequest& request) {
  return make_any(request, []<typename T>(const NaiveCall& c, T) {
    const auto axis = static_cast<size_t>(c.attributes.integer("axis"));
    int64_t begin = 0;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const Shape& x = c.inputs[i].shape;
      for (int64_t k = 0; k < x.elements(); ++k) {
        MultiIndex index = index_of(k, x);
        index[axis] += begin;
        c.put<T>(0, element_at(index, c.outputs[0].shape), c.input<T>(i)[k]);
      }
      begin += x[static_cast<int>(axis)];
    }
  });
}

std::unique_ptr<Kernel> reference_slice(const KernelRequest& request) {
  return make_any(request, []<typename T>(const NaiveCall& c, T) {
    const std::vector<int64_t> before(c.attributes.integers("before"));
    const Shape& y = c.outputs[0].shape;
    for (int64_t k = 0; k < y.elements(); ++k) {
      MultiIndex index = index_of(k, y);
      for (size_t i = 0; i < before.size(); ++i) index[i] += before[i];
      c.put<T>(0, k, c.input<T>(0)[element_at(index, c.inputs[0].shape)]);
    }
  });
}

std::unique_ptr<Kernel> reference_pad(const KernelRequest& request) {
  return make_any(request, []<typename T>(const NaiveCall& c, T) {
    const std::vector<int64_t> before(c.attributes.integers("before"));
    const double value = c.attributes.number("value");
    const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
    for (int64_t k = 0; k < y.elements(); ++k) {
      MultiIndex index = index_of(k, y);
      bool inside = true;
      for (size_t i = 0; i < before.size(); ++i) {
        index[i] -= before[i];
        inside = inside && index[i] >= 0 && index[i] < x[static_cast<int>(i)];
      }
      c.put<T>(0, k, inside ? static_cast<double>(c.input<T>(0)[element_at(index, x)]) : value);
    }
  });
}

std::unique_ptr<Kernel> reference_transpose(const KernelRequest& request) {
  return make_any(request, []<typename T>(const NaiveCall& c, T) {
    const std::vector<int64_t> permutation(c.attributes.integers("permutation"));
    const Shape& y = c.outputs[0].shape;
    for (int64_t k = 0; k < y.elements(); ++k) {
      const MultiIndex to = index_of(k, y);
      MultiIndex from{};
      for (size_t i = 0; i < permutation.size(); ++i) {
        from[static_cast<size_t>(permutation[i])] = to[i];
      }
      c.put<T>(0, k, c.input<T>(0)[element_at(from, c.inputs[0].shape)]);
    }
  });
}

}  // namespace dltrain
