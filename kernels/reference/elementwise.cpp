// Unary, binary and activation-gradient ops, and those with parameters.
#include "ops/elementwise.h"

#include "reference/arithmetic.h"
#include "reference/call.h"
#include "reference/indexing.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct Unary {
  explicit Unary(const NaiveCall& c) : f(reference_unary(c.op)) {}

  void run(const NaiveCall& c) const {
    const T* x = c.input<T>(0);
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) c.put<T>(0, i, f(x[i]));
  }

  UnaryFunction f;
};

template <typename T>
struct Parametrised {
  explicit Parametrised(const NaiveCall& c)
      : f(reference_parametrised(c.op)), numbers(elementwise_numbers(c.op, c.attributes)) {}

  void run(const NaiveCall& c) const {
    const T *x = c.input<T>(0), *dy = c.has_input(1) ? c.input<T>(1) : x;
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      c.put<T>(0, i, f(x[i], dy[i], numbers.p, numbers.q));
    }
  }

  ParametrisedFunction f;
  ElementwiseNumbers numbers;
};

template <typename T>
struct Binary {
  explicit Binary(const NaiveCall& c) : f(reference_binary(c.op)) {}

  void run(const NaiveCall& c) const {
    const T *a = c.input<T>(0), *b = c.input<T>(1);
    const Shape& y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const double left = a[broadcast_index(i, y, c.inputs[0].shape)];
      const double right = b[broadcast_index(i, y, c.inputs[1].shape)];
      c.put<T>(0, i, f(left, right));
    }
  }

  BinaryFunction f;
};

}  // namespace

KernelPointer reference_elementwise(const KernelRequest& request) {
  if (reference_parametrised(request.op) != nullptr) return make_naive<Parametrised>(request);
  if (reference_unary(request.op) != nullptr) return make_naive<Unary>(request);
  if (reference_binary(request.op) != nullptr) return make_naive<Binary>(request);
  return nullptr;
}

}  // namespace dltrain
