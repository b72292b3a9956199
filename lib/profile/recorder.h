// Records the events in the steps of a profile: the kernel calls, the other parts of the training
// thread, the batches that the loader fills, and the activities of the device.
//
// Threads: filled() is called by the loader's threads, the other methods by the training thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/profiler.h"
#include "runtime/executor.h"
#include "runtime/step_observer.h"

namespace dltrain {

// Times are nanoseconds of std::chrono::steady_clock.
struct CallEvent {
  const Program* program = nullptr;
  size_t call = 0;  // index into program->calls()
  int64_t begin = 0, end = 0;
};

struct PartEvent {
  StepPart part = StepPart::step;
  int64_t index = 0;  // see StepObserver
  int64_t begin = 0, end = 0;
};

struct FillEvent {
  int worker = 0;
  int64_t batch = 0;
  int64_t begin = 0, end = 0;
  // Processor time that the thread has used so far; −1: unknown.
  int64_t cpu = -1;
};

struct Recording {
  std::vector<CallEvent> calls;  // in order of time
  std::vector<PartEvent> parts;  // in order of their beginning
  std::vector<FillEvent> fills;
  std::vector<DeviceActivity> device;  // in order of their beginning; tag: index into calls
  bool synchronous = true;             // calls are complete when they return; `device` is empty
  std::string method;                  // how times were measured
};

class Recorder final : public StepObserver {
 public:
  // `steps`: number of observed steps; memory for them is allocated here.
  Recorder(Executor& executor, int64_t steps, int64_t micro_steps);

  void begin_call(const Program& program, size_t call, Stream& stream) override;
  void end_call(const Program& program, size_t call, Stream& stream) override;
  void begin(StepPart part, int64_t index) override;
  void end(StepPart part) override;
  void filled(int worker, int64_t sequence, Time begin, Time end) override;

  // Returns all events. Called after the last step. Waits for the device.
  Recording take();

 private:
  std::unique_ptr<DeviceProfiler> profiler_;
  std::map<const Program*, std::vector<std::string>> labels_;  // by call; only with a profiler
  std::mutex mutex_;                                           // of recording_.fills
  Recording recording_;
  std::array<size_t, kStepParts> open_{};  // index into recording_.parts
};

// "layers.3 matmul"
std::string call_label(const Program& program, size_t call);

}  // namespace dltrain
