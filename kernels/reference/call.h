// Base of the reference kernels: a copy of the request, the addresses of a call, and one plain
// function that computes the op.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"
#include "tensor/low_precision.h"

namespace dltrain {

// A copy of a request.
struct NaiveRequest {
  explicit NaiveRequest(const KernelRequest& request)
      : op(request.op),
        attributes(request.attributes),
        inputs(request.inputs.begin(), request.inputs.end()),
        outputs(request.outputs.begin(), request.outputs.end()),
        accumulate(request.accumulate) {}

  std::string op;
  Attributes attributes;
  std::vector<TensorSpec> inputs, outputs;
  bool accumulate;
};

// The request and the addresses of one call.
struct NaiveCall {
  NaiveCall(const NaiveRequest& request, const Bindings& bindings)
      : op(request.op),
        attributes(request.attributes),
        inputs(request.inputs),
        outputs(request.outputs),
        accumulate(request.accumulate),
        tf32(rounds_to_tf32(attributes)),
        in(bindings.inputs),
        out(bindings.outputs) {}

  const std::string& op;
  const Attributes& attributes;
  const std::vector<TensorSpec>&inputs, &outputs;
  bool accumulate, tf32;
  std::span<void*const> in, out;

  // Returns an operand of a product.
  double factor(double x) const { return tf32 ? to_tf32(static_cast<float>(x)) : x; }

  // nullptr for absent inputs, also beyond the end.
  template <typename T>
  const T* input(size_t i) const {
    return i < in.size() ? static_cast<const T*>(in[i]) : nullptr;
  }
  template <typename T>
  T* output(size_t i) const {
    return static_cast<T*>(out[i]);
  }
  // Writes one result, or adds it if the request accumulates.
  template <typename T>
  void put(size_t i, int64_t element, double value) const {
    T& y = output<T>(i)[element];
    y = static_cast<T>(accumulate ? static_cast<double>(y) + value : value);
  }
  template <typename T>
  void put_all(size_t i, const std::vector<double>& values) const {
    for (size_t e = 0; e < values.size(); ++e) put<T>(i, static_cast<int64_t>(e), values[e]);
  }
  // Returns zeros for the sums of an output.
  std::vector<double> zeros(size_t i) const {
    return std::vector<double>(static_cast<size_t>(outputs[i].shape.elements()));
  }
  bool has_input(size_t i) const { return i < in.size() && in[i] != nullptr; }

  // The same for tensors of any dtype that the engine supports (element.cpp): reads an element of
  // an input, writes one of a floating output.
  double element(size_t i, int64_t element) const;
  void put_element(size_t i, int64_t element, double value) const;
};

// Returns the dtype of the op's tensors: that of its first floating input.
inline DType compute_dtype(std::span<const TensorSpec> inputs) {
  for (const TensorSpec& spec : inputs) {
    if (is_floating(spec.dtype)) return spec.dtype;
  }
  return DType::u8;
}

// A kernel that is one function: work(call, number) with a number of type T.
template <typename T, typename Work>
std::unique_ptr<Kernel> make_naive_of(const KernelRequest& request, Work work) {
  return make_kernel([own = NaiveRequest(request), work](const Bindings& b, Stream&) {
    work(NaiveCall(own, b), T{});
  });
}

// The same with a number of `dtype`; nullptr for dtypes other than f32 and f64.
template <typename Work>
std::unique_ptr<Kernel> make_naive(const KernelRequest& request, DType dtype, Work work) {
  if (dtype == DType::f32) return make_naive_of<float>(request, work);
  if (dtype == DType::f64) return make_naive_of<double>(request, work);
  return nullptr;
}
// The same with the request's dtype.
template <typename Work>
std::unique_ptr<Kernel> make_naive(const KernelRequest& request, Work work) {
  return make_naive(request, compute_dtype(request.inputs), work);
}

}  // namespace dltrain
