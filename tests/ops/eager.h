// An OpEmitter that runs every op at once on an engine: what gradient rules emit can be looked at
// as numbers.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "ops/runner.h"

namespace dltrain {

class EagerEmitter final : public OpEmitter {
 public:
  explicit EagerEmitter(OpRunner& runner) : runner_(runner) {}

  // An absent tensor (absent_spec()) has no value of its own.
  ValueId add(HostTensor tensor, bool is_step_state = false) {
    if (tensor.spec == TensorSpec{Shape{0}, DType::u8}) return kNoValue;
    values_.push_back(std::move(tensor));
    if (is_step_state) step_state_ = static_cast<ValueId>(values_.size()) - 1;
    return static_cast<ValueId>(values_.size()) - 1;
  }

  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                            Attributes attributes = {}) override {
    OpRun run{.op = std::string(op), .attributes = std::move(attributes), .inputs = {}};
    for (ValueId id : inputs) {
      run.inputs.push_back(id == kNoValue ? HostTensor({Shape{0}, DType::u8}) : value(id));
    }
    OpResult result = runner_.run(run);
    for (const std::string& fault : result.faults) {
      fail(ExitCode::internal, "{}: {}", op, fault);
    }
    std::vector<ValueId> out;
    for (HostTensor& tensor : result.outputs) out.push_back(add(std::move(tensor)));
    return out;
  }

  TensorSpec spec(ValueId id) const override { return value(id).spec; }

  ValueId step_state() override {
    check_internal(step_state_ != kNoValue, "the case has no StepState");
    return step_state_;
  }

  const HostTensor& value(ValueId id) const { return values_.at(static_cast<size_t>(id)); }

 private:
  OpRunner& runner_;
  std::vector<HostTensor> values_;
  ValueId step_state_ = kNoValue;
};

}  // namespace dltrain
