// Kernel classes of layer_norm, rms_norm and their gradients.
#include "cuda/row_norm.h"

#include "cuda/makers.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

RowNormCall read_row_norm_call(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const int64_t columns = x.shape[-1];
  return {.dtype = x.dtype,
          .rows = columns == 0 ? 0 : x.shape.elements() / columns,
          .columns = columns,
          .epsilon = request.attributes.number("epsilon", 1e-5),
          .centred = request.op.starts_with("layer_norm")};
}

class RowNorm final : public Kernel {
 public:
  explicit RowNorm(const KernelRequest& request) : call_(read_row_norm_call(request)) {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    weight_ = b.inputs[1];
    bias_ = call_.centred ? b.inputs[2] : nullptr;
    y_ = b.outputs[0];
    mean_ = call_.centred ? b.outputs[1] : nullptr;
    rstd_ = b.outputs.back();
  }
  void run(Stream& stream) override {
    launch_row_norm(call_, x_, weight_, bias_, y_, mean_, rstd_, stream.native());
  }

 private:
  RowNormCall call_;
  const void *x_ = nullptr, *weight_ = nullptr, *bias_ = nullptr;
  void *y_ = nullptr, *mean_ = nullptr, *rstd_ = nullptr;
};

class RowNormBackward final : public Kernel {
 public:
  explicit RowNormBackward(const KernelRequest& request)
      : call_(read_row_norm_call(request)),
        has_weight_(!is_absent(request.inputs[2])),
        has_bias_(call_.centred && request.attributes.boolean("bias")),
        workspace_bytes_(has_weight_ || has_bias_
                             ? static_cast<size_t>(row_norm_workspace_elements(call_)) *
                                   dtype_size(accumulation_dtype(call_.dtype))
                             : 0) {}
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    dy_ = b.inputs[1];
    weight_ = b.inputs[2];
    mean_ = call_.centred ? b.inputs[3] : nullptr;
    rstd_ = b.inputs.back();
    dx_ = b.outputs[0];
    dweight_ = has_weight_ ? b.outputs[1] : nullptr;
    dbias_ = has_bias_ ? b.outputs.back() : nullptr;
    workspace_ = b.workspace;
  }
  void run(Stream& stream) override {
    // First, for dx may lie where dy lay.
    launch_row_norm_parameters(call_, x_, dy_, mean_, rstd_, dweight_, dbias_, workspace_,
                               stream.native());
    launch_row_norm_backward(call_, x_, dy_, weight_, mean_, rstd_, dx_, stream.native());
  }

 private:
  RowNormCall call_;
  bool has_weight_, has_bias_;
  size_t workspace_bytes_;
  const void *x_ = nullptr, *dy_ = nullptr, *weight_ = nullptr, *mean_ = nullptr, *rstd_ = nullptr;
  void *dx_ = nullptr, *dweight_ = nullptr, *dbias_ = nullptr, *workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_row_norm(const KernelRequest& request) {
  return std::make_unique<RowNorm>(request);
}
std::unique_ptr<Kernel> make_cuda_row_norm_backward(const KernelRequest& request) {
  return std::make_unique<RowNormBackward>(request);
}

}  // namespace dltrain
