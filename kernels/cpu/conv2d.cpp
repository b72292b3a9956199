// conv2d, conv2d_backward_input and conv2d_backward_weight by oneDNN. Images stay NHWC; weights are
// stored as OHWI, and oneDNN chooses the layout for computing: where that differs, the kernel
// converts in its workspace (weights are small compared with images).
#include "ops/conv2d.h"

#include <array>
#include <optional>

#include "cpu/makers.h"
#include "cpu/onednn.h"
#include "cpu/support.h"
#include "cpu/weight_reorder.h"
#include "ops/rules.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

using Description = dnnl::memory::desc;

// NHWC memory, described in oneDNN's order N, C, H, W.
Description image(const TensorSpec& spec) {
  const Shape& s = spec.shape;
  return onednn::strided({s[0], s[3], s[1], s[2]}, {s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]},
                         spec.dtype);
}

dnnl::memory::dims weight_extents(const Shape& w, int64_t groups) {
  if (groups == 1) return {w[0], w[3], w[1], w[2]};
  return {groups, w[0] / groups, w[3], w[1], w[2]};
}

Description plain_weight(const TensorSpec& spec, int64_t groups) {
  const Shape& w = spec.shape;
  const int64_t out = w[1] * w[2] * w[3];
  dnnl::memory::dims strides{out, 1, w[2] * w[3], w[3]};
  if (groups > 1) strides.insert(strides.begin(), w[0] / groups * out);
  return onednn::strided(weight_extents(w, groups), strides, spec.dtype);
}

onednn::Convolution convolution(const TensorSpec& x, const TensorSpec& w, const TensorSpec& y,
                                bool has_bias, const Attributes& attributes) {
  const Conv2dAttributes a(attributes);
  return {.x = image(x),
          .w = onednn::any_layout(weight_extents(w.shape, a.groups), w.dtype),
          .bias = has_bias ? onednn::strided({w.shape[0]}, {1}, x.dtype) : Description(),
          .y = image(y),
          .forward_w = onednn::any_layout(weight_extents(w.shape, a.groups), x.dtype),
          .stride = {a.stride[0], a.stride[1]},
          .dilation = {a.dilation[0] - 1, a.dilation[1] - 1},  // oneDNN: 0 is dense
          .padding = {a.padding[0], a.padding[1]}};
}

std::byte* at(void* workspace, size_t offset) {
  return static_cast<std::byte*>(workspace) + offset;
}

// Shared by the two directions that read the weight: converts it to oneDNN's layout in the
// workspace before every call where needed.
class WeightReader : public Kernel {
 public:
  size_t workspace_bytes() const override { return parts_.total(); }
  void run(Stream&) override {
    if (order_) order_->run(plain_, ordered_);
    if (reorder_.call) reorder_.call.run();
    call_.run();
  }

 protected:
  template <typename Description>
  void plan_workspace(const Description& description, const TensorSpec& w,
                      const Attributes& attributes) {
    const auto plain = plain_weight(w, Conv2dAttributes(attributes).groups);
    if (description.weights_desc() != plain) {
      if (Conv2dAttributes(attributes).groups == 1) {
        order_ = WeightReorder::find(w, description.weights_desc());
      }
      if (!order_) reorder_ = onednn::Reorder(plain, description.weights_desc(), false);
      weight_ = parts_.add(description.weights_desc().get_size());
    }
    scratch_ =
        parts_.add(std::max(description.scratchpad_desc().get_size(), reorder_.scratch_bytes));
  }

  struct Addresses {
    void *weight, *scratch;
  };
  Addresses bind_weight(const Bindings& b) {
    void* scratch = at(b.workspace, scratch_);
    if (!order_ && !reorder_.call) return {b.inputs[1], scratch};
    plain_ = b.inputs[1];
    ordered_ = at(b.workspace, weight_);
    if (reorder_.call) reorder_.call.bind(std::array{b.inputs[1], ordered_, scratch});
    return {ordered_, scratch};
  }

  onednn::Call call_;

 private:
  std::optional<WeightReorder> order_;
  onednn::Reorder reorder_;  // where order_ is empty
  WorkspaceParts parts_;
  size_t weight_ = 0, scratch_ = 0;
  const void* plain_ = nullptr;
  void* ordered_ = nullptr;
};

class Conv2dForward final : public WeightReader {
 public:
  Conv2dForward(const KernelRequest& r, const dnnl::primitive_attr& attr) {
    const bool has_bias = r.inputs.size() == 3 && !is_absent(r.inputs[2]);
    const auto c = convolution(r.inputs[0], r.inputs[1], r.outputs[0], has_bias, r.attributes);
    const auto description = onednn::forward(c, attr);
    plan_workspace(description, r.inputs[1], r.attributes);
    call_ = onednn::Call(dnnl::convolution_forward(description));
    call_.argument(DNNL_ARG_SRC, c.x);
    call_.argument(DNNL_ARG_WEIGHTS, description.weights_desc());
    call_.argument(DNNL_ARG_BIAS, c.bias);
    call_.argument(DNNL_ARG_DST, c.y);
    call_.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  }

  void bind(const Bindings& b) override {
    const auto [weight, scratch] = bind_weight(b);
    void* bias = b.inputs.size() == 3 ? b.inputs[2] : nullptr;
    call_.bind(std::array{b.inputs[0], weight, bias, b.outputs[0], scratch});
  }
};

class Conv2dBackwardInput final : public WeightReader {
 public:
  explicit Conv2dBackwardInput(const KernelRequest& r) {
    const TensorSpec &w = r.inputs[1], &x = r.outputs[0];
    const auto c = convolution(x, w, r.inputs[0], false, r.attributes);
    const auto description = onednn::backward_input(c);
    plan_workspace(description, w, r.attributes);
    call_ = onednn::Call(dnnl::convolution_backward_data(description));
    call_.argument(DNNL_ARG_DIFF_DST, c.y);
    call_.argument(DNNL_ARG_WEIGHTS, description.weights_desc());
    call_.argument(DNNL_ARG_DIFF_SRC, c.x);
    call_.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  }

  void bind(const Bindings& b) override {
    const auto [weight, scratch] = bind_weight(b);
    call_.bind(std::array{b.inputs[0], weight, b.outputs[0], scratch});
  }
};

class Conv2dBackwardWeight final : public Kernel {
 public:
  explicit Conv2dBackwardWeight(const KernelRequest& r) {
    const TensorSpec &x = r.inputs[1], &w = r.outputs[0];
    const auto c = convolution(x, w, r.inputs[0], false, r.attributes);
    const auto description = onednn::backward_weight(c);
    const auto plain = plain_weight(w, Conv2dAttributes(r.attributes).groups);
    // The primitive overwrites, so accumulation needs the workspace, like a layout change.
    if (r.accumulate || description.diff_weights_desc() != plain) {
      reorder_ = onednn::Reorder(description.diff_weights_desc(), plain, r.accumulate);
      weight_ = parts_.add(description.diff_weights_desc().get_size());
    }
    scratch_ =
        parts_.add(std::max(description.scratchpad_desc().get_size(), reorder_.scratch_bytes));
    call_ = onednn::Call(dnnl::convolution_backward_weights(description));
    call_.argument(DNNL_ARG_SRC, c.x);
    call_.argument(DNNL_ARG_DIFF_DST, c.y);
    call_.argument(DNNL_ARG_DIFF_WEIGHTS, description.diff_weights_desc());
    call_.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  }

  size_t workspace_bytes() const override { return parts_.total(); }

  void bind(const Bindings& b) override {
    void* weight = b.outputs[0];
    void* scratch = at(b.workspace, scratch_);
    if (reorder_.call) {
      weight = at(b.workspace, weight_);
      reorder_.call.bind(std::array{weight, b.outputs[0], scratch});
    }
    call_.bind(std::array{b.inputs[1], b.inputs[0], weight, scratch});
  }

  void run(Stream&) override {
    call_.run();
    if (reorder_.call) reorder_.call.run();
  }

 private:
  onednn::Call call_;
  onednn::Reorder reorder_;
  WorkspaceParts parts_;
  size_t weight_ = 0, scratch_ = 0;
};

bool usable_conv2d(const KernelRequest& request) {
  return onednn::computes_in(request, request.inputs[0].dtype) &&
         request.inputs[0].shape.elements() > 0 && request.outputs[0].shape.elements() > 0;
}

}  // namespace

MadeKernel make_conv2d_onednn(const KernelRequest& request) {
  if (!usable_conv2d(request)) return nullptr;
  dnnl::post_ops post_ops;
  if (!onednn::append_activation(post_ops, request.attributes.text("activation"))) return nullptr;
  return std::make_unique<Conv2dForward>(request, onednn::attributes(post_ops));
}

MadeKernel make_conv2d_backward_input_onednn(const KernelRequest& request) {
  if (!usable_conv2d(request)) return nullptr;
  return std::make_unique<Conv2dBackwardInput>(request);
}

MadeKernel make_conv2d_backward_weight_onednn(const KernelRequest& request) {
  if (!usable_conv2d(request)) return nullptr;
  return std::make_unique<Conv2dBackwardWeight>(request);
}

}  // namespace dltrain
