// Element-wise ops with broadcasting: rows of elementwise_steps.h over the threads.
#include "ops/elementwise.h"

#include <algorithm>

#include "cpu/broadcast_loop.h"
#include "cpu/convert.h"
#include "cpu/elementwise_steps.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "shared/make_kernel.h"

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
  parallel_each(loop.rows(), grain, [&](int64_t row) { part(row, 0, length); });
}

std::vector<Shape> operand_shapes(const KernelRequest& request) {
  std::vector<Shape> shapes;
  for (const TensorSpec& spec : request.inputs) shapes.push_back(spec.shape);
  return shapes;
}

// The op for any addresses.
struct ElementwisePlan {
  ElementwisePlan(const KernelRequest& request, ElementwiseOp op)
      : loop(request.outputs[0].shape, operand_shapes(request)),
        operands(static_cast<size_t>(elementwise_operands(op))) {
    const auto kind = [&](size_t i) {
      return loop.one_value(i) ? OperandKind::one : OperandKind::each;
    };
    step = elementwise_step(op, kind(0), operands == 2 ? kind(1) : OperandKind::each,
                            request.accumulate);
    const ElementwiseNumbers numbers = elementwise_numbers(request.op, request.attributes);
    p = static_cast<float>(numbers.p);
    q = static_cast<float>(numbers.q);
  }

  // The element of an operand that belongs to element `at` of a row.
  int64_t offset(size_t i, int64_t row, int64_t at) const {
    return loop.offset(i, row) + (loop.one_value(i) ? 0 : at);
  }

  BroadcastLoop loop;
  size_t operands;
  StepFunction step = nullptr;
  float p, q;
};

std::unique_ptr<Kernel> make_plain(const ElementwisePlan& plan) {
  return make_kernel([plan](const Bindings& b, Stream&) {
    run_rows(plan.loop, [&](int64_t row, int64_t begin, int64_t end) {
      if (begin == end) return;
      const float* operands[2] = {};
      for (size_t i = 0; i < plan.operands; ++i) {
        operands[i] = b.input<float>(i) + plan.offset(i, row, begin);
      }
      float* out = b.output<float>(0) + row * plan.loop.row_length() + begin;
      plan.step({operands[0], operands[1], out, end - begin, plan.p, plan.q});
    });
  });
}

// The same on bf16 or f16 tensors: blocks are widened, computed in f32 and rounded within the L1
// cache.
std::unique_ptr<Kernel> make_low(const ElementwisePlan& plan, DType dtype) {
  return make_kernel([plan, widen = widen_function(dtype), narrow = narrow_function(dtype)](
                         const Bindings& b, Stream&) {
    run_rows(plan.loop, [&](int64_t row, int64_t begin, int64_t end) {
      alignas(64) float wide[2][kElementwiseBlock], y[kElementwiseBlock];
      for (int64_t at = begin; at < end; at += kElementwiseBlock) {
        const int64_t count = std::min(kElementwiseBlock, end - at);
        for (size_t i = 0; i < plan.operands; ++i) {
          widen(b.input<uint16_t>(i) + plan.offset(i, row, at), wide[i],
                plan.loop.one_value(i) ? 1 : count);
        }
        plan.step({wide[0], wide[1], y, count, plan.p, plan.q});
        narrow(y, b.output<uint16_t>(0) + row * plan.loop.row_length() + at, count);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_elementwise(const KernelRequest& request) {
  const ElementwiseOp op = elementwise_op(request.op).value();
  const DType dtype = request.inputs[0].dtype;
  const auto other = [&](const TensorSpec& spec) { return spec.dtype != dtype; };
  if (std::ranges::any_of(request.inputs, other) || std::ranges::any_of(request.outputs, other)) {
    return nullptr;
  }
  if (is_low_precision(dtype) && !request.accumulate) {
    return make_low(ElementwisePlan(request, op), dtype);
  }
  if (dtype != DType::f32) return nullptr;
  return make_plain(ElementwisePlan(request, op));
}

}  // namespace dltrain
