#include "cuda_runtime/fake_runtime.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "cuda/launch.h"
#include "cuda_emulation/queue.h"

using Work = std::function<void()>;

// CUDA's opaque types.
struct CUstream_st {
  std::deque<Work> queue;
  uint64_t queued = 0, done = 0;   // pieces of work, ever
  std::atomic<uint64_t> over = 0;  // done in fact; asked for without the mutex
  std::vector<Work>* capture = nullptr;
  bool invalid = false;  // a call that a capture does not allow
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t mark = 0;
  float time = 0;  // milliseconds, where streams are eager
};
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace dltrain::fake_cuda {
namespace {

struct Failure {
  int64_t after;
  cudaError_t code;
};

struct State {
  std::recursive_mutex mutex;  // the loader's threads allocate too
  Order order = Order::late;
  Counts counts;
  Product product;  // the last one
  Gpu gpu;
  int devices = 1, driver = 13000;
  cudaError_t devices_code = cudaSuccess;
  std::map<std::string, Failure> failures;
  cudaError_t sticky = cudaSuccess;            // a context that is lost stays so
  std::map<uintptr_t, size_t> device, pinned;  // address → bytes
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;
  float clock = 0;  // milliseconds that products, plans and launches have taken
  std::vector<float> algorithms{1};
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;
  int64_t stalling_graph = -1;
};

State& state() {
  static State instance;
  return instance;
}

using Guard = std::lock_guard<std::recursive_mutex>;

cudaError_t failing(const char* function) {
  if (state().sticky != cudaSuccess) return state().sticky;
  auto& failures = state().failures;
  const auto at = failures.find(function);
  if (at == failures.end()) return cudaSuccess;
  if (at->second.after-- > 0) return cudaSuccess;
  const cudaError_t code = at->second.code;
  failures.erase(at);
  if (code == cudaErrorECCUncorrectable || code == cudaErrorIllegalAddress) state().sticky = code;
  return code;
}

bool within(const std::map<uintptr_t, size_t>& blocks, const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto at = blocks.upper_bound(address);
  if (at == blocks.begin()) return false;
  --at;
  return address < at->first + at->second;
}
bool is_pageable(const void* pointer) {
  return !within(state().device, pointer) && !within(state().pinned, pointer);
}

// Does the work of a stream up to a mark. Work may itself wait for another stream.
void run_until(CUstream_st* stream, uint64_t mark) {
  if (stream == nullptr || state().streams.count(stream) == 0) return;
  while (stream->done < mark && !stream->queue.empty()) {
    const Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    work();
    ++stream->over;
  }
}
void run_all(CUstream_st* stream) {
  run_until(stream, stream == nullptr ? 0 : stream->queued);
}
void run_everything() {
  for (auto& [address, stream] : state().streams) run_all(stream.get());
}

void queue(CUstream_st* stream, Work work) {
  if (stream->capture != nullptr) {
    stream->capture->push_back(std::move(work));
    return;
  }
  stream->queue.push_back(std::move(work));
  ++stream->queued;
  if (state().order == Order::eager) run_all(stream);
}

cudaError_t allocate(void** out, size_t bytes, std::map<uintptr_t, size_t>& blocks) {
  const size_t padded = (bytes + 511) / 512 * 512;
  *out = std::aligned_alloc(512, padded);
  std::memset(*out, 0xff, padded);  // NaN: nobody may rely on zeros
  blocks[reinterpret_cast<uintptr_t>(*out)] = padded;
  ++state().counts.allocations;
  return cudaSuccess;
}

cudaError_t release(void* pointer, std::map<uintptr_t, size_t>& blocks) {
  if (pointer == nullptr) return cudaSuccess;
  ++state().counts.frees;
  run_everything();  // as CUDA does
  if (blocks.erase(reinterpret_cast<uintptr_t>(pointer)) == 0) return cudaErrorInvalidValue;
  std::free(pointer);
  return cudaSuccess;
}

size_t own_bytes() {
  size_t bytes = 0;
  for (const auto& [address, size] : state().device) bytes += size;
  return bytes;
}

}  // namespace

void reset(Order order) {
  const Guard guard(state().mutex);
  run_everything();
  state().order = order;
  state().counts = {};
  state().gpu = {};
  state().devices = 1;
  state().driver = 13000;
  state().devices_code = cudaSuccess;
  state().failures.clear();
  state().sticky = cudaSuccess;
  state().algorithms = {1};
  state().heuristic = CUBLAS_STATUS_SUCCESS;
  state().stalling_graph = -1;
  set_plans({{}});
  set_plan_work({});
  set_rnn_time(1);
  emulation::set_queue([](void* stream, const char* kernel, Work work) {
    const Guard inner(state().mutex);
    ++state().counts.launches;
    auto* on = static_cast<CUstream_st*>(stream);
    cudaError_t code = failing("launch");
    if (on->capture != nullptr && code == cudaSuccess) {
      code = failing("captured launch");
      on->invalid = code != cudaSuccess;
    }
    check_launch(static_cast<int>(code), kernel);
    queue(on, std::move(work));
  });
}

Product last_product() {
  return state().product;
}
Counts counts() {
  const Guard guard(state().mutex);
  return state().counts;
}

size_t pending() {
  const Guard guard(state().mutex);
  size_t count = 0;
  for (const auto& [address, stream] : state().streams) count += stream->queue.size();
  return count;
}

void set_gpu(const Gpu& gpu) {
  state().gpu = gpu;
}

void set_algorithms(std::vector<float> milliseconds) {
  state().algorithms = std::move(milliseconds);
}

void set_heuristic(int status) {
  state().heuristic = static_cast<cublasStatus_t>(status);
}

void run_plan(float milliseconds, cudaStream_t stream, std::function<void()> work) {
  const Guard guard(state().mutex);
  state().clock += milliseconds;
  ++state().counts.convolutions;
  if (work) queue(stream, std::move(work));
}
void run_on(void* stream, float milliseconds, std::function<void()> work) {
  const Guard guard(state().mutex);
  state().clock += milliseconds;
  ++state().counts.launches;
  queue(static_cast<CUstream_st*>(stream), std::move(work));
}
void count_plan() {
  const Guard guard(state().mutex);
  ++state().counts.plans;
}

void set_devices(int count, cudaError_t code, int driver) {
  state().devices = count;
  state().devices_code = code;
  state().driver = driver;
}

void fail_at(const std::string& function, int64_t after, cudaError_t code) {
  const Guard guard(state().mutex);
  state().failures[function] = {after, code};
}

void stall_graph_at(int64_t after) {
  const Guard guard(state().mutex);
  state().stalling_graph = state().counts.graph_launches + after;
}

}  // namespace dltrain::fake_cuda

using namespace dltrain::fake_cuda;

#define DLTRAIN_FAKE()              \
  const Guard guard(state().mutex); \
  if (const cudaError_t failed = failing(__func__); failed != cudaSuccess) return failed

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  DLTRAIN_FAKE();
  *count = state().devices;
  return state().devices_code;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = state().driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  DLTRAIN_FAKE();
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(index + 1);
  std::strncpy(properties->name, state().gpu.name, sizeof properties->name - 1);
  properties->major = state().gpu.major;
  properties->minor = state().gpu.minor;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}
// The attributes of an H200 as its driver reports them.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  DLTRAIN_FAKE();
  *value = attribute == cudaDevAttrClockRate              ? 1'980'000
           : attribute == cudaDevAttrMemoryClockRate      ? 3'201'000
           : attribute == cudaDevAttrGlobalMemoryBusWidth ? 6144
           : attribute == cudaDevAttrL2CacheSize          ? 60 << 20
                                                          : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int bytes, int) {
  DLTRAIN_FAKE();
  std::strncpy(bus, "0000:3b:00.0", static_cast<size_t>(bytes) - 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  DLTRAIN_FAKE();
  ++state().counts.synchronisations;
  run_everything();
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int, unsigned, unsigned) {
  DLTRAIN_FAKE();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorECCUncorrectable ? "uncorrectable ECC error encountered" : "an error";
}
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorECCUncorrectable ? "cudaErrorECCUncorrectable" : "cudaErrorOfATest";
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  DLTRAIN_FAKE();
  *total = state().gpu.total;
  *free = state().gpu.total - state().gpu.held_by_others - own_bytes();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  DLTRAIN_FAKE();
  if (own_bytes() + state().gpu.held_by_others + bytes > state().gpu.total) {
    return cudaErrorMemoryAllocation;
  }
  return allocate(out, bytes, state().device);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  DLTRAIN_FAKE();
  return allocate(out, bytes, state().pinned);
}
cudaError_t cudaFree(void* pointer) {
  const Guard guard(state().mutex);
  return release(pointer, state().device);
}
cudaError_t cudaFreeHost(void* pointer) {
  const Guard guard(state().mutex);
  return release(pointer, state().pinned);
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  DLTRAIN_FAKE();
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  DLTRAIN_FAKE();
  queue(stream, [=] { std::memset(pointer, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  DLTRAIN_FAKE();
  ++state().counts.copies;
  if (!is_pageable(to) && !is_pageable(from)) {
    queue(stream, [=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    stream->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  ++state().counts.pageable_copies;
  run_all(stream);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  DLTRAIN_FAKE();
  ++state().counts.host_calls;
  queue(stream, [=] { function(argument); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  DLTRAIN_FAKE();
  auto stream = std::make_unique<CUstream_st>();
  *out = stream.get();
  state().streams[*out] = std::move(stream);
  ++state().counts.made;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Guard guard(state().mutex);
  run_all(stream);
  state().streams.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  DLTRAIN_FAKE();
  if (stream != nullptr && stream->capture != nullptr) {
    stream->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  ++state().counts.synchronisations;
  run_all(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  DLTRAIN_FAKE();
  if (event->stream == nullptr) return cudaSuccess;
  queue(stream, [source = event->stream, mark = event->mark] { run_until(source, mark); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  DLTRAIN_FAKE();
  *out = new CUevent_st;
  ++state().counts.made;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  DLTRAIN_FAKE();
  *event = {stream, stream->queued, state().clock};
  return cudaSuccess;
}
// Whatever the host waits for meanwhile, as long as nobody records the event.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const bool over = event->stream == nullptr || event->stream->over >= event->mark;
  return over ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  DLTRAIN_FAKE();
  *milliseconds = end->time - begin->time;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  DLTRAIN_FAKE();
  ++state().counts.event_waits;
  run_until(event->stream, event->mark);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  DLTRAIN_FAKE();
  stream->capture = new std::vector<Work>;
  return cudaSuccess;
}
// Whatever it returns, the stream captures no more.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Guard outer(state().mutex);
  std::unique_ptr<std::vector<Work>> work(std::exchange(stream->capture, nullptr));
  if (std::exchange(stream->invalid, false)) return cudaErrorStreamCaptureInvalidated;
  DLTRAIN_FAKE();
  *graph = new CUgraph_st{std::move(*work)};
  ++state().counts.made;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  DLTRAIN_FAKE();
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  DLTRAIN_FAKE();
  const bool stalls = state().counts.graph_launches++ == state().stalling_graph;
  queue(stream, [exec, stalls] {
    while (stalls) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (const Work& work : exec->work) work();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Guard guard(state().mutex);
  run_everything();
  delete exec;
  return cudaSuccess;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&state());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  return 130002;
}
// What the fake reads of a description; an algorithm is its number.
struct FakeDescription {
  int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uintptr_t bias = 0;
  Product product;
};
static int type_of(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<int*>(layout);
}
static FakeDescription& of(cublasLtMatmulDesc_t description) {
  return *reinterpret_cast<FakeDescription*>(description);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t,
                                        cudaDataType_t) {
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(new FakeDescription);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete &of(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) std::memcpy(&of(description).epilogue, value, bytes);
  if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) std::memcpy(&of(description).bias, value, bytes);
  Product& product = of(description).product;
  for (const auto& [attribute, to] : {std::pair<cublasLtMatmulDescAttributes_t, void*>(
                                          CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &product.scales[0]),
                                      {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &product.scales[1]},
                                      {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &product.modes[0]},
                                      {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &product.modes[1]},
                                      {CUBLASLT_MATMUL_DESC_TRANSA, &product.transposed[0]},
                                      {CUBLASLT_MATMUL_DESC_TRANSB, &product.transposed[1]}}) {
    if (name == attribute) std::memcpy(to, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t,
                                          uint64_t, int64_t) {
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(new int(type));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<int*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(&state());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* out) {
  if (algorithm->data[0] >= state().algorithms.size()) return CUBLAS_STATUS_NOT_SUPPORTED;
  out->workspaceSize = 1024 * algorithm->data[0];
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t out[], int* found) {
  const bool with_bias = (of(description).epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (with_bias && of(description).bias == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (state().heuristic != CUBLAS_STATUS_SUCCESS) return state().heuristic;
  const int known = static_cast<int>(state().algorithms.size());
  *found = wanted < known ? wanted : known;
  for (int i = 0; i < *found; ++i) {
    out[i] = {};
    out[i].algo.data[0] = static_cast<uint64_t>(i);
    out[i].workspaceSize = static_cast<size_t>(1024 * i);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void*,
                              const void*, cublasLtMatrixLayout_t a, const void*,
                              cublasLtMatrixLayout_t b, const void*, const void*,
                              cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  const float took = state().algorithms[algorithm->data[0]];
  if (took < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  state().clock += took;
  ++state().counts.products;
  state().product = of(description).product;
  state().product.types = {type_of(a), type_of(b)};
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return "a status";
}

}  // extern "C"
