#include "comm/staged.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
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

class StagedCarrier final : public Carrier {
 public:
  StagedCarrier(Device& device, std::unique_ptr<Collectives> host)
      : device_(device), host_(std::move(host)) {}

  std::string name() const override { return "host memory and Gloo"; }

  void queue(const CollectiveCall& call, Stream& stream) override {
    const Extent extent = extent_of(call, host_->rank(), host_->size());
    std::byte* input = reserve(extent, stream);
    std::byte* output = extent.in_place ? input : input + aligned(extent.input);
    Job& job = free_job();
    job.call = job.staged = call;
    job.staged.input = input;
    job.staged.output = output;
    device_.copy(input, call.input != nullptr ? call.input : call.output, extent.input, stream);
    device_.call_on_host(
        stream, [](void* of) { static_cast<Job*>(of)->carrier->run(*static_cast<Job*>(of)); },
        &job);
    device_.copy(call.output, output, extent.output, stream);
  }

  std::optional<CarrierFailure> failure() override {
    if (!failed_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void abandon() override { host_->abandon(); }

 private:
  struct Job {
    StagedCarrier* carrier = nullptr;
    CollectiveCall call = {}, staged = {};  // in the device's memory, and in the buffer
  };

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

  // As many as are ever under way.
  Job& free_job() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      jobs_.push_back({.carrier = this});
      free_.reserve(jobs_.size());
      return jobs_.back();
    }
    Job& job = *free_.back();
    free_.pop_back();
    return job;
  }

  // Called by the stream, on a thread of the device's.
  void run(Job& job) {
    try {
      if (!failed_) host_->wait(issue(job.staged), stream_);
    } catch (const std::exception& e) {
      const std::lock_guard lock(mutex_);
      failure_ = {job.call, e.what()};
      failed_ = true;
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(&job);
  }

  Collectives::Ticket issue(const CollectiveCall& c) {
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        return host_->all_reduce(c.output, c.count, c.dtype, c.op, stream_);
      case CollectiveKind::reduce_scatter:
        return host_->reduce_scatter(c.input, c.output, c.count, c.dtype, c.op, stream_);
      case CollectiveKind::all_gather:
        return host_->all_gather(c.input, c.output, c.count, c.dtype, stream_);
      case CollectiveKind::broadcast:
        return host_->broadcast(c.output, c.count, c.dtype, c.peer, stream_);
      case CollectiveKind::all_to_all:
        return host_->all_to_all(c.input, c.output, c.count, c.dtype, stream_);
      case CollectiveKind::send:
        return host_->send(c.input, c.count, c.dtype, c.peer, stream_);
      case CollectiveKind::receive:
        return host_->receive(c.output, c.count, c.dtype, c.peer, stream_);
      case CollectiveKind::barrier:
        break;
    }
    fail(ExitCode::internal, "internal error: {} is not staged", collective_name(c.kind));
  }

  Device& device_;
  std::unique_ptr<Collectives> host_;
  HostStream stream_;
  Buffer buffer_;
  std::mutex mutex_;  // of what follows
  std::deque<Job> jobs_;
  std::vector<Job*> free_;
  CarrierFailure failure_;
  std::atomic<bool> failed_ = false;
};

}  // namespace

std::unique_ptr<Carrier> make_staged_carrier(Device& device, std::unique_ptr<Collectives> host) {
  return std::make_unique<StagedCarrier>(device, std::move(host));
}

}  // namespace dltrain
