#include "comm/staged.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The state of the stream's calls on the host. After a failure of the device it outlives the
// carrier, because the driver may still execute queued calls.
struct Calls {
  struct Job {
    Calls* calls = nullptr;
    CollectiveCall call = {}, staged = {};  // with device buffers, and with host buffers
  };

  explicit Calls(Collectives& group) : host(&group) {}

  // Returns an unused job; makes one if all are in use.
  Job& free_job() {
    const std::lock_guard lock(mutex);
    ++under_way;
    if (free.empty()) {
      jobs.push_back({.calls = this});
      free.reserve(jobs.size());
      return jobs.back();
    }
    Job& job = *free.back();
    free.pop_back();
    return job;
  }

  // Called by the stream, on a thread of the driver.
  static void run(void* argument) {
    Job& job = *static_cast<Job*>(argument);
    job.calls->run(job);
  }

  void run(Job& job) {
    std::unique_lock lock(mutex);
    const bool works = !failure && !closed;
    begun += works ? 1 : 0;
    running = works;
    lock.unlock();
    std::optional<std::string> reason;
    if (works) {
      try {
        host->wait(host->issue(job.staged, stream), stream);
      } catch (const std::exception& e) {
        reason = e.what();
      }
    }
    lock.lock();
    // A failed call stays the one that the device executes, for the watch.
    if (reason) failure = {job.call, *reason};
    done += works && !reason ? 1 : 0;
    --under_way;
    running = false;
    free.push_back(&job);
    ended.notify_all();
  }

  // Afterwards no call uses the group or the buffer. Returns true if no call is queued any more.
  bool close() {
    std::unique_lock lock(mutex);
    closed = true;
    if (running) host->abandon();
    ended.wait(lock, [this] { return !running; });
    return under_way == 0;
  }

  Collectives* host;
  HostStream stream;
  std::mutex mutex;  // protects the members below
  std::condition_variable ended;
  std::deque<Job> jobs;
  std::vector<Job*> free;
  std::optional<CarrierFailure> failure;  // the first
  uint64_t begun = 0, done = 0;
  size_t under_way = 0;  // queued and not completed
  bool running = false;  // a call uses the group
  bool closed = false;
};

// Keeps the state for queued calls until the process ends.
void keep(std::unique_ptr<Calls> calls) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Calls>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(calls));
}

class StagedCarrier final : public Carrier {
 public:
  StagedCarrier(Device& device, std::unique_ptr<Collectives> host)
      : device_(device), host_(std::move(host)), calls_(std::make_unique<Calls>(*host_)) {}

  // The streams of a failed device are not synchronized, so a call may still be running.
  ~StagedCarrier() override {
    if (!calls_->close()) keep(std::move(calls_));
  }

  void queue(const CollectiveCall& call, Stream& stream) override {
    const CollectiveExtent extent = extent_of(call, host_->rank(), host_->size());
    const size_t in = extent.input * dtype_size(call.dtype),
                 out = extent.output * dtype_size(call.dtype);
    std::byte* input = reserve(extent.in_place ? std::max(in, out) : aligned(in) + out, stream);
    std::byte* output = extent.in_place ? input : input + aligned(in);
    device_.copy(input, call.input != nullptr ? call.input : call.output, in, stream);
    Calls::Job& job = calls_->free_job();
    job.call = job.staged = call;
    job.staged.input = input;
    job.staged.output = output;
    device_.call_on_host(stream, Calls::run, &job);
    device_.copy(call.output, output, out, stream);
  }

  std::optional<CarrierFailure> failure() override {
    const std::lock_guard lock(calls_->mutex);
    return calls_->failure;
  }

  CarrierProgress progress() override {
    const std::lock_guard lock(calls_->mutex);
    return {calls_->begun, calls_->done};
  }

  void abandon() override { host_->abandon(); }

  std::unique_ptr<Carrier> split(std::span<const int> ranks) override {
    return std::make_unique<StagedCarrier>(device_, host_->split(ranks));
  }

 private:
  // One buffer suffices, because the stream executes one operation at a time.
  std::byte* reserve(size_t bytes, Stream& stream) {
    if (bytes > buffer_.bytes()) {
      stream.synchronize();  // until the old buffer is unused
      buffer_ = Buffer(device_, bytes, Memory::pinned_host);
    }
    return buffer_.data();
  }

  Device& device_;
  std::unique_ptr<Collectives> host_;
  Buffer buffer_;
  std::unique_ptr<Calls> calls_;
};

}  // namespace

std::unique_ptr<Carrier> make_staged_carrier(Device& device, std::unique_ptr<Collectives> host) {
  return std::make_unique<StagedCarrier>(device, std::move(host));
}

}  // namespace dltrain
