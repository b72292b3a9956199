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

// The bytes that an operation reads and writes; in place both are the same memory.
struct Extent {
  size_t input = 0, output = 0;
  bool in_place = false;
};

Extent extent_of(const CollectiveCall& call, int rank, int size) {
  const size_t part = call.count * dtype_size(call.dtype), all = part * static_cast<size_t>(size);
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return {part, part, true};
    case CollectiveKind::reduce_scatter:
      return {all, part, false};
    case CollectiveKind::all_gather:
      return {part, all, false};
    case CollectiveKind::broadcast:
      return call.peer == rank ? Extent{part, 0, true} : Extent{0, part, true};
    case CollectiveKind::all_to_all:
      return {all, all, false};
    case CollectiveKind::send:
      return {part, 0, true};
    case CollectiveKind::receive:
      return {0, part, true};
    case CollectiveKind::barrier:
      break;
  }
  return {};
}

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What the stream's calls on the host need. It outlives the carrier where a device has failed: then
// nobody knows whether the driver still makes those that are queued.
struct Calls {
  struct Job {
    Calls* calls = nullptr;
    CollectiveCall call = {}, staged = {};  // in the device's memory, and in the buffer
  };

  explicit Calls(Collectives& group) : host(&group) {}

  // As many as are ever under way.
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

  // Called by the stream, on a thread of the device's.
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
        host->wait(issue(job.staged), stream);
      } catch (const std::exception& e) {
        reason = e.what();
      }
    }
    lock.lock();
    // A call that fails stays the one that the device is in: the watch says what kept it.
    if (reason) failure = {job.call, *reason};
    done += works && !reason ? 1 : 0;
    --under_way;
    running = false;
    free.push_back(&job);
    ended.notify_all();
  }

  Collectives::Ticket issue(const CollectiveCall& c) {
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        return host->all_reduce(c.output, c.count, c.dtype, c.op, stream);
      case CollectiveKind::reduce_scatter:
        return host->reduce_scatter(c.input, c.output, c.count, c.dtype, c.op, stream);
      case CollectiveKind::all_gather:
        return host->all_gather(c.input, c.output, c.count, c.dtype, stream);
      case CollectiveKind::broadcast:
        return host->broadcast(c.output, c.count, c.dtype, c.peer, stream);
      case CollectiveKind::all_to_all:
        return host->all_to_all(c.input, c.output, c.count, c.dtype, stream);
      case CollectiveKind::send:
        return host->send(c.input, c.count, c.dtype, c.peer, stream);
      case CollectiveKind::receive:
        return host->receive(c.output, c.count, c.dtype, c.peer, stream);
      case CollectiveKind::barrier:
        break;
    }
    fail(ExitCode::internal, "internal error: {} is not staged", collective_name(c.kind));
  }

  // No call is made any more, and none touches the group or the buffer. True: none is to come.
  bool close() {
    std::unique_lock lock(mutex);
    closed = true;
    if (running) host->abandon();
    ended.wait(lock, [this] { return !running; });
    return under_way == 0;
  }

  Collectives* host;
  HostStream stream;
  std::mutex mutex;  // of what follows
  std::condition_variable ended;
  std::deque<Job> jobs;
  std::vector<Job*> free;
  std::optional<CarrierFailure> failure;  // the first
  uint64_t begun = 0, done = 0;
  size_t under_way = 0;  // queued and not over
  bool running = false;  // one is with the group
  bool closed = false;
};

// For calls that may still come: to the end of the process, which is near.
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

  // Streams of a device that has failed are not waited for, and yet a call may be under way.
  ~StagedCarrier() override {
    if (!calls_->close()) keep(std::move(calls_));
  }

  std::string name() const override { return "host memory"; }

  void queue(const CollectiveCall& call, Stream& stream) override {
    const Extent extent = extent_of(call, host_->rank(), host_->size());
    std::byte* input = reserve(extent, stream);
    std::byte* output = extent.in_place ? input : input + aligned(extent.input);
    device_.copy(input, call.input != nullptr ? call.input : call.output, extent.input, stream);
    Calls::Job& job = calls_->free_job();
    job.call = job.staged = call;
    job.staged.input = input;
    job.staged.output = output;
    device_.call_on_host(stream, Calls::run, &job);
    device_.copy(call.output, output, extent.output, stream);
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
  // One buffer is enough: the stream does one operation after the other.
  std::byte* reserve(const Extent& extent, Stream& stream) {
    const size_t bytes = extent.in_place ? std::max(extent.input, extent.output)
                                         : aligned(extent.input) + extent.output;
    if (bytes > buffer_.bytes()) {
      stream.synchronize();  // until nothing is under way in the old one
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
