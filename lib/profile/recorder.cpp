#include "profile/recorder.h"

#include <algorithm>
#include <ctime>

namespace dltrain {

std::string call_label(const Program& program, size_t call) {
  const Node& node = program.graph().nodes[program.calls()[call].node];
  return (node.layer.empty() ? std::string() : node.layer + " ") + std::string(node.op->name);
}

Recorder::Recorder(Executor& executor, int64_t steps, int64_t micro_steps)
    : profiler_(executor.device().make_profiler()) {
  size_t calls = 0;
  for (size_t i = 0; i < executor.variants(); ++i) {
    const Program& program = executor.training_program(i);
    calls = std::max(calls, program.calls().size());
    if (profiler_ == nullptr) continue;
    for (size_t call = 0; call < program.calls().size(); ++call) {
      labels_[&program].push_back(call_label(program, call));
    }
  }
  recording_.synchronous = profiler_ == nullptr;
  recording_.method = profiler_ ? profiler_->method() : "the host's clock around every call";
  const auto rounds = static_cast<size_t>(steps * micro_steps);
  recording_.calls.reserve(rounds * calls);
  recording_.parts.reserve(static_cast<size_t>(steps) * kStepParts + 2 * rounds);
  recording_.fills.reserve(8 * rounds + 64);
}

void Recorder::begin_call(const Program& program, size_t call, Stream& stream) {
  if (profiler_) {
    profiler_->begin(static_cast<int64_t>(recording_.calls.size()),
                     labels_.at(&program)[call].c_str(), stream);
  }
  recording_.calls.push_back({.program = &program, .call = call, .begin = profiler_clock()});
}

void Recorder::end_call(const Program&, size_t, Stream& stream) {
  recording_.calls.back().end = profiler_clock();
  if (profiler_) profiler_->end(static_cast<int64_t>(recording_.calls.size()) - 1, stream);
}

void Recorder::begin(StepPart part, int64_t index) {
  // Work of earlier steps must be over, or the device would look idle while it does that.
  if (profiler_ && recording_.parts.empty()) (void)profiler_->collect();
  open_[static_cast<size_t>(part)] = recording_.parts.size();
  recording_.parts.push_back({.part = part, .index = index, .begin = profiler_clock()});
}

void Recorder::end(StepPart part) {
  recording_.parts[open_[static_cast<size_t>(part)]].end = profiler_clock();
}

void Recorder::filled(int worker, int64_t sequence, Time begin, Time end) {
  timespec used{};
  const bool known = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0;
  const int64_t cpu = known ? int64_t{1'000'000'000} * used.tv_sec + used.tv_nsec : -1;
  const std::lock_guard lock(mutex_);
  recording_.fills.push_back({worker, sequence, profiler_clock(begin), profiler_clock(end), cpu});
}

Recording Recorder::take() {
  if (profiler_) recording_.device = profiler_->collect();
  std::ranges::stable_sort(recording_.device, {}, &DeviceActivity::begin);
  const std::lock_guard lock(mutex_);
  // Batches that were ready before the first observed part do not count.
  if (!recording_.parts.empty()) {
    const int64_t first = recording_.parts.front().begin;
    std::erase_if(recording_.fills, [&](const FillEvent& fill) { return fill.end < first; });
  }
  return std::move(recording_);
}

}  // namespace dltrain
