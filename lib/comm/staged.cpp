#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_group.h"

namespace dltrain {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The calls of the stream on the host, which the stream makes in order. After a failure of the
// device they outlive the backend, because the driver may still make those that are queued.
struct HostCalls : std::enable_shared_from_this<HostCalls> {
  struct Call {
    CollectiveCall on_device, on_host;  // with device buffers, and with host buffers
  };

  explicit HostCalls(Collectives& group) : host(&group) {}

  void add(Call call) {
    const std::lock_guard lock(mutex);
    queued.push_back(std::move(call));
    self = shared_from_this();
  }

  // Called by the stream for each queued call, on a thread of the driver.
  static void run(void* calls) { static_cast<HostCalls*>(calls)->run_next(); }

  void run_next() {
    std::shared_ptr<HostCalls> last;  // destroyed after the lock
    std::unique_lock lock(mutex);
    const Call call = std::move(queued[next++]);
    if (2 * next > queued.size()) {
      queued.erase(queued.begin(), queued.begin() + static_cast<std::ptrdiff_t>(next));
      next = 0;
    }
    if (queued.empty()) last = std::move(self);
    if (failure || closed) return;
    ++begun;
    running = true;
    lock.unlock();
    std::optional<std::string> reason;
    try {
      host->wait(host->issue(call.on_host, stream), stream);
    } catch (const std::exception& e) {
      reason = e.what();
    }
    lock.lock();
    // A failed call stays the one that the device executes, for the watch.
    if (reason) failure = {call.on_device, *reason};
    done += reason ? 0 : 1;
    running = false;
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
  std::vector<Call> queued;                  // keeps its memory, so that steps allocate nothing
  size_t next = 0;                           // the first of them that has not run
  std::shared_ptr<HostCalls> self;           // while calls are queued
  std::optional<CollectiveFailure> failure;  // the first
  uint64_t begun = 0, done = 0;
  bool running = false;  // a call uses the group
  bool closed = false;
};

class StagedBackend final : public CollectiveBackend {
 public:
  StagedBackend(Device& device, std::unique_ptr<Collectives> host)
      : device_(device), host_(std::move(host)), calls_(std::make_shared<HostCalls>(*host_)) {}

  // The streams of a failed device are not synchronized, so a call may still be running.
  ~StagedBackend() override { calls_->close(); }

  void queue(const CollectiveCall& call, Stream& stream) override {
    const CollectiveExtent extent = extent_of(call, host_->rank(), host_->size());
    const size_t in = extent.input * dtype_size(call.dtype),
                 out = extent.output * dtype_size(call.dtype);
    std::byte* input = reserve(extent.in_place ? std::max(in, out) : aligned(in) + out, stream);
    std::byte* output = extent.in_place ? input : input + aligned(in);
    device_.copy(input, call.input != nullptr ? call.input : call.output, in, stream);
    HostCalls::Call both{call, call};
    both.on_host.input = input;
    both.on_host.output = output;
    // The numbers of rows are in device memory.
    both.on_host.sent_rows = both.on_host.received_rows = nullptr;
    calls_->add(std::move(both));
    device_.call_on_host(stream, HostCalls::run, calls_.get());
    device_.copy(call.output, output, out, stream);
  }

  std::optional<CollectiveFailure> failure() override {
    const std::lock_guard lock(calls_->mutex);
    return calls_->failure;
  }

  DeviceProgress progress() override {
    const std::lock_guard lock(calls_->mutex);
    return {calls_->begun, calls_->done};
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
  std::shared_ptr<HostCalls> calls_;
};

}  // namespace

std::unique_ptr<CollectiveBackend> make_staged_backend(Device& device,
                                                       std::unique_ptr<Collectives> host) {
  return std::make_unique<StagedBackend>(device, std::move(host));
}

}  // namespace dltrain
