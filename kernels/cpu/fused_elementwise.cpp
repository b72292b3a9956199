// A chain of element-wise steps, run block by block so that intermediate results stay in the L1
// cache.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "cpu/convert.h"
#include "cpu/elementwise_steps.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "ops/fused.h"

namespace dltrain {
namespace {

constexpr int64_t kFusedElementwiseBlock = 512;  // elements; 2 KiB per intermediate
constexpr size_t kMaxScratch = 16;  // live intermediates: 32 KiB of the stack; the limit of the
                                    // fuse pass for steps of a group
constexpr size_t kMaxInputs = 16;   // of a group; f16 ones are widened to 32 KiB at most

// The location of an operand or result of a step. The output may share the memory of an input that
// other steps still read, so only the last step writes to it.
struct OperandLocation {
  enum Kind : uint8_t { input, result, scratch };
  Kind kind = input;
  size_t index = 0;
};

struct PlannedStep {
  StepFunction function;
  OperandLocation a, b, out;  // b: a for a unary op
  float p, q;
};

class FusedElementwise final : public Kernel {
 public:
  // Returns false if scratch is too small for the live intermediates.
  bool plan(const KernelRequest& request) {
    count_ = request.outputs[0].shape.elements();
    const DType result = request.outputs[0].dtype;
    if (is_low_precision(result)) narrow_ = narrow_function(result);
    const auto steps = parse_fused_program(request.attributes.text("program"));
    const size_t inputs = request.inputs.size();
    if (inputs > kMaxInputs) return false;
    for (const TensorSpec& spec : request.inputs) {
      inputs_.push_back({.element_size = dtype_size(spec.dtype),
                         .direct = spec.dtype == DType::bf16,
                         .widen = spec.dtype == DType::f16 ? widen_function(DType::f16) : nullptr});
    }
    std::vector<OperandLocation> locations(inputs + steps.size());
    for (size_t i = 0; i < inputs; ++i) locations[i] = {OperandLocation::input, i};
    std::vector<size_t> last_use(locations.size(), 0);
    for (size_t s = 0; s < steps.size(); ++s) {
      for (int operand : steps[s].operands) last_use[static_cast<size_t>(operand)] = s;
    }
    std::array<bool, kMaxScratch> taken{};
    for (size_t s = 0; s < steps.size(); ++s) {
      const size_t self = inputs + s;
      if (s + 1 == steps.size()) {
        locations[self].kind = OperandLocation::result;
      } else {
        const auto free = std::find(taken.begin(), taken.end(), false);
        if (free == taken.end()) return false;
        *free = true;
        locations[self] = {OperandLocation::scratch, static_cast<size_t>(free - taken.begin())};
      }
      add_step(steps[s], locations, locations[self]);
      for (int number : steps[s].operands) {
        const auto operand = static_cast<size_t>(number);
        if (locations[operand].kind == OperandLocation::scratch && last_use[operand] == s) {
          taken[locations[operand].index] = false;
        }
      }
    }
    return true;
  }

  void run(const Bindings& bindings, Stream&) const override {
    parallel_for(count_, 8 * kFusedElementwiseBlock, [&](int64_t begin, int64_t end) {
      alignas(64) std::array<float, kMaxScratch * kFusedElementwiseBlock> scratch;
      for (int64_t at = begin; at < end; at += kFusedElementwiseBlock) {
        const int64_t count = std::min(kFusedElementwiseBlock, end - at);
        run_block(bindings, at, count, scratch.data());
      }
    });
  }

 private:
  void add_step(const FusedStep& step, const std::vector<OperandLocation>& locations,
                OperandLocation out) {
    const auto op = elementwise_op(step.op);
    check_internal(op.has_value(), "fused program: unknown step {}", step.op);
    check_internal(step.operands.size() == static_cast<size_t>(elementwise_operands(*op)),
                   "fused program: {} has {} operands", step.op, step.operands.size());
    const OperandLocation a = locations[static_cast<size_t>(step.operands[0])];
    const OperandLocation b = locations[static_cast<size_t>(step.operands.back())];
    const auto kind = [&](OperandLocation location) {
      return location.kind == OperandLocation::input && inputs_[location.index].direct
                 ? OperandKind::bf16
                 : OperandKind::each;
    };
    steps_.push_back({elementwise_step(*op, kind(a), kind(b), false), a, b, out,
                      static_cast<float>(step.p), static_cast<float>(step.q)});
  }

  // 16-bit operands are read as bf16 or widened to a buffer; only the result is rounded.
  void run_block(const Bindings& b, int64_t at, int64_t count, float* scratch) const {
    alignas(64) std::array<float, kMaxInputs * kFusedElementwiseBlock> wide;
    alignas(64) std::array<float, kFusedElementwiseBlock> rounded;
    std::array<const void*, kMaxInputs> in{};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      in[i] = b.input<std::byte>(i) + static_cast<size_t>(at) * inputs_[i].element_size;
      if (inputs_[i].widen == nullptr) continue;
      float* to = wide.data() + static_cast<int64_t>(i) * kFusedElementwiseBlock;
      inputs_[i].widen(in[i], to, count);
      in[i] = to;
    }
    float* out = narrow_ != nullptr ? rounded.data() : b.output<float>(0) + at;
    const auto computed = [&](OperandLocation location) {
      return location.kind == OperandLocation::result
                 ? out
                 : scratch + static_cast<int64_t>(location.index) * kFusedElementwiseBlock;
    };
    const auto operand = [&](OperandLocation location) -> const void* {
      return location.kind == OperandLocation::input ? in[location.index] : computed(location);
    };
    for (const PlannedStep& s : steps_) {
      s.function({operand(s.a), operand(s.b), computed(s.out), count, s.p, s.q});
    }
    if (narrow_ != nullptr) narrow_(out, b.output<uint16_t>(0) + at, count);
  }

  int64_t count_ = 0;
  std::vector<PlannedStep> steps_;
  struct Input {
    size_t element_size;
    bool direct;          // bf16 that steps read without widening
    WidenFunction widen;  // nullptr: not widened
  };
  NarrowFunction narrow_ = nullptr;  // of a result in 16 bits
  std::vector<Input> inputs_;
};

}  // namespace

std::unique_ptr<Kernel> make_fused_elementwise(const KernelRequest& request) {
  if (request.inputs[0].dtype == DType::f64) return nullptr;  // all of them, then
  auto kernel = std::make_unique<FusedElementwise>();
  if (!kernel->plan(request)) return nullptr;
  return kernel;
}

}  // namespace dltrain
