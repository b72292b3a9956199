// Kernel classes of softmax_cross_entropy and its gradient.
#include "cuda/softmax_cross_entropy.h"

#include "cuda/makers.h"

namespace dltrain {
namespace {

// Class indices are compared as T inside the kernel: exact up to 2²⁴ in f32.
constexpr int64_t kMostClasses = int64_t{1} << 24;

bool served_softmax_cross_entropy(const KernelRequest& request) {
  const TensorSpec& logits = request.inputs[0];
  return is_floating(logits.dtype) && logits.shape[-1] <= kMostClasses;
}

CrossEntropyCall read_softmax_cross_entropy_call(const KernelRequest& request) {
  return {.dtype = request.inputs[0].dtype,
          .rows = request.inputs[1].shape.elements(),
          .classes = request.inputs[0].shape[-1],
          .ignore_index = request.attributes.integer("ignore_index", -100),
          .label_smoothing = request.attributes.number("label_smoothing", 0),
          .z_loss = request.attributes.number("z_loss", 0)};
}

class SoftmaxCrossEntropyForward final : public Kernel {
 public:
  explicit SoftmaxCrossEntropyForward(const KernelRequest& request)
      : call_(read_softmax_cross_entropy_call(request)) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(cross_entropy_workspace_bytes(call_));
  }
  void bind(const Bindings& b) override {
    logits_ = b.inputs[0];
    targets_ = static_cast<const int32_t*>(b.inputs[1]);
    loss_ = static_cast<double*>(b.outputs[0]);
    log_sum_exp_ = b.outputs[1];
    correct_ = static_cast<double*>(b.outputs[2]);
    workspace_ = static_cast<double*>(b.workspace);
  }
  void run(Stream& stream) override {
    launch_cross_entropy(call_, logits_, targets_, loss_, log_sum_exp_, correct_, workspace_,
                         stream.native());
  }

 private:
  CrossEntropyCall call_;
  const void* logits_ = nullptr;
  const int32_t* targets_ = nullptr;
  double* loss_ = nullptr;
  void* log_sum_exp_ = nullptr;
  double* correct_ = nullptr;
  double* workspace_ = nullptr;
};

class SoftmaxCrossEntropyBackward final : public Kernel {
 public:
  explicit SoftmaxCrossEntropyBackward(const KernelRequest& request)
      : call_(read_softmax_cross_entropy_call(request)) {}
  void bind(const Bindings& b) override {
    logits_ = b.inputs[0];
    targets_ = static_cast<const int32_t*>(b.inputs[1]);
    log_sum_exp_ = b.inputs[2];
    dloss_ = static_cast<const double*>(b.inputs[3]);
    dlogits_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_cross_entropy_backward(call_, logits_, targets_, log_sum_exp_, dloss_, dlogits_,
                                  stream.native());
  }

 private:
  CrossEntropyCall call_;
  const void* logits_ = nullptr;
  const int32_t* targets_ = nullptr;
  const void* log_sum_exp_ = nullptr;
  const double* dloss_ = nullptr;
  void* dlogits_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_cross_entropy(const KernelRequest& request) {
  return served_softmax_cross_entropy(request)
             ? std::make_unique<SoftmaxCrossEntropyForward>(request)
             : nullptr;
}
std::unique_ptr<Kernel> make_cuda_cross_entropy_backward(const KernelRequest& request) {
  return served_softmax_cross_entropy(request)
             ? std::make_unique<SoftmaxCrossEntropyBackward>(request)
             : nullptr;
}

}  // namespace dltrain
