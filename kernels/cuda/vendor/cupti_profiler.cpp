// Times kernels and copies by CUPTI's activity records. libcupti is opened when a profile needs it;
// building needs only its header.
//
// A call's tag is pushed as an external correlation: CUPTI then writes a record for each CUDA
// function called meanwhile, with the tag and the function's correlation id, which is also in the
// records of the kernels that it launched.
#include <cuda_runtime_api.h>

#include "cuda/vendor/profiler.h"

#if CUDART_VERSION >= 13000 && __has_include(<cupti.h>)

#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include "base/error.h"
#include "cuda/vendor/check.h"

namespace dltrain {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20, kBufferAlignment = 8;
constexpr auto kTags = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

void* open_cupti() {
  const std::string name = fmt::format("libcupti.so.{}", CUDART_VERSION / 1000);
  void* library = nullptr;
  for (const char* folder : {"", "/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"}) {
    if (library == nullptr) library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

struct CuptiProfilerLibrary {
  OpenedLibrary library{open_cupti()};
  DLTRAIN_LIBRARY_FUNCTION(register_callbacks, cuptiActivityRegisterCallbacks);
  DLTRAIN_LIBRARY_FUNCTION(enable, cuptiActivityEnable);
  DLTRAIN_LIBRARY_FUNCTION(disable, cuptiActivityDisable);
  DLTRAIN_LIBRARY_FUNCTION(flush, cuptiActivityFlushAll);
  DLTRAIN_LIBRARY_FUNCTION(next_record, cuptiActivityGetNextRecord);
  DLTRAIN_LIBRARY_FUNCTION(push, cuptiActivityPushExternalCorrelationId);
  DLTRAIN_LIBRARY_FUNCTION(pop, cuptiActivityPopExternalCorrelationId);
  DLTRAIN_LIBRARY_FUNCTION(timestamp, cuptiGetTimestamp);
  DLTRAIN_LIBRARY_FUNCTION(result_string, cuptiGetResultString);

  std::string text(CUptiResult code) const {
    const char* text = nullptr;
    result_string(code, &text);
    return text == nullptr ? "unknown error" : text;
  }
};

// Returns a demangled name such as "softmax_rows(float const*, int)".
std::string readable(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on the device";
    default:
      return "copy";
  }
}

// Collects the records that CUPTI returns on any of its threads.
class Records {
 public:
  explicit Records(const CuptiProfilerLibrary& cupti) : cupti_(cupti) {}

  void read(uint8_t* buffer, size_t bytes) {
    const std::lock_guard lock(mutex_);
    CUpti_Activity* record = nullptr;
    while (cupti_.next_record(buffer, bytes, &record) == CUPTI_SUCCESS) add(*record);
  }

  std::vector<DeviceActivity> take(int64_t clock_offset) {
    const std::lock_guard lock(mutex_);
    std::vector<DeviceActivity> out;
    for (Seen& seen : seen_) {
      const auto tag = tags_.find(seen.correlation);
      if (tag != tags_.end()) seen.activity.tag = tag->second;
      seen.activity.begin += clock_offset;
      seen.activity.end += clock_offset;
      out.push_back(std::move(seen.activity));
    }
    seen_.clear();
    tags_.clear();
    return out;
  }

 private:
  struct Seen {
    DeviceActivity activity;
    uint32_t correlation = 0;
  };

  template <typename Record>
  void add_work(const Record& record, DeviceActivity::Kind kind, std::string name, uint64_t bytes) {
    seen_.push_back({{.kind = kind,
                      .name = std::move(name),
                      .begin = static_cast<int64_t>(record.start),
                      .end = static_cast<int64_t>(record.end),
                      .bytes = bytes,
                      .stream = record.streamId},
                     record.correlationId});
  }

  void add(const CUpti_Activity& record) {
    using Kind = DeviceActivity::Kind;
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
        return add_work(kernel, Kind::kernel, readable(kernel.name), 0);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
        return add_work(copy, Kind::copy, copy_name(copy.copyKind), copy.bytes);
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& zero = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
        return add_work(zero, Kind::zero, "zero", zero.bytes);
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& joined = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
        if (joined.externalKind == kTags) {
          tags_[joined.correlationId] = static_cast<int64_t>(joined.externalId);
        }
        return;
      }
      default:
        return;
    }
  }

  const CuptiProfilerLibrary& cupti_;
  std::mutex mutex_;
  std::vector<Seen> seen_;
  std::unordered_map<uint32_t, int64_t> tags_;
};

Records* receiver = nullptr;  // CUPTI's callbacks have no user argument

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (receiver != nullptr && valid > 0) receiver->read(buffer, valid);
  std::free(buffer);
}

class CuptiProfiler final : public DeviceProfiler {
 public:
  CuptiProfiler() : records_(cupti_) {}
  ~CuptiProfiler() override {
    if (started_) stop();
    if (receiver == &records_) receiver = nullptr;
  }

  // Returns false if CUPTI cannot be used, with the reason in `why`.
  bool start(std::string& why) {
    if (!cupti_.library.complete) {
      why = fmt::format("CUPTI (libcupti.so.{}) is not installed", CUDART_VERSION / 1000);
      return false;
    }
    receiver = &records_;
    CUptiResult code = cupti_.register_callbacks(give_buffer, take_buffer);
    started_ = code == CUPTI_SUCCESS;
    for (CUpti_ActivityKind kind : kKinds) {
      if (code == CUPTI_SUCCESS) code = cupti_.enable(kind);
    }
    uint64_t device_time = 0;
    const int64_t before = profiler_clock();
    if (code == CUPTI_SUCCESS) code = cupti_.timestamp(&device_time);
    clock_offset_ = (before + profiler_clock()) / 2 - static_cast<int64_t>(device_time);
    if (code == CUPTI_SUCCESS) return true;
    why = fmt::format("CUPTI does not start: {}", cupti_.text(code));
    return false;
  }

  void begin(int64_t tag, const char* label, Stream&) override {
    nvtxRangePushA(label);
    check(cupti_.push(kTags, static_cast<uint64_t>(tag)), "tagging a call");
  }
  void end(int64_t, Stream&) override {
    uint64_t last = 0;
    check(cupti_.pop(kTags, &last), "tagging a call");
    nvtxRangePop();
  }

  std::vector<DeviceActivity> collect() override {
    check_cuda(cudaDeviceSynchronize(), "waiting for the GPU");
    check(cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "collecting activities");
    return records_.take(clock_offset_);
  }

  std::string method() const override { return "CUPTI, which times every kernel on the device"; }

 private:
  void check(CUptiResult code, const char* what) const {
    if (code == CUPTI_SUCCESS) return;
    fail(ExitCode::device, "CUPTI, {}: {}", what, cupti_.text(code));
  }
  void stop() {
    for (CUpti_ActivityKind kind : kKinds) (void)cupti_.disable(kind);
    (void)cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }

  CuptiProfilerLibrary cupti_;
  Records records_;
  bool started_ = false;
  int64_t clock_offset_ = 0;
};

}  // namespace

std::unique_ptr<DeviceProfiler> make_cupti_profiler(std::string& why) {
  auto profiler = std::make_unique<CuptiProfiler>();
  if (!profiler->start(why)) return nullptr;
  return profiler;
}

}  // namespace dltrain

#else

namespace dltrain {

std::unique_ptr<DeviceProfiler> make_cupti_profiler(std::string& why) {
  why = "this program was built without CUPTI's header of CUDA 13";
  return nullptr;
}

}  // namespace dltrain

#endif
