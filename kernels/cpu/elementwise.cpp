// Element-wise ops with broadcasting: rows of elementwise_steps.h over the threads.
#include "ops/elementwise.h"

#include <array>

#include "base/error.h"
#include "cpu/broadcast_loop.h"
#include "cpu/convert.h"
#include "cpu/elementwise_steps.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

constexpr int64_t kElementwiseGrain = 16384;  // least elements per thread
constexpr int64_t kElementwiseBlock = 512;    // elements widened at a time

// Calls part(row, begin, end) for the entire loop, in parallel over parts of one row, or over rows.
template <typename Part>
void run_rows(const BroadcastLoop& loop, const Part& part) {
  const int64_t length = loop.row_length();
  if (loop.rows() == 1) {
    parallel_for(length, kElementwiseGrain,
                 [&](int64_t begin, int64_t end) { part(0, begin, end); });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kElementwiseGrain / std::max<int64_t>(1, length));
  parallel_for(loop.rows(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) part(row, 0, length);
  });
}

std::vector<Shape> operand_shapes(const KernelRequest& request) {
  std::vector<Shape> shapes;
  for (const TensorSpec& spec : request.inputs) shapes.push_back(spec.shape);
  return shapes;
}

class Elementwise final : public Kernel {
 public:
  Elementwise(const KernelRequest& request, ElementwiseOp op)
      : loop_(request.outputs[0].shape, operand_shapes(request)),
        binary_(elementwise_operands(op) == 2) {
    step_ =
        elementwise_step(op, kind(0), binary_ ? kind(1) : OperandKind::each, request.accumulate);
    const ElementwiseNumbers numbers = elementwise_numbers(request.op, request.attributes);
    operands_.p = static_cast<float>(numbers.p);
    operands_.q = static_cast<float>(numbers.q);
  }

  void run(const Bindings& b, Stream&) const override {
    StepOperands operands = operands_;
    operands.a = input<const float>(b, 0);
    operands.b = binary_ ? input<const float>(b, 1) : nullptr;
    operands.out = output<float>(b, 0);
    run_rows(loop_,
             [&](int64_t row, int64_t begin, int64_t end) { run_part(operands, row, begin, end); });
  }

 private:
  OperandKind kind(size_t i) const {
    return loop_.one_value(i) ? OperandKind::one : OperandKind::each;
  }

  void run_part(StepOperands s, int64_t row, int64_t begin, int64_t end) const {
    s.a = static_cast<const float*>(s.a) + loop_.offset(0, row) + (loop_.one_value(0) ? 0 : begin);
    if (binary_) {
      s.b =
          static_cast<const float*>(s.b) + loop_.offset(1, row) + (loop_.one_value(1) ? 0 : begin);
    }
    s.out += row * loop_.row_length() + begin;
    s.count = end - begin;
    if (s.count > 0) step_(s);
  }

  BroadcastLoop loop_;
  bool binary_;
  StepFunction step_ = nullptr;
  StepOperands operands_{};  // the numbers
};

// The same on bf16 or f16 tensors: blocks are widened, computed in f32 and rounded within the L1
// cache.
class LowElementwise final : public Kernel {
 public:
  LowElementwise(const KernelRequest& request, ElementwiseOp op)
      : loop_(request.outputs[0].shape, operand_shapes(request)),
        binary_(elementwise_operands(op) == 2),
        widen_(widen_function(request.inputs[0].dtype)),
        narrow_(narrow_function(request.inputs[0].dtype)) {
    const auto kind = [&](size_t i) {
      return loop_.one_value(i) ? OperandKind::one : OperandKind::each;
    };
    step_ = elementwise_step(op, kind(0), binary_ ? kind(1) : OperandKind::each, false);
    const ElementwiseNumbers numbers = elementwise_numbers(request.op, request.attributes);
    p_ = static_cast<float>(numbers.p);
    q_ = static_cast<float>(numbers.q);
  }

  void run(const Bindings& b, Stream&) const override {
    run_rows(loop_, [&](int64_t row, int64_t begin, int64_t end) { run_part(b, row, begin, end); });
  }

 private:
  void run_part(const Bindings& b, int64_t row, int64_t begin, int64_t end) const {
    alignas(64) float wide[2][kElementwiseBlock], y[kElementwiseBlock];
    for (int64_t at = begin; at < end; at += kElementwiseBlock) {
      const int64_t count = std::min(kElementwiseBlock, end - at);
      for (size_t i = 0; i < (binary_ ? 2 : 1); ++i) {
        const bool one = loop_.one_value(i);
        widen_(b.input<uint16_t>(i) + loop_.offset(i, row) + (one ? 0 : at), wide[i],
               one ? 1 : count);
      }
      step_({wide[0], wide[1], y, count, p_, q_});
      narrow_(y, b.output<uint16_t>(0) + row * loop_.row_length() + at, count);
    }
  }

  BroadcastLoop loop_;
  bool binary_;
  WidenFunction widen_;
  NarrowFunction narrow_;
  StepFunction step_ = nullptr;
  float p_, q_;
};

bool all_of_dtype(const KernelRequest& request, DType dtype) {
  const auto same = [&](const TensorSpec& spec) { return spec.dtype == dtype; };
  return std::all_of(request.inputs.begin(), request.inputs.end(), same) &&
         std::all_of(request.outputs.begin(), request.outputs.end(), same);
}

}  // namespace

MadeKernel make_elementwise(const KernelRequest& request) {
  const auto op = elementwise_op(request.op);
  check_internal(op.has_value(), "{} is not element-wise", request.op);
  const DType dtype = request.inputs[0].dtype;
  if (!all_of_dtype(request, dtype)) return nullptr;
  if (is_low_precision(dtype) && !request.accumulate) {
    return std::make_unique<LowElementwise>(request, *op);
  }
  if (dtype != DType::f32) return nullptr;
  return std::make_unique<Elementwise>(request, *op);
}

}  // namespace dltrain
