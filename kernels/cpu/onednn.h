// A thin layer over oneDNN, the same for its versions 2 and 3: memory descriptions by strides,
// post-ops, and primitives whose arguments are fixed before they run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "cpu/parallel.h"
#include "ops/kernel.h"

namespace dltrain::onednn {

// The process's CPU engine and stream. oneDNN's CPU stream runs in the calling thread.
const dnnl::engine& engine();
dnnl::stream& stream();

// Describes a tensor by extents and strides; for f32 and bf16.
dnnl::memory::desc strided(const dnnl::memory::dims& extents, const dnnl::memory::dims& strides,
                           DType dtype);
dnnl::memory::desc any_layout(const dnnl::memory::dims& extents, DType dtype);

// Returns true when oneDNN computes in `dtype` on this processor (bf16: only where its products are
// faster than those of f32), every floating input has it, and every floating output has it or f32.
bool computes_in(const KernelRequest& request, DType dtype);

// Appends the unary activation of that name; returns false if oneDNN has none. "" and "relu"
// append nothing: oneDNN's relu makes 0 of NaN, so callers pass their kernel through with_relu().
bool append_activation(dnnl::post_ops& post_ops, const std::string& activation);
// Returns `kernel`, with the activation relu followed by one pass over its result.
std::unique_ptr<Kernel> with_relu(const KernelRequest& request, std::unique_ptr<Kernel> kernel);

// Returns attributes with a scratchpad provided by the caller, so that running a primitive does not
// allocate.
dnnl::primitive_attr attributes(const dnnl::post_ops& post_ops = {});

// bias is a zero description when absent.
dnnl::matmul::primitive_desc matmul(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                    const dnnl::memory::desc& bias, const dnnl::memory::desc& y,
                                    const dnnl::primitive_attr& attr);

struct Convolution {
  dnnl::memory::desc x, w, bias, y;  // bias is a zero description when absent
  dnnl::memory::desc forward_w;  // the forward's weight: w, or bf16 for an f32 dw of bf16 operands
  dnnl::memory::dims stride, dilation, padding;
};
dnnl::convolution_forward::primitive_desc forward(const Convolution& c,
                                                  const dnnl::primitive_attr& attr);
dnnl::convolution_backward_data::primitive_desc backward_input(const Convolution& c);
dnnl::convolution_backward_weights::primitive_desc backward_weight(const Convolution& c);

// A primitive with its arguments, which runs with the number of threads set at its creation, like
// its description. Addresses are written to oneDNN's memory objects, which are made with the call,
// so that run() does not allocate; one thread at a time may therefore run it.
class Call {
 public:
  Call() = default;
  explicit Call(const dnnl::primitive& primitive)
      : primitive_(primitive), threads_(thread_count()) {}

  // Adds an argument; run takes addresses in the same order. A zero description and its address
  // are skipped.
  void argument(int index, const dnnl::memory::desc& description);
  void run(std::initializer_list<void*> addresses) const;
  explicit operator bool() const { return static_cast<bool>(primitive_); }

 private:
  dnnl::primitive primitive_;
  int threads_ = 1;
  std::vector<dnnl::memory> arguments_;  // empty for a zero description
  std::vector<dnnl_exec_arg_t> packed_;
};

// A copy between layouts; with `accumulate` it adds to the destination. Its addresses: source,
// destination, scratchpad.
struct Reorder {
  Reorder() = default;  // nothing to do
  Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to, bool accumulate);
  Call call;
  size_t scratch_bytes = 0;
};

}  // namespace dltrain::onednn
