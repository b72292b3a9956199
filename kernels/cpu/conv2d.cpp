// conv2d, conv2d_backward_input and conv2d_backward_weight by oneDNN. Images stay NHWC; weights are
// stored as OHWI, and oneDNN chooses the layout for computing: where that differs, the kernel
// converts in its workspace (weights are small compared with images).
#include "ops/conv2d.h"

#include "cpu/makers.h"
#include "cpu/onednn.h"
#include "cpu/weight_reorder.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"
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

// For the two directions that read the weight: converts it to oneDNN's layout in the workspace
// before every call where needed.
class WeightReader {
 public:
  template <typename Description>
  WeightReader(const Description& description, const TensorSpec& w, const Attributes& attributes) {
    const int64_t groups = Conv2dAttributes(attributes).groups;
    const auto plain = plain_weight(w, groups);
    if (description.weights_desc() != plain) {
      if (groups == 1) order_ = find_weight_reorder(w, description.weights_desc());
      if (!order_) reorder_ = onednn::Reorder(plain, description.weights_desc(), false);
      weight_ = parts_.add(description.weights_desc().get_size());
    }
    scratch_ =
        parts_.add(std::max(description.scratchpad_desc().get_size(), reorder_.scratch_bytes));
  }

  size_t workspace_bytes() const { return parts_.total(); }
  void* scratch(const Bindings& b) const { return at(b.workspace, scratch_); }

  // Returns the weight in oneDNN's layout.
  void* read(const Bindings& b) const {
    if (!order_ && !reorder_.call) return b.inputs[1];
    void* ordered = at(b.workspace, weight_);
    if (order_) order_(b.inputs[1], ordered);
    if (reorder_.call) reorder_.call.run({b.inputs[1], ordered, scratch(b)});
    return ordered;
  }

 private:
  WeightReorder order_;
  onednn::Reorder reorder_;  // where order_ is empty
  WorkspaceParts parts_;
  size_t weight_ = 0, scratch_ = 0;
};

bool usable_conv2d(const KernelRequest& request) {
  return onednn::computes_in(request, request.inputs[0].dtype) &&
         request.inputs[0].shape.elements() > 0 && request.outputs[0].shape.elements() > 0;
}

}  // namespace

std::unique_ptr<Kernel> make_conv2d_onednn(const KernelRequest& request) {
  if (!usable_conv2d(request)) return nullptr;
  dnnl::post_ops post_ops;
  if (!onednn::append_activation(post_ops, request.attributes.text("activation"))) return nullptr;
  const bool has_bias = request.inputs.size() == 3 && !is_absent(request.inputs[2]);
  const auto c = convolution(request.inputs[0], request.inputs[1], request.outputs[0], has_bias,
                             request.attributes);
  const auto description = onednn::forward(c, onednn::attributes(post_ops));
  const WeightReader weight(description, request.inputs[1], request.attributes);
  onednn::Call call{dnnl::convolution_forward(description)};
  call.argument(DNNL_ARG_SRC, c.x);
  call.argument(DNNL_ARG_WEIGHTS, description.weights_desc());
  call.argument(DNNL_ARG_BIAS, c.bias);
  call.argument(DNNL_ARG_DST, c.y);
  call.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  auto kernel = make_kernel(
      [weight, call](const Bindings& b, Stream&) {
        void* bias = b.inputs.size() == 3 ? b.inputs[2] : nullptr;
        call.run({b.inputs[0], weight.read(b), bias, b.outputs[0], weight.scratch(b)});
      },
      weight.workspace_bytes());
  return onednn::with_relu(request, std::move(kernel));
}

std::unique_ptr<Kernel> make_conv2d_backward_input_onednn(const KernelRequest& request) {
  if (!usable_conv2d(request)) return nullptr;
  const TensorSpec &w = request.inputs[1], &x = request.outputs[0];
  const auto c = convolution(x, w, request.inputs[0], false, request.attributes);
  const auto description = onednn::backward_input(c);
  const WeightReader weight(description, w, request.attributes);
  onednn::Call call{dnnl::convolution_backward_data(description)};
  call.argument(DNNL_ARG_DIFF_DST, c.y);
  call.argument(DNNL_ARG_WEIGHTS, description.weights_desc());
  call.argument(DNNL_ARG_DIFF_SRC, c.x);
  call.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  return make_kernel(
      [weight, call](const Bindings& b, Stream&) {
        call.run({b.inputs[0], weight.read(b), b.outputs[0], weight.scratch(b)});
      },
      weight.workspace_bytes());
}

std::unique_ptr<Kernel> make_conv2d_backward_weight_onednn(const KernelRequest& request) {
  if (!usable_conv2d(request)) return nullptr;
  const TensorSpec &x = request.inputs[1], &w = request.outputs[0];
  const auto c = convolution(x, w, request.inputs[0], false, request.attributes);
  const auto description = onednn::backward_weight(c);
  const auto plain = plain_weight(w, Conv2dAttributes(request.attributes).groups);
  onednn::Reorder reorder;
  WorkspaceParts parts;
  size_t weight_at = 0;
  // The primitive overwrites, so accumulation needs the workspace, like a layout change.
  if (request.accumulate || description.diff_weights_desc() != plain) {
    reorder = onednn::Reorder(description.diff_weights_desc(), plain, request.accumulate);
    weight_at = parts.add(description.diff_weights_desc().get_size());
  }
  const size_t scratch_at =
      parts.add(std::max(description.scratchpad_desc().get_size(), reorder.scratch_bytes));
  onednn::Call call{dnnl::convolution_backward_weights(description)};
  call.argument(DNNL_ARG_SRC, c.x);
  call.argument(DNNL_ARG_DIFF_DST, c.y);
  call.argument(DNNL_ARG_DIFF_WEIGHTS, description.diff_weights_desc());
  call.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  return make_kernel(
      [call, reorder, weight_at, scratch_at](const Bindings& b, Stream&) {
        void* scratch = at(b.workspace, scratch_at);
        void* weight = reorder.call ? at(b.workspace, weight_at) : b.outputs[0];
        call.run({b.inputs[1], b.inputs[0], weight, scratch});
        if (reorder.call) reorder.call.run({weight, b.outputs[0], scratch});
      },
      parts.total());
}

}  // namespace dltrain
