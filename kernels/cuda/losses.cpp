// Kernel classes of elementwise_loss, weighted_cross_entropy and their gradients.
#include "cuda/losses.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/device_table.h"
#include "cuda/makers.h"

namespace dltrain {
namespace {

LossKind loss_kind(const std::string& name) {
  if (name == "mse") return LossKind::mse;
  if (name == "l1") return LossKind::l1;
  if (name == "huber") return LossKind::huber;
  if (name == "smooth_l1") return LossKind::smooth_l1;
  check_internal(name == "binary_cross_entropy", "elementwise_loss: kind \"{}\"", name);
  return LossKind::binary_cross_entropy;
}

class ElementwiseLoss : public Kernel {
 public:
  explicit ElementwiseLoss(const KernelRequest& request)
      : table_(request.device),
        numbers_(request.attributes.numbers("pos_weight")),
        call_{.dtype = request.inputs[0].dtype,
              .kind = loss_kind(request.attributes.text("kind")),
              .count = request.inputs[0].shape.elements(),
              .delta = request.attributes.number("delta", 1),
              .positives = static_cast<int64_t>(numbers_.size())} {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(elementwise_loss_workspace(call_)) * sizeof(double);
  }
  void bind(const Bindings& b) override {
    positive_ = table_.upload(numbers_);
    x_ = b.inputs[0];
    t_ = b.inputs[1];
    loss_ = static_cast<double*>(b.outputs[0]);
    correct_ = b.outputs.size() > 1 ? static_cast<double*>(b.outputs[1]) : nullptr;
    workspace_ = static_cast<double*>(b.workspace);
  }
  void run(Stream& stream) override {
    launch_elementwise_loss(call_, x_, t_, positive_, loss_, correct_, workspace_, stream.native());
  }

 protected:
  DeviceTable<double> table_;
  std::vector<double> numbers_;
  ElementwiseLossCall call_;
  const double* positive_ = nullptr;
  const void *x_ = nullptr, *t_ = nullptr;

 private:
  double *loss_ = nullptr, *correct_ = nullptr, *workspace_ = nullptr;
};

class ElementwiseLossBackward final : public ElementwiseLoss {
 public:
  using ElementwiseLoss::ElementwiseLoss;
  size_t workspace_bytes() const override { return 0; }
  void bind(const Bindings& b) override {
    positive_ = table_.upload(numbers_);
    x_ = b.inputs[0];
    t_ = b.inputs[1];
    dloss_ = static_cast<const double*>(b.inputs[2]);
    dx_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_elementwise_loss_backward(call_, x_, t_, positive_, dloss_, dx_, stream.native());
  }

 private:
  const double* dloss_ = nullptr;
  void* dx_ = nullptr;
};

WeightedCrossEntropyCall read_losses_call(const KernelRequest& request) {
  const TensorSpec& logits = request.inputs[0];
  const int64_t classes = logits.shape[-1];
  return {.dtype = logits.dtype,
          .rows = logits.shape.elements() / classes,
          .classes = classes,
          .labels = request.inputs[1].dtype == DType::i32,
          .relative = request.attributes.boolean("relative"),
          .smoothing = request.attributes.number("label_smoothing", 0),
          .scale = request.attributes.number("scale", 1)};
}

// `mask`: the index of the optional labels.
const int32_t* mask_of(const Bindings& b, size_t mask) {
  return b.inputs.size() > mask ? static_cast<const int32_t*>(b.inputs[mask]) : nullptr;
}

class WeightedCrossEntropy final : public Kernel {
 public:
  explicit WeightedCrossEntropy(const KernelRequest& request)
      : table_(request.device),
        numbers_(request.attributes.numbers("class_weights")),
        call_(read_losses_call(request)) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(2 * call_.rows) * sizeof(double);
  }
  void bind(const Bindings& b) override {
    weights_ = table_.upload(numbers_);
    logits_ = b.inputs[0];
    targets_ = b.inputs[1];
    mask_ = mask_of(b, 2);
    loss_ = static_cast<double*>(b.outputs[0]);
    log_sum_exp_ = b.outputs[1];
    correct_ = static_cast<double*>(b.outputs[2]);
    workspace_ = static_cast<double*>(b.workspace);
  }
  void run(Stream& stream) override {
    launch_weighted_cross_entropy(call_, logits_, targets_, mask_, weights_, loss_, log_sum_exp_,
                                  correct_, workspace_, stream.native());
  }

 private:
  DeviceTable<double> table_;
  std::vector<double> numbers_;
  WeightedCrossEntropyCall call_;
  const double* weights_ = nullptr;
  const void *logits_ = nullptr, *targets_ = nullptr;
  const int32_t* mask_ = nullptr;
  double *loss_ = nullptr, *correct_ = nullptr, *workspace_ = nullptr;
  void* log_sum_exp_ = nullptr;
};

class WeightedCrossEntropyBackward final : public Kernel {
 public:
  explicit WeightedCrossEntropyBackward(const KernelRequest& request)
      : table_(request.device),
        numbers_(request.attributes.numbers("class_weights")),
        call_(read_losses_call(request)) {}
  void bind(const Bindings& b) override {
    weights_ = table_.upload(numbers_);
    logits_ = b.inputs[0];
    targets_ = b.inputs[1];
    log_sum_exp_ = b.inputs[2];
    dloss_ = static_cast<const double*>(b.inputs[3]);
    mask_ = mask_of(b, 4);
    dlogits_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_weighted_cross_entropy_backward(call_, logits_, targets_, mask_, weights_, log_sum_exp_,
                                           dloss_, dlogits_, stream.native());
  }

 private:
  DeviceTable<double> table_;
  std::vector<double> numbers_;
  WeightedCrossEntropyCall call_;
  const double *weights_ = nullptr, *dloss_ = nullptr;
  const void *logits_ = nullptr, *targets_ = nullptr, *log_sum_exp_ = nullptr;
  const int32_t* mask_ = nullptr;
  void* dlogits_ = nullptr;
};

template <typename Made>
std::unique_ptr<Kernel> make_losses(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
  return std::make_unique<Made>(request);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_elementwise_loss(const KernelRequest& request) {
  return make<ElementwiseLoss>(request);
}
std::unique_ptr<Kernel> make_cuda_elementwise_loss_backward(const KernelRequest& request) {
  return make<ElementwiseLossBackward>(request);
}
std::unique_ptr<Kernel> make_cuda_weighted_cross_entropy(const KernelRequest& request) {
  return make<WeightedCrossEntropy>(request);
}
std::unique_ptr<Kernel> make_cuda_weighted_cross_entropy_backward(const KernelRequest& request) {
  return make<WeightedCrossEntropyBackward>(request);
}

}  // namespace dltrain
