#include "shared/host_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "base/error.h"
#include "base/memory.h"

namespace dltrain {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{4} << 20;

class HostEvent final : public Event {
 public:
  void record(Stream&) override {}
  void make_wait(Stream&) override {}
  void synchronize() override {}
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

// The least that a limit of this process leaves, or all of the machine's memory.
uint64_t free_memory(uint64_t total) {
  for (const MemoryLimit& limit : memory_limits()) {
    total = std::min(total, limit.has - std::min(limit.has, limit.used));
  }
  return total;
}

DeviceProperties host_properties(const char* backend, const char* libraries,
                                 std::string architecture, bool on_host) {
  struct sysinfo info {};
  sysinfo(&info);
  const uint64_t total = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  return {.backend = backend,
          .name = processor_name(),
          .architecture = std::move(architecture),
          .libraries = libraries,
          .total_memory = total,
          .free_memory = free_memory(total),
          .processors = static_cast<int>(std::thread::hardware_concurrency()),
          .on_host = on_host};
}

// The mapping of a block, for munmap: the aligned pointer that was returned may be inside of it.
struct Mapping {
  void* base;
  size_t bytes;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(DeviceProperties properties) : properties_(std::move(properties)) {}

  const DeviceProperties& properties() const override { return properties_; }

  void* allocate(size_t bytes, Memory) override {
    const bool huge = bytes >= kHugeFrom;
    const size_t mapped = huge ? bytes + kHugePage : bytes;
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      const int error = errno;
      fail(ExitCode::memory, "out of memory: {} MiB needed, {} MiB free ({})", bytes >> 20,
           free_memory(properties_.total_memory) >> 20, std::strerror(error));
    }
    void* out = base;
    if (huge) {
      const auto address = reinterpret_cast<uintptr_t>(base);
      out = reinterpret_cast<void*>((address + kHugePage - 1) / kHugePage * kHugePage);
      madvise(out, bytes, MADV_HUGEPAGE);  // advice only: small pages work too
    }
    const std::lock_guard lock(mutex_);
    mappings_[out] = {base, mapped};
    return out;
  }

  void free(void* pointer, Memory) override {
    const std::lock_guard lock(mutex_);
    const auto at = mappings_.find(pointer);
    if (at == mappings_.end()) return;
    munmap(at->second.base, at->second.bytes);
    mappings_.erase(at);
  }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }

  void copy(void* destination, const void* source, size_t bytes, Stream&) override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }
  void zero(void* destination, size_t bytes, Stream&) override {
    if (bytes != 0) std::memset(destination, 0, bytes);
  }

  std::unique_ptr<CapturedGraph> capture(Stream&, const std::function<void()>&) override {
    return nullptr;
  }

 private:
  DeviceProperties properties_;
  std::mutex mutex_;
  std::map<void*, Mapping> mappings_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const char* backend, const char* libraries,
                                         std::string architecture, bool on_host) {
  return std::make_unique<HostDevice>(
      host_properties(backend, libraries, std::move(architecture), on_host));
}

}  // namespace dltrain
