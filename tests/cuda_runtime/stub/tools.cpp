// A libcupti.so without a driver, which is also a tool that listens to NVTX
// (NVTX_INJECTION64_PATH).
#include "cuda_runtime/stub/tools.h"

#include <chrono>
#include <cstring>

#include <cupti.h>
#include <nvtx3/nvToolsExt.h>

namespace {

FakeTools state;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
std::vector<CUpti_ActivityExternalCorrelation> joined;
std::vector<CUpti_ActivityKernel10> kernels;
uint64_t pushed_id = 0, pushed_at = 0;
uint32_t correlation = 0;

uint64_t clock_now() {
  const auto host = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  return static_cast<uint64_t>(host.count() + kFakeClock);
}

size_t size_of(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? sizeof(CUpti_ActivityKernel10)
         : kind == CUPTI_ACTIVITY_KIND_MEMCPY          ? sizeof(CUpti_ActivityMemcpy6)
                                                       : sizeof(CUpti_ActivityExternalCorrelation);
}

// Buffers of one record each: CUPTI decides how full they are.
template <typename Record>
void deliver(const Record& record) {
  uint8_t* buffer = nullptr;
  size_t bytes = 0, records = 0;
  request(&buffer, &bytes, &records);
  std::memcpy(buffer, &record, sizeof record);
  complete(nullptr, 0, buffer, bytes, sizeof record);
}

int push_range(const char* label) {
  state.ranges.emplace_back(label);
  return static_cast<int>(state.open_ranges++);
}
int pop_range() {
  return static_cast<int>(--state.open_ranges);
}

}  // namespace

extern "C" {

FakeTools* fake_tools() {
  return &state;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r,
                                           CUpti_BuffersCallbackCompleteFunc c) {
  request = r;
  complete = c;
  return state.refuses ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind) {
  ++state.enabled;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
  --state.enabled;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t id) {
  ++state.pushed;
  pushed_id = id;
  pushed_at = clock_now();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t* last) {
  ++state.popped;
  *last = pushed_id;
  CUpti_ActivityExternalCorrelation join{};
  join.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  join.externalKind = kind;
  join.externalId = pushed_id;
  join.correlationId = ++correlation;
  joined.push_back(join);
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = pushed_at;
  kernel.end = pushed_at + kFakeKernel;
  kernel.streamId = 7;
  kernel.correlationId = correlation;
  kernel.name = "_Z9fake_rowsPKfPf";
  kernels.push_back(kernel);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  for (const auto& kernel : kernels) deliver(kernel);
  for (const auto& join : joined) deliver(join);
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.start = clock_now();
  copy.end = copy.start + 10;
  copy.bytes = 4096;
  copy.streamId = 13;
  copy.correlationId = ++correlation;
  deliver(copy);
  kernels.clear();
  joined.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  *timestamp = clock_now();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "another tool is attached";
  return CUPTI_SUCCESS;
}

// NVTX calls it when a tool is named.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push_range);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop_range);
  return 1;
}

}  // extern "C"
