// The interface of a backend to the rest of the program: memory, ordered queues (streams), events,
// copies and capture. The CPU engine is linked in; the CUDA engine is a plug-in (device/engine.h).
//
// Threads: a Device and everything made from it is used by one thread at a time, except that copies
// on a second Stream may be issued by the loader's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/notices.h"
#include "device/profiler.h"
#include "device/sensor.h"

namespace dltrain {

struct DeviceProperties {
  std::string backend;        // "cpu", "cuda", "reference"
  int index = 0;              // cuda:index
  std::string name;           // "AMD EPYC …", "NVIDIA H200"
  std::string architecture;   // "avx512_bf16", "sm_90"
  std::string libraries;      // "oneDNN 2.6.3", "CUDA 13.0, cuBLAS 13.0, cuDNN 9.19"
  uint64_t total_memory = 0;  // bytes
  uint64_t free_memory = 0;   // bytes, when asked
  int processors = 0;         // cores, or streaming multiprocessors
  // Peak rates by the device's own data; 0: unknown. FLOP/s in f32 and in bf16 and f16 with
  // sums in f32, byte/s of its memory.
  double peak_flops_f32 = 0, peak_flops_low = 0, peak_bytes = 0;
  std::string identity = {};  // of this very GPU ("GPU-5f…"), in every process; empty on the CPU
  bool has_bf16 = true;
  bool has_fp8 = false;  // products of FP8 with a scale for each operand
  int fp8_block = 0;     // and those with one for each block of so many codes; 0: none
  // The device's memory is that of the host, and work is complete before a call returns.
  bool on_host = false;
};

// An ordered queue of work. On the CPU work is complete before the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  // Blocks the host until everything queued so far is done. Never called inside a step.
  virtual void synchronize() = 0;
  // cudaStream_t on CUDA, nullptr on the CPU.
  virtual void* native() { return nullptr; }
};

// For operations on host memory, which need no stream.
class HostStream final : public Stream {
 public:
  void synchronize() override {}
};

// A mark in a stream that another stream or the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  virtual void make_wait(Stream& stream) = 0;  // later work on `stream` waits for the mark
  virtual void synchronize() = 0;              // the host waits
};

// A sequence of calls recorded once and replayed as one launch (a CUDA graph).
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void launch(Stream& stream) = 0;
};

enum class Memory { device, pinned_host };

// Kernels choose among algorithms that only differ in speed and in the order of their sums: by the
// vendor's estimate (off), or by timing a few or many of them when a program is made.
enum class Autotune : uint8_t { off, quick, full };

// Makes one choice for all ranks of a run: returns the result of `make` on the rank that asks for
// the key first, on every rank. The others wait for it and do not call `make`.
using Agreement =
    std::function<std::string(const std::string& key, const std::function<std::string()>& make)>;

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;
  Notices& notices() { return notices_; }

  // Zeroed memory, aligned to at least 256 bytes (2 MiB and huge pages on the CPU for large
  // blocks). Throws Error(memory) with needed and free bytes. Release with free() on the same
  // Device.
  virtual void* allocate(size_t bytes, Memory kind) = 0;
  virtual void free(void* pointer, Memory kind) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  // Copies between any two of device and host memory, in stream order; asynchronously for pinned
  // host memory.
  virtual void copy(void* destination, const void* source, size_t bytes, Stream& stream) = 0;
  virtual void zero(void* destination, size_t bytes, Stream& stream) = 0;
  // Calls function(argument) on the host after the work queued so far; later work on the stream
  // waits for its end. It may run on another thread, must not use the device and must not throw.
  virtual void call_on_host(Stream& stream, void (*function)(void*), void* argument) {
    stream.synchronize();
    function(argument);
  }

  // Applies to the programs that are made after the call. Several ranks pass `agree`. Devices that
  // have nothing to choose do nothing.
  virtual void set_autotune(Autotune, Agreement /*agree*/ = {}) {}

  // nullptr if work is complete when a call returns. One at a time.
  virtual std::unique_ptr<DeviceProfiler> make_profiler() { return nullptr; }

  // nullptr if the device reports no state; `why` is then the reason in one line, or empty if no
  // state is expected (CPU).
  virtual std::unique_ptr<DeviceSensor> make_sensor(std::string& why) {
    why.clear();
    return nullptr;
  }

  // Records what `body` queues on `stream`, without executing it; nullptr where the backend has
  // nothing to gain (CPU), or if it fails, which is then a notice: the caller runs the body each
  // time.
  virtual std::unique_ptr<CapturedGraph> capture(Stream& stream,
                                                 const std::function<void()>& body) = 0;

 private:
  Notices notices_;
};

// Memory of one device; freed with the object. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes, Memory kind = Memory::device)
      : device_(&device),
        data_(bytes ? device.allocate(bytes, kind) : nullptr),
        bytes_(bytes),
        kind_(kind) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_) device_->free(data_, kind_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Memory kind_ = Memory::device;
};

}  // namespace dltrain
