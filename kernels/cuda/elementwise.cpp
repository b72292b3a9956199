// Kernel classes of element-wise ops, cast, broadcast and fused_elementwise.
#include "cuda/elementwise.h"

#include "base/error.h"
#include "cuda/makers.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Strides of a dense operand of `shape` within the output: 0 where it repeats.
void set_strides(const Shape& out, const Shape& shape, int64_t* stride) {
  const int extra = out.rank() - shape.rank();
  int64_t step = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const int64_t extent = i < extra ? 1 : shape[i - extra];
    stride[i] = extent == 1 ? 0 : step;
    step *= extent;
  }
}

// Merges neighbouring axes that both operands run through in one sweep: [rows, C] + [C] has rank 2.
StridedLayout broadcast_layout(const Shape& out, const Shape& a, const Shape& b) {
  int64_t stride[2][StridedLayout::kMaxRank];
  set_strides(out, a, stride[0]);
  set_strides(out, b, stride[1]);
  StridedLayout layout;
  for (int i = 0; i < out.rank(); ++i) {
    if (out[i] == 1) continue;
    const int last = layout.rank - 1;
    const bool merges = last >= 0 && layout.stride[0][last] == stride[0][i] * out[i] &&
                        layout.stride[1][last] == stride[1][i] * out[i];
    const int at = merges ? last : layout.rank++;
    layout.extent[at] = merges ? layout.extent[at] * out[i] : out[i];
    layout.stride[0][at] = stride[0][i];
    layout.stride[1][at] = stride[1][i];
  }
  return layout;
}

class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(const KernelRequest& request, ElementwiseOp op)
      : call_{.op = op,
              .dtype = request.outputs[0].dtype,
              .p = elementwise_numbers(request.op, request.attributes).p,
              .q = elementwise_numbers(request.op, request.attributes).q,
              .accumulate = request.accumulate},
        count_(request.outputs[0].shape.elements()) {
    const Shape& out = request.outputs[0].shape;
    for (const TensorSpec& input : request.inputs) {
      same_shape_ = same_shape_ && input.shape == out;
    }
    if (!same_shape_) {
      layout_ = broadcast_layout(out, request.inputs.front().shape, request.inputs.back().shape);
    }
  }

  void bind(const Bindings& bindings) override {
    a_ = bindings.inputs.front();
    b_ = bindings.inputs.back();
    y_ = bindings.outputs[0];
  }

  void run(Stream& stream) override {
    if (same_shape_) {
      launch_elementwise(call_, a_, b_, y_, count_, stream.native());
    } else {
      launch_broadcast(call_, layout_, a_, b_, y_, stream.native());
    }
  }

 private:
  ElementwiseCall call_;
  int64_t count_;
  bool same_shape_ = true;
  StridedLayout layout_;
  const void* a_ = nullptr;
  const void* b_ = nullptr;
  void* y_ = nullptr;
};

class CastKernel final : public Kernel {
 public:
  explicit CastKernel(const KernelRequest& request)
      : from_(request.inputs[0].dtype),
        to_(request.outputs[0].dtype),
        count_(request.outputs[0].shape.elements()) {}
  void bind(const Bindings& bindings) override {
    x_ = bindings.inputs[0];
    y_ = bindings.outputs[0];
  }
  void run(Stream& stream) override { launch_cast(from_, to_, x_, y_, count_, stream.native()); }

 private:
  DType from_, to_;
  int64_t count_;
  const void* x_ = nullptr;
  void* y_ = nullptr;
};

class FusedKernel final : public Kernel {
 public:
  FusedKernel(const FusedCall& call, int64_t count) : call_(call), count_(count) {}
  void bind(const Bindings& bindings) override {
    for (int i = 0; i < call_.inputs; ++i) call_.input[i] = bindings.inputs[static_cast<size_t>(i)];
    for (int i = 0; i < call_.results; ++i) {
      call_.output[i] = bindings.outputs[static_cast<size_t>(i)];
    }
  }
  void run(Stream& stream) override { launch_fused(call_, count_, stream.native()); }

 private:
  FusedCall call_;
  int64_t count_;
};

bool castable(DType dtype) {
  return is_floating(dtype) || dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8;
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_elementwise(const KernelRequest& request) {
  const auto op = elementwise_op(request.op);
  check_internal(op.has_value(), "{} is no element-wise op", request.op);
  for (const TensorSpec& input : request.inputs) {
    if (!is_floating(input.dtype) || input.dtype != request.outputs[0].dtype) return nullptr;
  }
  return std::make_unique<ElementwiseKernel>(request, *op);
}

std::unique_ptr<Kernel> make_cuda_broadcast(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  return std::make_unique<ElementwiseKernel>(request, ElementwiseOp::identity);
}

std::unique_ptr<Kernel> make_cuda_cast(const KernelRequest& request) {
  if (!castable(request.inputs[0].dtype) || !castable(request.outputs[0].dtype)) return nullptr;
  return std::make_unique<CastKernel>(request);
}

std::unique_ptr<Kernel> make_cuda_fused(const KernelRequest& request) {
  const auto steps = parse_fused_program(request.attributes.text("program"));
  const auto results = request.attributes.integers("results");
  if (!is_floating(request.inputs[0].dtype) || request.inputs.size() > FusedCall::kMaxInputs ||
      steps.size() > FusedCall::kMaxSteps || results.size() > FusedCall::kMaxResults) {
    return nullptr;
  }
  FusedCall call{};
  call.inputs = static_cast<int>(request.inputs.size());
  call.steps = static_cast<int>(steps.size());
  call.results = static_cast<int>(results.size());
  call.dtype = request.outputs[0].dtype;
  call.mixed = !fused_dtype(request.inputs, request.outputs);
  for (size_t i = 0; i < request.inputs.size(); ++i) call.dtypes[i] = request.inputs[i].dtype;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto op = elementwise_op(steps[i].op);
    check_internal(op.has_value(), "fused_elementwise: {} is no element-wise op", steps[i].op);
    call.step[i] = {*op, static_cast<uint8_t>(steps[i].operands.front()),
                    static_cast<uint8_t>(steps[i].operands.back()), steps[i].p, steps[i].q};
  }
  for (size_t i = 0; i < results.size(); ++i) call.result[i] = static_cast<uint8_t>(results[i]);
  return std::make_unique<FusedKernel>(call, request.inputs[0].shape.elements());
}

}  // namespace dltrain
