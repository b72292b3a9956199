#include "cuda/vendor/stream_progress.h"

namespace dltrain {
namespace {

constexpr size_t kFirstMarks = 64;

bool is_over(cudaEvent_t event) {
  const cudaError_t code = cudaEventQuery(event);
  // Clear "not ready", which would be reported as the error of this thread's next launch.
  if (code == cudaErrorNotReady) (void)cudaGetLastError();
  return code == cudaSuccess;
}

}  // namespace

StreamProgress::StreamProgress() {
  for (size_t i = 0; i < kFirstMarks; ++i) marks_.push_back({make_event(), make_event()});
}

void StreamProgress::begin(cudaStream_t stream) {
  {
    const std::lock_guard lock(mutex_);
    if (is_full()) advance();
    if (is_full()) grow();
  }
  check_cuda(cudaEventRecord(mark(queued_ + 1).begun, stream), "recording an event");
}

void StreamProgress::end(cudaStream_t stream) {
  check_cuda(cudaEventRecord(mark(queued_ + 1).done, stream), "recording an event");
  const std::lock_guard lock(mutex_);
  ++queued_;
}

void StreamProgress::grow() {
  std::vector<ProgressMark> larger(2 * marks_.size());
  for (uint64_t n = done_ + 1; n <= queued_; ++n) larger[n % larger.size()] = std::move(mark(n));
  for (ProgressMark& m : larger) {
    if (m.begun == nullptr) m = {make_event(), make_event()};
  }
  marks_ = std::move(larger);
}

void StreamProgress::advance() {
  while (done_ < queued_ && is_over(mark(done_ + 1).done)) ++done_;
}

DeviceProgress StreamProgress::progress() {
  const std::lock_guard lock(mutex_);
  advance();
  const bool within = done_ < queued_ && is_over(mark(done_ + 1).begun);
  return {done_ + (within ? 1 : 0), done_};
}

}  // namespace dltrain
