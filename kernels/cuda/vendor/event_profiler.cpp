#include <algorithm>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include "cuda/vendor/check.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/profiler.h"

namespace dltrain {
namespace {

// Records events before and after each call. All time between them counts for the call, even if the
// GPU waited for a launch. `why`: the reason why CUPTI is not used; part of method().
class EventProfiler final : public DeviceProfiler {
 public:
  explicit EventProfiler(const std::string& why)
      : method_("events around every call, gaps of launches included (" + why + ")") {}

  void begin(int64_t tag, const char* label, Stream& stream) override {
    const cudaStream_t native = native_stream(stream);
    if (used_ == 0) mark_zero(native);
    if (used_ == pairs_.size()) {
      pairs_.push_back(
          {.begin = make_event(cudaEventDefault), .end = make_event(cudaEventDefault)});
    }
    nvtxRangePushA(label);
    Pair& pair = pairs_[used_];
    pair.tag = tag;
    pair.label = label;
    pair.stream = number_of(native);
    check_cuda(cudaEventRecord(pair.begin, native), "recording an event");
  }

  void end(int64_t, Stream& stream) override {
    check_cuda(cudaEventRecord(pairs_[used_++].end, native_stream(stream)), "recording an event");
    nvtxRangePop();
  }

  std::vector<DeviceActivity> collect() override {
    std::vector<DeviceActivity> out;
    for (size_t i = 0; i < used_; ++i) {
      const Pair& pair = pairs_[i];
      check_cuda(cudaEventSynchronize(pair.end), "waiting for the GPU");
      out.push_back({.kind = DeviceActivity::Kind::call,
                     .name = pair.label,
                     .tag = pair.tag,
                     .begin = time_of(pair.begin),
                     .end = time_of(pair.end),
                     .stream = pair.stream});
    }
    used_ = 0;
    return out;
  }

  std::string method() const override { return method_; }

 private:
  struct Pair {
    EventHandle begin, end;
    int64_t tag = -1;
    const char* label = "";
    uint32_t stream = 0;
  };

  // Records the reference event for all times, and the host's time.
  void mark_zero(cudaStream_t stream) {
    if (zero_ == nullptr) zero_ = make_event(cudaEventDefault);
    check_cuda(cudaEventRecord(zero_, stream), "recording an event");
    check_cuda(cudaEventSynchronize(zero_), "waiting for the GPU");
    zero_time_ = profiler_clock();
  }

  int64_t time_of(cudaEvent_t event) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, zero_, event), "reading an event's time");
    return zero_time_ + static_cast<int64_t>(1e6 * static_cast<double>(milliseconds));
  }

  uint32_t number_of(cudaStream_t stream) {
    const auto number = static_cast<uint32_t>(std::find(streams_.begin(), streams_.end(), stream) -
                                              streams_.begin());
    if (number == streams_.size()) streams_.push_back(stream);
    return number;
  }

  std::string method_;
  std::vector<Pair> pairs_;
  size_t used_ = 0;
  EventHandle zero_;
  int64_t zero_time_ = 0;
  std::vector<cudaStream_t> streams_;
};

}  // namespace

std::unique_ptr<DeviceProfiler> make_cuda_profiler() {
  std::string why;
  if (auto cupti = make_cupti_profiler(why)) return cupti;
  return std::make_unique<EventProfiler>(why);
}

}  // namespace dltrain
