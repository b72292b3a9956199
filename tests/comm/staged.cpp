// A backend through host memory whose device fails: nobody waits for the streams of a lost context,
// and yet one of their calls may be with the group.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "catch.h"
#include "comm/device_group.h"

using namespace dltrain;

namespace {

// A GPU whose calls of the host come from a thread of the driver, whenever that is let go on.
class LostDevice final : public Device {
 public:
  std::function<void()> call;  // that was queued last

  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t bytes, Memory) override { return ::operator new(bytes); }
  void free(void* pointer, Memory) override { ::operator delete(pointer); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Event> make_event() override { return nullptr; }
  void copy(void* to, const void* from, size_t bytes, Stream&) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void zero(void* to, size_t bytes, Stream&) override { std::memset(to, 0, bytes); }
  void call_on_host(Stream&, void (*function)(void*), void* argument) override {
    call = [=] { function(argument); };
  }
  std::unique_ptr<CapturedGraph> capture(Stream&, const std::function<void()>&) override {
    return nullptr;
  }

 private:
  DeviceProperties properties_;
};

struct Peer {
  std::mutex mutex;
  std::condition_variable changed;
  bool waiting = false, abandoned = false, alive = true;
};

// A group of two ranks, the other of which never joins.
class LonelyGroup final : public Collectives {
 public:
  explicit LonelyGroup(Peer& peer) : peer_(peer) {}
  ~LonelyGroup() override {
    const std::lock_guard lock(peer_.mutex);
    peer_.alive = false;
  }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void wait(Ticket, Stream&) override {
    std::unique_lock lock(peer_.mutex);
    peer_.waiting = true;
    peer_.changed.notify_all();
    peer_.changed.wait(lock, [&] { return peer_.abandoned; });
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lock.lock();
    CHECK(peer_.alive);
    fail(ExitCode::rank, "given up");
  }
  void barrier() override {}
  void abort() override {
    const std::lock_guard lock(peer_.mutex);
    peer_.abandoned = true;
    peer_.changed.notify_all();
  }

 private:
  Ticket queue(const CollectiveCall&, Stream&) override { return 1; }
  Peer& peer_;
};

CollectiveCall all_reduce_of(std::vector<float>& data) {
  return {.kind = CollectiveKind::all_reduce,
          .dtype = DType::f32,
          .output = data.data(),
          .count = data.size()};
}

TEST_CASE("a carrier ends the call that is under way before it goes, and waits for it") {
  Peer peer;
  LostDevice device;
  std::vector<float> data(100, 1.0f);
  auto backend = make_staged_backend(device, std::make_unique<LonelyGroup>(peer));
  HostStream stream;
  backend->queue(all_reduce_of(data), stream);
  CHECK(backend->progress().begun == 0);
  std::atomic<bool> returned = false;
  std::thread driver([&] {
    device.call();
    returned = true;
  });
  {
    std::unique_lock lock(peer.mutex);
    peer.changed.wait(lock, [&] { return peer.waiting; });
  }
  CHECK(backend->progress().begun == 1);
  CHECK(backend->progress().done == 0);
  backend.reset();
  CHECK_FALSE(peer.alive);
  driver.join();
  CHECK(returned);
}

TEST_CASE("a call that comes after its carrier does nothing") {
  Peer peer;
  LostDevice device;
  std::vector<float> data(100, 1.0f);
  auto backend = make_staged_backend(device, std::make_unique<LonelyGroup>(peer));
  HostStream stream;
  backend->queue(all_reduce_of(data), stream);
  backend.reset();
  device.call();
  CHECK_FALSE(peer.waiting);
}

}  // namespace
