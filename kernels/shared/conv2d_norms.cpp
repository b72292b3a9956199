#include "shared/conv2d_norms.h"

#include <algorithm>
#include <vector>

namespace dltrain {
namespace {

// Runs two kernels and maps the op's operands to theirs.
class TwoSteps final : public Kernel {
 public:
  // The second step reads y and the op's inputs after x and w. `in_place`: it writes y, else the
  // op's other outputs.
  TwoSteps(std::unique_ptr<Kernel> convolution, std::unique_ptr<Kernel> second, bool in_place)
      : convolution_(std::move(convolution)), second_(std::move(second)), in_place_(in_place) {}

  size_t workspace_bytes() const override {
    return std::max(convolution_->workspace_bytes(), second_->workspace_bytes());
  }

  void bind(const Bindings& b) override {
    convolution_->bind(
        {.inputs = b.inputs.first(2), .outputs = b.outputs.first(1), .workspace = b.workspace});
    std::vector<void*> inputs{b.outputs[0]};
    inputs.insert(inputs.end(), b.inputs.begin() + 2, b.inputs.end());
    second_->bind({.inputs = inputs,
                   .outputs = in_place_ ? b.outputs : b.outputs.subspan(1),
                   .workspace = b.workspace});
  }

  void run(Stream& stream) override {
    convolution_->run(stream);
    second_->run(stream);
  }

  bool captured() const override { return convolution_->captured() && second_->captured(); }

 private:
  std::unique_ptr<Kernel> convolution_, second_;
  bool in_place_;
};

std::unique_ptr<Kernel> make_convolution(const KernelRequest& request, const Engine& engine) {
  Attributes attributes = request.attributes;
  attributes.erase("activation");  // belongs to the norm
  return find_kernel(engine, {.op = "conv2d",
                              .attributes = attributes,
                              .inputs = request.inputs.first(2),
                              .outputs = request.outputs.first(1),
                              .device = request.device})
      .kernel;
}

}  // namespace

std::unique_ptr<Kernel> make_two_step_moments(const KernelRequest& request, const Engine& engine,
                                              KernelMaker moments) {
  auto second = moments({.op = request.op,
                         .attributes = request.attributes,
                         .inputs = request.outputs.first(1),
                         .outputs = request.outputs.subspan(1),
                         .device = request.device});
  if (!second) return nullptr;
  return std::make_unique<TwoSteps>(make_convolution(request, engine), std::move(second), false);
}

std::unique_ptr<Kernel> make_two_step_batch_norm(const KernelRequest& request,
                                                 const Engine& engine) {
  std::vector<TensorSpec> inputs{request.outputs[0]};
  inputs.insert(inputs.end(), request.inputs.begin() + 2, request.inputs.end());
  auto second = find_kernel(engine, {.op = "batch_norm_inference",
                                     .attributes = request.attributes,
                                     .inputs = inputs,
                                     .outputs = request.outputs,
                                     .device = request.device})
                    .kernel;
  return std::make_unique<TwoSteps>(make_convolution(request, engine), std::move(second), true);
}

}  // namespace dltrain
