#include "cuda/vendor/cudnn_proposals.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace dltrain {
namespace {

constexpr size_t kCudnnProposalsMaxWorkspace = size_t{256} << 20;
constexpr int64_t kMaxProposals = 64;  // per heuristic mode
constexpr int64_t kMaxKnobs = 32;      // per engine

// A list of `count` descriptors of one type, for list attributes.
struct DescriptorList {
  std::vector<CudnnDescriptor> descriptors;
  std::vector<cudnnBackendDescriptor_t> raw;
  DescriptorList(cudnnBackendDescriptorType_t type, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      descriptors.emplace_back(type);
      raw.push_back(descriptors.back().get());
    }
  }
};

CudnnDescriptor engine_of(const CudnnDescriptor& config) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  return engine;
}

bool follows_rules(const CudnnDescriptor& engine, bool tensor_cores) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           (!tensor_cores && note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
           note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_FFT || note == CUDNN_NUMERICAL_NOTE_WINOGRAD;
  });
}

std::string name_of(const CudnnDescriptor& config, const CudnnDescriptor& engine) {
  int64_t index = -1;
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
  std::string name = fmt::format("engine {}", index);
  DescriptorList knobs(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kMaxKnobs);
  const int64_t count = config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   kMaxKnobs, knobs.raw.data());
  for (int64_t i = 0; i < count; ++i) {
    const CudnnDescriptor& knob = knobs.descriptors[static_cast<size_t>(i)];
    cudnnBackendKnobType_t type{};
    int64_t value = 0;
    knob.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    knob.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    name += fmt::format(", {}={}", static_cast<int>(type), value);
  }
  return name;
}

}  // namespace

CudnnProposals::CudnnProposals(CudnnDescriptor graph, bool tensor_cores, const CudnnTarget& target)
    : graph_(std::move(graph)), target_(target) {
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) propose(mode, tensor_cores);
}

void CudnnProposals::propose(cudnnBackendHeurMode_t mode, bool tensor_cores) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph_.get());
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target_.description != nullptr) {
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  target_.description->get());
  }
  if (const auto code = heuristic.try_finalize(); code != CUDNN_STATUS_SUCCESS) {
    refusal_ = "cuDNN's heuristic: " + cudnn_text(code);
    return;
  }
  DescriptorList found(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMaxProposals);
  const int64_t count = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      kMaxProposals, found.raw.data());
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    CudnnDescriptor& config = found.descriptors[i];
    const CudnnDescriptor engine = engine_of(config);
    if (!follows_rules(engine, tensor_cores)) continue;
    std::string name = name_of(config, engine);
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    names_.push_back(std::move(name));
    configs_.push_back(std::move(config));
  }
}

std::optional<CudnnPlan> CudnnProposals::build(size_t i, std::string* why) const {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           configs_[i].get());
  if (target_.handle != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target_.handle);
  } else {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             target_.description->get());
  }
  const cudnnStatus_t code = plan.try_finalize();
  int64_t workspace = 0;
  if (code == CUDNN_STATUS_SUCCESS) {
    plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace);
    if (workspace >= 0 && static_cast<size_t>(workspace) <= kCudnnProposalsMaxWorkspace) {
      return CudnnPlan{std::move(plan), static_cast<size_t>(workspace)};
    }
  }
  if (why != nullptr) {
    *why = fmt::format("cuDNN's {}: {}", names_[i],
                       code != CUDNN_STATUS_SUCCESS
                           ? cudnn_text(code)
                           : fmt::format("it needs {} MiB of workspace", workspace >> 20));
  }
  return {};
}

std::optional<CudnnPlan> CudnnProposals::build_first(std::string* why) const {
  if (why != nullptr) *why = refusal_;
  for (size_t i = 0; i < size(); ++i) {
    if (auto plan = build(i, why)) return plan;
  }
  return {};
}

}  // namespace dltrain
