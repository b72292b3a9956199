// Runs a graph on the host for tests: a program with one frame, and values by id as doubles.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "graph/frame.h"
#include "graph/state_layout.h"
#include "ops/step_state.h"
#include "reference/engine.h"

namespace dltrain {

class GraphRun {
 public:
  explicit GraphRun(Graph graph, bool several_micro_steps = false,
                    const Engine& engine = reference_engine(), Collectives* collectives = nullptr)
      : device_(engine.open(0)),
        stream_(device_->make_stream()),
        program_(std::move(graph), {.engine = &engine,
                                    .device = device_.get(),
                                    .collectives = collectives,
                                    .several_micro_steps = several_micro_steps}) {
    layout_.add(program_.graph());
    state_ = Buffer(*device_, layout_.bytes());
    work_ = Buffer(*device_, program_.work_bytes());
    frame_.emplace(
        program_,
        [this](const GraphValue& value) { return state_.data() + layout_.offset_of(value); },
        work_.data());
  }

  const Program& program() const { return program_; }
  const Frame& frame() const { return *frame_; }
  const StateLayout& layout() const { return layout_; }
  ValueId id(const std::string& name) const {
    const ValueId found = program_.graph().find(name);
    check_internal(found != kNoValue, "no value is named {}", name);
    return found;
  }

  void set(ValueId value, const std::vector<double>& elements) {
    const TensorSpec& spec = program_.graph().value(value).spec;
    check_internal(static_cast<int64_t>(elements.size()) == spec.shape.elements(), "{} elements",
                   elements.size());
    switch (spec.dtype) {
      case DType::f32:
        return put<float>(value, elements);
      case DType::f64:
        return put<double>(value, elements);
      case DType::i32:
        return put<int32_t>(value, elements);
      default:
        fail(ExitCode::internal, "no test writes {}", dtype_name(spec.dtype));
    }
  }
  void set(const std::string& name, const std::vector<double>& v) { set(id(name), v); }

  std::vector<double> get(ValueId value) const {
    const TensorSpec& spec = program_.graph().value(value).spec;
    switch (spec.dtype) {
      case DType::f32:
        return take<float>(value);
      case DType::f64:
        return take<double>(value);
      case DType::i32:
        return take<int32_t>(value);
      case DType::u8:
        return take<uint8_t>(value);
      default:
        fail(ExitCode::internal, "no test reads {}", dtype_name(spec.dtype));
    }
  }
  std::vector<double> get(const std::string& name) const { return get(id(name)); }

  // Inputs and state of a floating dtype get numbers in [-1, 1) that depend on `seed` and the
  // value's name only; sums and moments stay zero.
  void fill(uint64_t seed) {
    const Graph& graph = program_.graph();
    for (Role role : {Role::input, Role::parameter, Role::buffer}) {
      for (ValueId value : graph.with_role(role)) {
        const GraphValue& v = graph.value(value);
        if (!is_floating(v.spec.dtype)) continue;
        std::vector<double> elements(static_cast<size_t>(v.spec.shape.elements()));
        for (size_t i = 0; i < elements.size(); ++i) {
          elements[i] = 2.0 * random_uniform(seed, random_stream(v.name), 0, i) - 1.0;
        }
        set(value, elements);
      }
    }
  }

  StepState& step_state() {
    return *static_cast<StepState*>(frame_->address(program_.graph().step_state));
  }

  void run(Phase phase, MicroStep variant = MicroStep::only) {
    frame_->run(phase, variant, *stream_);
  }
  void run_all(MicroStep variant = MicroStep::only) {
    for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) run(phase, variant);
  }
  std::string find_non_finite(Phase phase) {
    return frame_->find_non_finite(phase, MicroStep::only, *stream_);
  }

 private:
  template <typename T>
  void put(ValueId value, const std::vector<double>& elements) {
    T* to = static_cast<T*>(frame_->address(value));
    std::transform(elements.begin(), elements.end(), to,
                   [](double x) { return static_cast<T>(x); });
  }
  template <typename T>
  std::vector<double> take(ValueId value) const {
    const T* from = static_cast<const T*>(frame_->address(value));
    const auto n = program_.graph().value(value).spec.shape.elements();
    return std::vector<double>(from, from + n);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Program program_;
  StateLayout layout_;
  Buffer state_, work_;
  std::optional<Frame> frame_;
};

// Sums and gradients after one step of a graph, from arbitrary state.
inline std::vector<std::vector<double>> results_of(const Graph& graph) {
  GraphRun run(graph);
  run.fill(5);
  run.step_state().out.loss_scale = 1;
  run.step_state().in.inverse_valid = 0.5;
  run.run(Phase::forward);
  run.run(Phase::backward);
  std::vector<std::vector<double>> out;
  for (Role role : {Role::metric, Role::statistic, Role::gradient}) {
    for (ValueId id : graph.with_role(role)) out.push_back(run.get(id));
  }
  return out;
}

}  // namespace dltrain
