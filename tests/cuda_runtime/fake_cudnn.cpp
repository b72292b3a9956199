// cuDNN for tests: its graph API as far as kernels/cuda/vendor goes through it. Descriptors are not
// looked at but for which proposal they belong to, and which memory is bound to a plan.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <cudnn_graph.h>

#include "cuda_runtime/fake_runtime.h"

namespace dltrain::fake_cuda {
namespace {

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  int64_t plan = -1;              // which proposal it belongs to
  bool best = false;              // a heuristic of mode A
  std::vector<int64_t> ids = {};  // of a variant pack's tensors
  std::vector<void*> data = {};   // where they lie
};

// cuDNN's handle: the stream that it works on.
struct FakeDnnHandle {
  void* stream = nullptr;
};
float milliseconds_of_rnns = 1;

std::vector<DnnPlan>& plans() {
  static std::vector<DnnPlan> instance{{}};
  return instance;
}
PlanWork& plan_work() {
  static PlanWork instance;
  return instance;
}
// The stream of the one handle.
cudaStream_t& current_stream() {
  static cudaStream_t instance = nullptr;
  return instance;
}
Descriptor& of(cudnnBackendDescriptor_t raw) {
  return *static_cast<Descriptor*>(raw);
}
const DnnPlan& plan_of(cudnnBackendDescriptor_t raw) {
  return plans()[static_cast<size_t>(of(raw).plan)];
}
// The descriptors in a list of an attribute's values.
cudnnBackendDescriptor_t* list(void* values) {
  return static_cast<cudnnBackendDescriptor_t*>(values);
}

}  // namespace

void set_plans(std::vector<DnnPlan> proposed) {
  plans() = std::move(proposed);
}
void* stream_of(void* dnn_handle) {
  return static_cast<FakeDnnHandle*>(dnn_handle)->stream;
}
void set_rnn_time(float milliseconds) {
  milliseconds_of_rnns = milliseconds;
}
float rnn_time() {
  return milliseconds_of_rnns;
}
void set_plan_work(PlanWork work) {
  plan_work() = std::move(work);
}

}  // namespace dltrain::fake_cuda

using namespace dltrain::fake_cuda;

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new FakeDnnHandle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<FakeDnnHandle*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  current_stream() = stream;
  reinterpret_cast<FakeDnnHandle*>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion() {
  return 91900;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
  return "a status";
}
void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes > 0) text[0] = '\0';
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* out) {
  *out = new Descriptor{type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t count,
                                       const void* values) {
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
    const auto* ids = static_cast<const int64_t*>(values);
    of(descriptor).ids.assign(ids, ids + count);
  } else if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
    auto* const* data = static_cast<void* const*>(values);
    of(descriptor).data.assign(data, data + count);
  } else if (name == CUDNN_ATTR_ENGINEHEUR_MODE) {
    of(descriptor).best = *static_cast<const cudnnBackendHeurMode_t*>(values) == CUDNN_HEUR_MODE_A;
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    of(descriptor).plan = of(*static_cast<const cudnnBackendDescriptor_t*>(values)).plan;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (of(descriptor).type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
  count_plan();
  return plan_of(descriptor).builds ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t* count,
                                       void* values) {
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = of(descriptor).best ? std::min(most, static_cast<int64_t>(plans().size())) : 0;
      for (int64_t i = 0; i < *count; ++i) of(list(values)[i]).plan = i;
      break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      of(list(values)[0]).plan = of(descriptor).plan;
      break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      *static_cast<int64_t*>(values) = of(descriptor).plan;
      break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      *static_cast<cudnnBackendKnobType_t*>(values) = CUDNN_KNOB_TYPE_TILE_SIZE;
      break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *count = plan_of(descriptor).deterministic ? 0 : 1;
      *static_cast<cudnnBackendNumericalNote_t*>(values) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<int64_t*>(values) = plan_of(descriptor).workspace;
      break;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  if (plan_of(plan).milliseconds < 0) return CUDNN_STATUS_EXECUTION_FAILED;
  std::map<int64_t, void*> tensors;
  for (size_t i = 0; i < of(pack).ids.size(); ++i) tensors[of(pack).ids[i]] = of(pack).data[i];
  std::function<void()> work;
  if (plan_work()) work = [compute = plan_work(), tensors] { compute(tensors); };
  run_plan(plan_of(plan).milliseconds, current_stream(), std::move(work));
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
