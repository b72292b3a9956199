// Kernel classes of batch_norm, batch_norm_backward and batch_norm_inference, and of statistics
// alone.
#include "cuda/batch_norm.h"

#include <vector>

#include "cuda/makers.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

bool served_batch_norm(const KernelRequest& request) {
  return request.outputs[0].shape.elements() > 0;
}

class BatchNormKernel : public Kernel {
 public:
  explicit BatchNormKernel(const KernelRequest& request)
      : call_{.dtype = request.inputs[0].dtype,
              .rows = request.inputs[0].shape.elements() / request.inputs[0].shape[-1],
              .channels = request.inputs[0].shape[-1],
              .epsilon = request.attributes.number("epsilon", 1e-5),
              .relu = request.attributes.text("activation") == "relu"} {}

  void bind(const Bindings& bindings) override {
    in_.assign(bindings.inputs.begin(), bindings.inputs.end());
    out_.assign(bindings.outputs.begin(), bindings.outputs.end());
    workspace_ = bindings.workspace;
  }

 protected:
  size_t chunk_bytes() const {
    return static_cast<size_t>(batch_norm_workspace_elements(call_)) *
           dtype_size(accumulation_dtype(call_.dtype));
  }

  BatchNormCall call_;
  std::vector<void*> in_, out_;
  void* workspace_ = nullptr;
};

class BatchNormForward final : public BatchNormKernel {
 public:
  using BatchNormKernel::BatchNormKernel;
  size_t workspace_bytes() const override { return chunk_bytes(); }
  void run(Stream& stream) override {
    launch_batch_norm(call_, in_[0], in_[1], in_[2], in_.size() == 4 ? in_[3] : nullptr, out_[0],
                      out_[1], out_[2], workspace_, stream.native());
  }
};

class BatchNormBackward final : public BatchNormKernel {
 public:
  using BatchNormKernel::BatchNormKernel;
  size_t workspace_bytes() const override { return chunk_bytes(); }
  void run(Stream& stream) override {
    launch_batch_norm_backward(call_, in_[0], in_[1], in_[2], call_.relu ? in_[5] : nullptr, in_[3],
                               in_[4], out_[0], out_[1], out_[2], workspace_, stream.native());
  }
};

class Inference final : public BatchNormKernel {
 public:
  using BatchNormKernel::BatchNormKernel;
  void run(Stream& stream) override {
    launch_batch_norm_inference(call_, in_[0], in_[1], in_[2], in_.size() == 6 ? in_[5] : nullptr,
                                in_[3], in_[4], out_[0], stream.native());
  }
};

// (x) → mean, variance.
class Statistics final : public BatchNormKernel {
 public:
  using BatchNormKernel::BatchNormKernel;
  size_t workspace_bytes() const override { return chunk_bytes(); }
  void run(Stream& stream) override {
    launch_batch_norm_statistics(call_, in_[0], out_[0], out_[1], workspace_, stream.native());
  }
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_batch_norm(const KernelRequest& request) {
  return served_batch_norm(request) ? std::make_unique<BatchNormForward>(request) : nullptr;
}
std::unique_ptr<Kernel> make_cuda_batch_norm_backward(const KernelRequest& request) {
  return served_batch_norm(request) ? std::make_unique<BatchNormBackward>(request) : nullptr;
}
std::unique_ptr<Kernel> make_cuda_batch_norm_inference(const KernelRequest& request) {
  return served_batch_norm(request) ? std::make_unique<Inference>(request) : nullptr;
}
std::unique_ptr<Kernel> make_cuda_batch_moments(const KernelRequest& request) {
  return served_batch_norm(request) ? std::make_unique<Statistics>(request) : nullptr;
}

}  // namespace dltrain
