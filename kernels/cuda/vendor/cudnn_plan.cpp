#include "cuda/vendor/cudnn_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kMostWorkspace = size_t{256} << 20;

cudnnDataType_t library_type(DType dtype) {
  return dtype == DType::bf16  ? CUDNN_DATA_BFLOAT16
         : dtype == DType::f16 ? CUDNN_DATA_HALF
                               : CUDNN_DATA_FLOAT;
}

// A dense NHWC tensor; cuDNN names the extents in the order N, C, H, W.
CudnnDescriptor image(DType of, int64_t id, int64_t n, int64_t c, int64_t h, int64_t w) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t extents[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c}, alignment = 16;
  const cudnnDataType_t dtype = library_type(of);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  tensor.finalize("describing a tensor");
  return tensor;
}

CudnnDescriptor convolution(const ConvolutionProblem& p) {
  CudnnDescriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t spatial = 2;
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, p.padding);
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, p.padding);
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, p.dilation);
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, p.stride);
  c.finalize("describing a convolution");
  return c;
}

// The attribute names of one pass.
struct PassNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};

PassNames names(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case ConvolutionPass::input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionPass::weight:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
}

CudnnDescriptor operation_graph(const ConvolutionProblem& p, const CudnnTarget& target) {
  const PassNames n = names(p.pass);
  const CudnnDescriptor conv = convolution(p);
  const CudnnDescriptor x =
      image(p.dtype, ConvolutionPlan::kX, p.samples, p.in_channels, p.in[0], p.in[1]);
  const CudnnDescriptor w = image(p.dtype, ConvolutionPlan::kW, p.out_channels,
                                  p.in_channels / p.groups, p.kernel[0], p.kernel[1]);
  const CudnnDescriptor y =
      image(p.dtype, ConvolutionPlan::kY, p.samples, p.out_channels, p.out[0], p.out[1]);
  const float alpha = 1, beta = 0;
  CudnnDescriptor operation(n.type);
  const auto attach = [&](cudnnBackendAttributeName_t name, const CudnnDescriptor& part) {
    const cudnnBackendDescriptor_t raw = part.get();
    operation.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  };
  attach(n.convolution, conv);
  attach(n.x, x);
  attach(n.w, w);
  attach(n.y, y);
  operation.set(n.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  operation.set(n.beta, CUDNN_TYPE_FLOAT, 1, &beta);
  operation.finalize("describing a convolution's operands");

  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const cudnnBackendDescriptor_t raw = operation.get();
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  if (target.handle != nullptr) {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  graph.finalize("building a graph");
  return graph;
}

// cuDNN's proposals, best first.
std::vector<CudnnDescriptor> proposals(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode,
                                       const CudnnTarget& target) {
  constexpr int64_t kMost = 64;
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendDescriptor_t raw = graph.get();
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.description != nullptr) {
    const cudnnBackendDescriptor_t gpu = target.description->get();
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
  }
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> out;
  std::vector<cudnnBackendDescriptor_t> slots;
  for (int64_t i = 0; i < kMost; ++i) {
    out.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    slots.push_back(out.back().get());
  }
  const int64_t found = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      kMost, slots.data());
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(found), out.end());
  return out;
}

bool follows_rules(const CudnnDescriptor& config, DType dtype, std::string& name) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  int64_t index = -1;
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
  name = fmt::format("engine {}", index);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  const bool whole = dtype == DType::f32;  // 16 bits are what tensor cores are for
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           (whole && note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
           note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_FFT || note == CUDNN_NUMERICAL_NOTE_WINOGRAD;
  });
}

std::optional<ConvolutionPlan> build(const CudnnDescriptor& config, const CudnnTarget& target) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  const cudnnBackendDescriptor_t raw = config.get();
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  if (target.handle != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  } else {
    const cudnnBackendDescriptor_t gpu = target.description->get();
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
  }
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  int64_t workspace = 0;
  plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace);
  if (workspace < 0 || static_cast<size_t>(workspace) > kMostWorkspace) return {};
  return ConvolutionPlan{std::move(plan), static_cast<size_t>(workspace), {}};
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &descriptor_), "making a descriptor");
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void* values) {
  check_cudnn(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
              fmt::format("setting attribute {}", static_cast<int>(name)));
}

int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t most, void* values) const {
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(descriptor_, name, type, most, &count, values),
              fmt::format("reading attribute {}", static_cast<int>(name)));
  return std::min(count, most);
}

void CudnnDescriptor::finalize(std::string_view what) {
  check_cudnn(try_finalize(), what);
}
cudnnStatus_t CudnnDescriptor::try_finalize() {
  return cudnnBackendFinalize(descriptor_);
}

CudnnDescriptor describe_gpu(const std::string& json) {
  CudnnDescriptor description(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  description.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  static_cast<int64_t>(json.size() + 1), json.c_str());
  description.finalize("reading the description of a GPU");
  return description;
}

std::optional<ConvolutionPlan> plan_convolution(const ConvolutionProblem& problem,
                                                const CudnnTarget& target) {
  const CudnnDescriptor graph = operation_graph(problem, target);
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const CudnnDescriptor& config : proposals(graph, mode, target)) {
      std::string engine;
      if (!follows_rules(config, problem.dtype, engine)) continue;
      if (auto plan = build(config, target)) {
        plan->engine = engine;
        return plan;
      }
    }
  }
  return {};
}

}  // namespace dltrain
