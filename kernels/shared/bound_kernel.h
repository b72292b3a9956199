// Kernels that read their addresses from the bindings when they run.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/kernel.h"

namespace dltrain {

class BoundKernel : public Kernel {
 public:
  void bind(const Bindings& bindings) override {
    inputs_.assign(bindings.inputs.begin(), bindings.inputs.end());
    outputs_.assign(bindings.outputs.begin(), bindings.outputs.end());
    bindings_ = {inputs_, outputs_, bindings.workspace};
  }

 protected:
  const Bindings& bindings() const { return bindings_; }

 private:
  std::vector<void*> inputs_, outputs_;
  Bindings bindings_;
};

// A kernel that is one function: run(bindings, stream).
template <typename Run>
class FunctionKernel final : public BoundKernel {
 public:
  FunctionKernel(Run run, size_t workspace_bytes)
      : run_(std::move(run)), workspace_bytes_(workspace_bytes) {}
  size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(Stream& stream) override { run_(bindings(), stream); }

 private:
  Run run_;
  size_t workspace_bytes_;
};

template <typename Run>
std::unique_ptr<Kernel> make_kernel(Run run, size_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<Run>>(std::move(run), workspace_bytes);
}

}  // namespace dltrain
