// Base of the reference kernels: a copy of the request, the addresses of a call, and one plain
// function that computes the op.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/kernel.h"

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

// The request and the addresses of one call; no addresses while a kernel is made.
struct NaiveCall {
  explicit NaiveCall(const NaiveRequest& request, const Bindings& bindings = {})
      : op(request.op),
        attributes(request.attributes),
        inputs(request.inputs),
        outputs(request.outputs),
        accumulate(request.accumulate),
        in(bindings.inputs),
        out(bindings.outputs) {}

  const std::string& op;
  const Attributes& attributes;
  const std::vector<TensorSpec>&inputs, &outputs;
  bool accumulate;
  std::span<void*const> in, out;

  template <typename T>
  const T* input(size_t i) const {
    return static_cast<const T*>(in[i]);
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
  bool has_input(size_t i) const { return i < in.size() && in[i] != nullptr; }

  // The same for tensors of any dtype that the engine supports (element.cpp): reads an element of
  // an input, writes one of a floating output.
  double element(size_t i, int64_t element) const;
  void put_element(size_t i, int64_t element, double value) const;
};

// A kernel that prepares with `Prepared(const NaiveCall&)` (attributes, offsets) and runs
// `Prepared::run(const NaiveCall&)`.
template <typename Prepared>
class NaiveKernel final : public Kernel {
 public:
  explicit NaiveKernel(const KernelRequest& request)
      : request_(request), prepared_(NaiveCall(request_)) {}
  void run(const Bindings& bindings, Stream&) const override {
    prepared_.run(NaiveCall(request_, bindings));
  }

 private:
  NaiveRequest request_;
  Prepared prepared_;
};

// Returns the dtype of the op's tensors: that of its first f32 or f64 input.
inline DType compute_dtype(std::span<const TensorSpec> inputs) {
  for (const TensorSpec& spec : inputs) {
    if (is_floating(spec.dtype)) return spec.dtype;
  }
  return DType::u8;
}

// Adapts a lambda without captures, which needs no preparation.
template <typename Work>
struct NaiveWork {
  template <typename T>
  struct Typed {
    explicit Typed(const NaiveCall&) {}
    void run(const NaiveCall& call) const { Work()(call, T{}); }
  };
};

template <typename Work, typename T>
using NaiveWorkKernel = NaiveKernel<typename NaiveWork<Work>::template Typed<T>>;

// Chooses the template argument of `Prepared` by `dtype`; nullptr for other dtypes than f32 and
// f64.
template <template <typename> class Prepared>
std::unique_ptr<Kernel> make_naive(const KernelRequest& request, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::make_unique<NaiveKernel<Prepared<float>>>(request);
    case DType::f64:
      return std::make_unique<NaiveKernel<Prepared<double>>>(request);
    default:
      return nullptr;
  }
}
// The same with the request's dtype.
template <template <typename> class Prepared>
std::unique_ptr<Kernel> make_naive(const KernelRequest& request) {
  return make_naive<Prepared>(request, compute_dtype(request.inputs));
}

// A kernel that is one function: work(call, number) with a number of the request's dtype.
template <typename Work>
std::unique_ptr<Kernel> make_naive(const KernelRequest& request, Work) {
  return make_naive<NaiveWork<Work>::template Typed>(request);
}

}  // namespace dltrain
