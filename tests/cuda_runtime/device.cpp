// The device of the CUDA engine over the fake runtime: what it refuses and how, and the order of
// what streams do.
#include "device/device.h"

#include <cstdlib>
#include <cstring>

#include "catch.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;
using fake_cuda::Gpu;

namespace {

std::string refused(int index, ExitCode code = ExitCode::device) {
  return refusal_of([&] { fake_cuda_engine().open(index); }, code);
}

TEST_CASE("a GPU and its libraries are described") {
  fake_cuda::reset();
  const auto device = fake_cuda_engine().open(0);
  const DeviceProperties& p = device->properties();
  CHECK(p.backend == "cuda");
  CHECK(p.name == "Fake H200");
  CHECK(p.architecture == "sm_90");
  CHECK(p.libraries == "CUDA 13.0 (driver for 13.0), cuBLASLt 13.0.2, cuDNN 9.19.0");
  CHECK(p.total_memory == size_t{141} << 30);
  CHECK(p.processors == 132);
}

TEST_CASE("machines without a usable GPU are told why") {
  fake_cuda::reset();
  fake_cuda::set_devices(0, cudaErrorNoDevice);
  CHECK(fake_cuda_engine().device_count() == 0);
  CHECK_THAT(fake_cuda_engine().problem(), Contains("CUDA finds no GPU"));
  CHECK_THAT(refused(0), Contains("cuda:0") && Contains("CUDA finds no GPU"));

  fake_cuda::set_devices(0, cudaErrorInsufficientDriver, 12040);
  CHECK(fake_cuda_engine().device_count() == 0);
  CHECK(fake_cuda_engine().problem() ==
        "the NVIDIA driver is for CUDA 12.4, this engine needs CUDA 13.0");
  fake_cuda::reset();
}

TEST_CASE("a GPU that is not there is named beside those that are") {
  fake_cuda::reset();
  CHECK_THAT(refused(7), Contains("cuda:7 does not exist: this machine has 1 GPU, cuda:0"));
  fake_cuda::set_devices(4);
  CHECK_THAT(refused(7), Contains("this machine has 4 GPUs, cuda:0 to cuda:3"));
  CHECK_THAT(refused(-1), Contains("does not exist"));
}

TEST_CASE("a GPU older than the code is refused before anything runs") {
  fake_cuda::reset();
  fake_cuda::set_gpu({.name = "Tesla V100", .major = 7, .minor = 0});
  CHECK(refused(0) == "cuda:0 (Tesla V100) is an sm_70; this build has code for sm_75 and newer");
  fake_cuda::set_gpu({.name = "Tesla T4", .major = 7, .minor = 5});
  CHECK_FALSE(fake_cuda_engine().open(0)->properties().has_bf16);
}

TEST_CASE("a GPU that another process has for itself is said to be taken") {
  fake_cuda::reset();
  fake_cuda::fail_at("cudaInitDevice", 0, cudaErrorDevicesUnavailable);
  CHECK_THAT(refused(0), Contains("starting cuda:0") && Contains("another process has the GPU"));
}

TEST_CASE("memory that does not suffice is told with what is needed, free and held by others") {
  fake_cuda::reset();
  const size_t gib = size_t{1} << 30;
  fake_cuda::set_gpu({.total = 80 * gib, .held_by_others = 79 * gib});
  auto device = fake_cuda_engine().open(0);
  const auto ask = [&] {
    return refusal_of([&] { (void)Buffer(*device, 2 * gib); }, ExitCode::memory);
  };
  CHECK(ask() ==
        "out of memory on cuda:0 (Fake H200): 2048 MiB needed, 1024 of 81920 MiB free; 80896 MiB "
        "are held by other processes (nvidia-smi shows which)");
  // Less than a few libraries take: it is our own.
  fake_cuda::set_gpu({.total = gib, .held_by_others = gib / 4});
  CHECK_THAT(ask(), Contains("2048 MiB needed, 768 of 1024 MiB free") &&
                        Contains("training.micro_batch_size"));
  // The device stays usable.
  const Buffer small(*device, 4096);
  for (size_t i = 0; i < small.bytes(); ++i) CHECK(small.data()[i] == std::byte{0});
  fake_cuda::reset();
  fake_cuda::fail_at("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  CHECK_THAT(refusal_of([&] { (void)Buffer(*device, gib, Memory::pinned_host); }, ExitCode::memory),
             Contains("out of pinned host memory: 1024 MiB needed"));
}

TEST_CASE("events order streams and the host") {
  fake_cuda::reset(fake_cuda::Order::late);
  const auto device = fake_cuda_engine().open(0);
  const auto first = device->make_stream(), second = device->make_stream();
  const auto event = device->make_event();
  const Buffer host(*device, 8, Memory::pinned_host), a(*device, 8), b(*device, 8);
  const auto fill = [&](const char* text) { std::memcpy(host.data(), text, 8); };
  const auto text = [&](const Buffer& buffer) {
    return std::string(reinterpret_cast<const char*>(buffer.data()), 7);
  };
  fill("earlier");
  device->copy(a.data(), host.data(), 8, *first);
  event->record(*first);
  device->copy(b.data(), a.data(), 8, *second);  // forgets to wait
  second->synchronize();
  CHECK(text(b) != "earlier");
  event->make_wait(*second);
  device->copy(b.data(), a.data(), 8, *second);
  second->synchronize();
  CHECK(text(b) == "earlier");
  fill("later  ");
  device->copy(a.data(), host.data(), 8, *first);
  event->record(*first);
  CHECK(text(a) == "earlier");
  event->synchronize();
  CHECK(text(a) == "later  ");
}

TEST_CASE("captured work is replayed, and not where launches are to block") {
  fake_cuda::reset(fake_cuda::Order::eager);
  const auto device = fake_cuda_engine().open(0);
  const auto stream = device->make_stream();
  const Buffer x(*device, 4), y(*device, 4);
  const auto copy = [&] { device->copy(y.data(), x.data(), 4, *stream); };
  const auto graph = device->capture(*stream, copy);
  REQUIRE(graph != nullptr);
  std::memcpy(x.data(), "one", 4);
  CHECK(y.data()[0] == std::byte{0});
  graph->launch(*stream);
  CHECK(std::memcmp(y.data(), "one", 4) == 0);

  ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  CHECK(device->capture(*stream, copy) == nullptr);
  ::unsetenv("CUDA_LAUNCH_BLOCKING");

  // A call that a capture refuses ends it; the stream remains usable.
  char pageable[4];
  std::vector<std::string> notices;
  device->notices().report_to([&](const std::string& text) { notices.push_back(text); });
  for (int again = 0; again < 2; ++again) {
    CHECK(device->capture(*stream, [&] { device->copy(y.data(), pageable, 4, *stream); }) ==
          nullptr);
  }
  REQUIRE(notices.size() == 1);
  CHECK_THAT(notices[0], Contains("cannot be captured") && Contains("CUDA: copying: an error"));
  std::memcpy(x.data(), "two", 4);
  copy();
  stream->synchronize();
  CHECK(std::memcmp(y.data(), "two", 4) == 0);
}

}  // namespace
