// The CUDA device: memory, streams, events, copies and graph capture.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include <cublasLt.h>
#include <cudnn_graph.h>

#include "cuda/vendor/check.h"
#include "cuda/vendor/plan_cache.h"
#include "device/device.h"

namespace dltrain {

// Number of usable GPUs; 0 when there is none or the driver is too old (cuda_problem says why).
int cuda_device_count();
std::string cuda_problem();

using BlasHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;
using DnnHandle = Handle<cudnnHandle_t, cudnnDestroy>;

// State of the tuned choices (vendor/autotune.h).
struct Tuning {
  Autotune mode = Autotune::off;
  Agreement agree = {};                                 // of several ranks
  std::map<std::string, std::string> made;              // key → choice
  double seconds = 0;                                   // spent on timing
  std::chrono::steady_clock::time_point deadline = {};  // of the choice that is being made
};

// Returns the versions of the libraries that the engine was built with and has loaded; needs no
// driver.
std::string cuda_libraries();

class CudaDevice final : public Device {
 public:
  // Creates the context of cuda:index. Throws Error(device) when it cannot be used.
  explicit CudaDevice(int index);

  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t bytes, Memory kind) override;
  void free(void* pointer, Memory kind) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  void copy(void* destination, const void* source, size_t bytes, Stream& stream) override;
  void zero(void* destination, size_t bytes, Stream& stream) override;
  void call_on_host(Stream& stream, void (*function)(void*), void* argument) override;
  std::unique_ptr<CapturedGraph> capture(Stream& stream,
                                         const std::function<void()>& body) override;

  std::unique_ptr<DeviceProfiler> make_profiler() override;
  std::unique_ptr<DeviceSensor> make_sensor(std::string& why) override;

  int architecture() const { return architecture_; }  // 90: sm_90
  void set_autotune(Autotune mode, Agreement agree = {}) override {
    tuning_.mode = mode;
    tuning_.agree = std::move(agree);
  }
  Tuning& tuning() { return tuning_; }
  PlanCache& plans() { return plans_; }
  size_t cache_bytes() const { return cache_bytes_; }  // of the L2 cache
  cublasLtHandle_t blas() const { return blas_; }
  // Created at the first call, so that models without convolutions do not load cuDNN's libraries.
  cudnnHandle_t dnn();

  // CUDA's current device is per thread; must precede calls that depend on it.
  void make_current() const;

 private:
  [[noreturn]] void out_of_memory(size_t bytes) const;

  int index_, architecture_ = 0;
  size_t cache_bytes_ = 0;
  Tuning tuning_;
  PlanCache plans_;
  DeviceProperties properties_;
  std::map<void*, size_t> taken_;  // allocated device memory
  BlasHandle blas_;
  DnnHandle dnn_;
};

// The native stream, for vendor calls.
inline cudaStream_t native_stream(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

}  // namespace dltrain
