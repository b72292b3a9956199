// Kernel classes of group_norm and its gradient.
#include "cuda/group_norm.h"

#include "cuda/makers.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

GroupNormCall read_group_norm_call(const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  return {.dtype = request.inputs[0].dtype,
          .samples = x[0],
          .places = x.elements(1, x.rank() - 1),
          .channels = x[-1],
          .groups = request.attributes.integer("groups", 1),
          .epsilon = request.attributes.number("epsilon", 1e-5)};
}

class GroupNorm final : public Kernel {
 public:
  explicit GroupNorm(const KernelRequest& request) : call_(read_group_norm_call(request)) {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    weight_ = b.inputs[1];
    bias_ = b.inputs[2];
    y_ = b.outputs[0];
    mean_ = b.outputs[1];
    rstd_ = b.outputs[2];
  }
  void run(Stream& stream) override {
    launch_group_norm(call_, x_, weight_, bias_, y_, mean_, rstd_, stream.native());
  }

 private:
  GroupNormCall call_;
  const void *x_ = nullptr, *weight_ = nullptr, *bias_ = nullptr;
  void *y_ = nullptr, *mean_ = nullptr, *rstd_ = nullptr;
};

class GroupNormBackward final : public Kernel {
 public:
  explicit GroupNormBackward(const KernelRequest& request) : call_(read_group_norm_call(request)) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(2 * call_.samples * call_.channels) *
           dtype_size(accumulation_dtype(call_.dtype));
  }
  void bind(const Bindings& b) override {
    in_.assign(b.inputs.begin(), b.inputs.end());
    out_.assign(b.outputs.begin(), b.outputs.end());
    out_.resize(3);  // without a weight there is dx alone
    workspace_ = b.workspace;
  }
  void run(Stream& stream) override {
    launch_group_norm_backward(call_, in_[0], in_[1], in_[2], in_[3], in_[4], out_[0], out_[1],
                               out_[2], workspace_, stream.native());
  }

 private:
  GroupNormCall call_;
  std::vector<void*> in_, out_;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_group_norm(const KernelRequest& request) {
  return std::make_unique<GroupNorm>(request);
}
std::unique_ptr<Kernel> make_cuda_group_norm_backward(const KernelRequest& request) {
  return std::make_unique<GroupNormBackward>(request);
}

}  // namespace dltrain
