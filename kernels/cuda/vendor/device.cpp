#include "cuda/vendor/device.h"

#include <cstdlib>
#include <cstring>

#include <cudnn_graph.h>
#include <fmt/format.h>
#if defined(DLTRAIN_NCCL)
#include <nccl.h>
#endif

#include "base/error.h"
#include "base/signals.h"
#include "cuda/makers.h"
#include "cuda/vendor/cudnn_descriptor.h"
#include "cuda/vendor/nvml.h"
#include "cuda/vendor/profiler.h"
#include "cuda/vendor/requests.h"

namespace dltrain {
namespace {

constexpr int kMinArchitecture = DLTRAIN_CUDA_LEAST_ARCHITECTURE;  // 75: sm_75

// 13000 -> "13.0"
std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// `driver`: text on the driver after CUDA's version.
std::string versions_with(const std::string& driver) {
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "reading the runtime's version");
  const size_t blas = cublasLtGetVersion(), dnn = cudnnGetVersion();
  return fmt::format("CUDA {}{}, cuBLASLt {}.{}.{}, cuDNN {}.{}.{}", cuda_version(runtime), driver,
                     blas / 10000, blas % 10000 / 100, blas % 100, dnn / 10000, dnn % 10000 / 100,
                     dnn % 100);
}

std::string library_versions() {
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "reading the driver's version");
  return versions_with(fmt::format(" (driver for {})", cuda_version(driver)));
}

// Returns 0 if the driver does not report it.
double attribute(cudaDeviceAttr what, int index) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, what, index) == cudaSuccess ? value : 0;
}

// Dense FLOP per clock of a multiprocessor of data-centre GPUs: of its f32 units, and of its tensor
// cores for bf16 and f16 with f32 sums (NVIDIA's white papers of A100, H100, B200). Other GPUs have
// no entry.
struct PeakRates {
  int architecture;
  double f32, low;
};
constexpr PeakRates kPeakRates[] = {{80, 128, 2048}, {90, 256, 4096}, {100, 256, 8192}};

void add_peaks(DeviceProperties& properties, int architecture, int index) {
  // Both clocks are in kHz; memory transfers twice per clock.
  const double clock = 1e3 * attribute(cudaDevAttrClockRate, index);
  const double memory_clock = 1e3 * attribute(cudaDevAttrMemoryClockRate, index);
  properties.peak_bytes = 2 * memory_clock * attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8;
  for (const PeakRates& rates : kPeakRates) {
    if (rates.architecture != architecture) continue;
    properties.peak_flops_f32 = rates.f32 * clock * properties.processors;
    properties.peak_flops_low = rates.low * clock * properties.processors;
  }
}

// Returns "GPU-" and the GPU's UUID, formatted as by nvidia-smi.
std::string identity_of(const cudaDeviceProp& device) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof device.uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(device.uuid.bytes[i]));
  }
  return text;
}

// cuBLASLt has scales of blocks since CUDA 12.9.
int fp8_block_of(int major) {
  if (CUDART_VERSION < 12090) return 0;
  return major == 9 ? 128 : major > 9 ? 32 : 0;
}

DeviceProperties read_properties(const cudaDeviceProp& device, int index) {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "reading the free memory");
  return {.backend = "cuda",
          .index = index,
          .name = device.name,
          .architecture = fmt::format("sm_{}{}", device.major, device.minor),
          .libraries = library_versions(),
          .total_memory = total,
          .free_memory = free,
          .processors = device.multiProcessorCount,
          .identity = identity_of(device),
          .has_bf16 = device.major >= 8,
          .has_fp8 = 10 * device.major + device.minor >= 89,
          .fp8_block = fp8_block_of(device.major)};
}

// Returns true if the environment makes every launch wait for its end, to locate errors.
bool launches_block() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string_view(value) == "1";
}

class CudaStreamObject final : public Stream {
 public:
  CudaStreamObject() {
    check_cuda(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking), "making a stream");
  }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_), "waiting for the GPU"); }
  void* native() override { return stream_.get(); }

 private:
  StreamHandle stream_;
};

class CudaEventObject final : public Event {
 public:
  void record(Stream& stream) override {
    check_cuda(cudaEventRecord(event_, native_stream(stream)), "recording an event");
  }
  void make_wait(Stream& stream) override {
    check_cuda(cudaStreamWaitEvent(native_stream(stream), event_, 0), "waiting for an event");
  }
  void synchronize() override { check_cuda(cudaEventSynchronize(event_), "waiting for the GPU"); }

 private:
  EventHandle event_ = make_event();
};

class CudaCapturedGraph final : public CapturedGraph {
 public:
  explicit CudaCapturedGraph(cudaGraph_t graph) {
    check_cuda(cudaGraphInstantiate(exec_.out(), graph, 0), "building a CUDA graph");
  }
  void launch(Stream& stream) override {
    check_cuda(cudaGraphLaunch(exec_, native_stream(stream)), "launching a CUDA graph");
  }

 private:
  GraphExecHandle exec_;
};

}  // namespace

std::string cuda_libraries() {
  std::string text = versions_with("");
#if defined(DLTRAIN_NCCL)
  text += fmt::format(", NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
#endif
  return text;
}

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_problem() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return fmt::format("the NVIDIA driver is for CUDA {}, this engine needs CUDA {}",
                       cuda_version(driver), cuda_version(runtime));
  }
  if (code != cudaSuccess) return fmt::format("CUDA finds no GPU: {}", cudaGetErrorString(code));
  return "CUDA finds no GPU";
}

CudaDevice::CudaDevice(int index) : index_(index) {
  const int count = cuda_device_count();
  if (count == 0) fail(ExitCode::device, "cuda:{}: {}", index, cuda_problem());
  if (index < 0 || index >= count) {
    fail(ExitCode::device, "cuda:{} does not exist: this machine has {} GPU{}, cuda:0{}", index,
         count, count == 1 ? "" : "s", count == 1 ? "" : fmt::format(" to cuda:{}", count - 1));
  }
  cudaDeviceProp device{};
  check_cuda(cudaGetDeviceProperties(&device, index), fmt::format("reading cuda:{}", index));
  architecture_ = 10 * device.major + device.minor;
  if (architecture_ < kMinArchitecture) {
    fail(ExitCode::device, "cuda:{} ({}) is an sm_{}{}; this build has code for sm_{} and newer",
         index, device.name, device.major, device.minor, kMinArchitecture);
  }
  // cuDNN's recurrent networks use cuBLAS on several streams, whose results may depend on which
  // buffer is free unless all have one size (cuBLAS, Results Reproducibility). cuBLAS reads this at
  // its start; a user's setting takes precedence.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  const BlockSignals block;  // for the driver's threads
  check_cuda(cudaInitDevice(index, 0, 0), fmt::format("starting cuda:{}", index));
  make_current();
  properties_ = read_properties(device, index);
  add_peaks(properties_, architecture_, index);
  cache_bytes_ = static_cast<size_t>(attribute(cudaDevAttrL2CacheSize, index));
  check_cublas(cublasLtCreate(blas_.out()), "starting cuBLASLt");
}

void CudaDevice::make_current() const {
  thread_local int current = -1;
  if (current == index_) return;
  check_cuda(cudaSetDevice(index_), "choosing the GPU");
  current = index_;
}

cudnnHandle_t CudaDevice::dnn() {
  make_current();
  if (dnn_ == nullptr) check_cudnn(cudnnCreate(dnn_.out()), "starting cuDNN");
  return dnn_;
}

void* CudaDevice::allocate(size_t bytes, Memory kind) {
  make_current();
  void* out = nullptr;
  if (kind == Memory::pinned_host) {
    const cudaError_t code = cudaHostAlloc(&out, bytes, cudaHostAllocPortable);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      fail(ExitCode::memory, "out of pinned host memory: {} MiB needed", bytes >> 20);
    }
    check_cuda(code, "allocating pinned host memory");
    std::memset(out, 0, bytes);
    return out;
  }
  const cudaError_t code = cudaMalloc(&out, bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the error is not sticky: the device stays usable
    out_of_memory(bytes);
  }
  check_cuda(code, "allocating device memory");
  taken_[out] = bytes;
  // Other streams do not wait for the default stream, so the zeroing must end before we return.
  check_cuda(cudaMemset(out, 0, bytes), "zeroing device memory");
  check_cuda(cudaStreamSynchronize(nullptr), "zeroing device memory");
  return out;
}

void CudaDevice::out_of_memory(size_t bytes) const {
  size_t free = 0, total = 0, own = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "reading the free memory");
  for (const auto& [address, taken] : taken_) own += taken;
  // Memory of contexts and libraries, or of other processes.
  const size_t others = total - free > own ? total - free - own : 0;
  constexpr size_t kOfLibraries = size_t{2} << 30;
  fail(
      ExitCode::memory, "out of memory on cuda:{} ({}): {} MiB needed, {} of {} MiB free; {}",
      index_, properties_.name, bytes >> 20, free >> 20, total >> 20,
      others > kOfLibraries
          ? fmt::format("{} MiB are held by other processes (nvidia-smi shows which)", others >> 20)
          : "a smaller training.micro_batch_size or memory.recompute needs less (dltrain plan says "
            "how much)");
}

// Ignores errors: this runs in destructors, after failures that were already reported.
void CudaDevice::free(void* pointer, Memory kind) {
  if (kind == Memory::device) taken_.erase(pointer);
  (void)(kind == Memory::pinned_host ? cudaFreeHost(pointer) : cudaFree(pointer));
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  make_current();
  return std::make_unique<CudaStreamObject>();
}

std::unique_ptr<Event> CudaDevice::make_event() {
  make_current();
  return std::make_unique<CudaEventObject>();
}

void CudaDevice::copy(void* destination, const void* source, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  make_current();
  check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, native_stream(stream)),
             "copying");
}

void CudaDevice::zero(void* destination, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  make_current();
  check_cuda(cudaMemsetAsync(destination, 0, bytes, native_stream(stream)), "zeroing");
}

std::unique_ptr<DeviceProfiler> CudaDevice::make_profiler() {
  make_current();
  return make_cuda_profiler();
}

std::unique_ptr<DeviceSensor> CudaDevice::make_sensor(std::string& why) {
  char bus[32] = {};
  check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, index_), "asking for the GPU's bus address");
  return make_nvml_sensor(bus, why);
}

void CudaDevice::call_on_host(Stream& stream, void (*function)(void*), void* argument) {
  make_current();
  check_cuda(cudaLaunchHostFunc(native_stream(stream), function, argument),
             "queueing a call of the host");
}

std::unique_ptr<CapturedGraph> CudaDevice::capture(Stream& stream,
                                                   const std::function<void()>& body) {
  if (launches_block()) return nullptr;
  make_current();
  const cudaStream_t native = native_stream(stream);
  GraphHandle graph;
  try {
    // Thread-local, so that the loader's thread may allocate and copy meanwhile.
    check_cuda(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal),
               "beginning a capture");
    try {
      body();
    } catch (...) {
      (void)cudaStreamEndCapture(native, graph.out());
      throw;
    }
    check_cuda(cudaStreamEndCapture(native, graph.out()), "ending a capture");
    return std::make_unique<CudaCapturedGraph>(graph.get());
  } catch (const Error& error) {
    // Nothing of the body has run. Errors of the body that are no matter of the capture occur again
    // when the caller runs it.
    (void)cudaGetLastError();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(native, &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone) {
      throw;  // no call on this stream would be executed
    }
    const std::string why = error.what();
    notices().add(why, "a part of the step cannot be captured and runs call by call: " + why);
    return nullptr;
  }
}

CudaDevice& cuda_device(const KernelRequest& request) {
  auto* device = dynamic_cast<CudaDevice*>(&request.device);
  check_internal(device != nullptr, "{}: not a CUDA device", request.op);
  return *device;
}

}  // namespace dltrain
