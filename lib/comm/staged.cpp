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
// backend, because the driver may still execute queued calls, which share it.
struct CallbackState : std::enable_shared_from_this<CallbackState> {
  struct Job {
    std::shared_ptr<CallbackState> state;   // while it is queued
    CollectiveCall call = {}, staged = {};  // with device buffers, and with host buffers
  };

  explicit CallbackState(Collectives& group) : host(&group) {}

  // Returns an unused job; makes one if all are in use.
  Job& free_job() {
    const std::lock_guard lock(mutex);
    if (free.empty()) {
      free.push_back(&jobs.emplace_back());
      free.reserve(jobs.size());
    }
    Job& job = *free.back();
    free.pop_back();
    job.state = shared_from_this();
    return job;
  }

  // Called by the stream, on a thread of the driver.
  static void run(void* argument) {
    Job& job = *static_cast<Job*>(argument);
    const auto state = std::move(job.state);  // the last one deletes the job too
    state->run(job);
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
    running = false;
    free.push_back(&job);
    ended.notify_all();
  }

  // Afterwards no call uses the group or the buffer.
  void close() {
    std::unique_lock lock(mutex);
    closed = true;
    if (running) host->abort();
    ended.wait(lock, [this] { return !running; });
  }

  Collectives* host;
  HostStream stream;
  std::mutex mutex;  // protects the members below
  std::condition_variable ended;
  std::deque<Job> jobs;
  std::vector<Job*> free;
  std::optional<CollectiveFailure> failure;  // the first
  uint64_t begun = 0, done = 0;
  bool running = false;  // a call uses the group
  bool closed = false;
};

class StagedBackend final : public CollectiveBackend {
 public:
  StagedBackend(Device& device, std::unique_ptr<Collectives> host)
      : device_(device), host_(std::move(host)), state_(std::make_shared<CallbackState>(*host_)) {}

  // The streams of a failed device are not synchronized, so a call may still be running.
  ~StagedBackend() override { state_->close(); }

  void queue(const CollectiveCall& call, Stream& stream) override {
    const CollectiveExtent extent = extent_of(call, host_->rank(), host_->size());
    const size_t in = extent.input * dtype_size(call.dtype),
                 out = extent.output * dtype_size(call.dtype);
    std::byte* input = reserve(extent.in_place ? std::max(in, out) : aligned(in) + out, stream);
    std::byte* output = extent.in_place ? input : input + aligned(in);
    device_.copy(input, call.input != nullptr ? call.input : call.output, in, stream);
    CallbackState::Job& job = state_->free_job();
    job.call = job.staged = call;
    job.staged.input = input;
    job.staged.output = output;
    device_.call_on_host(stream, CallbackState::run, &job);
    device_.copy(call.output, output, out, stream);
  }

  std::optional<CollectiveFailure> failure() override {
    const std::lock_guard lock(state_->mutex);
    return state_->failure;
  }

  DeviceProgress progress() override {
    const std::lock_guard lock(state_->mutex);
    return {state_->begun, state_->done};
  }

  void abort() override { host_->abort(); }

  std::unique_ptr<CollectiveBackend> split(std::span<const int> ranks) override {
    return std::make_unique<StagedBackend>(device_, host_->split(ranks));
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
  std::shared_ptr<CallbackState> state_;
};

}  // namespace

std::unique_ptr<CollectiveBackend> make_staged_backend(Device& device,
                                                       std::unique_ptr<Collectives> host) {
  return std::make_unique<StagedBackend>(device, std::move(host));
}

}  // namespace dltrain
