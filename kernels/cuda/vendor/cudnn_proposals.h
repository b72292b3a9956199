// cuDNN's proposals for an operation graph: engines with their settings that pass the rules below.
// Any can be built to a plan, for a GPU or for the description of one.
//
// Rules: deterministic; sums in f32; for f32 no tensor cores, unless TF32 is asked for, and no
// narrower inputs; no FFT or Winograd, whose rounding errors are larger; a workspace of at most 256
// MiB.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/vendor/cudnn_descriptor.h"

namespace dltrain {

struct CudnnPlan {
  CudnnDescriptor plan;
  size_t workspace_bytes = 0;
};

class CudnnProposals {
 public:
  // `tensor_cores`: for 16-bit operands, and TF32 products of f32. `target` outlives the object.
  CudnnProposals(CudnnDescriptor graph, bool tensor_cores, const CudnnTarget& target);

  // Best estimate first; cuDNN's fallbacks are last.
  size_t size() const { return configs_.size(); }
  // "engine 12, 2=3, 27=0": the engine and the values of its settings (knobs). The same in every
  // process for one version of cuDNN.
  const std::string& name(size_t i) const { return names_[i]; }
  // Returns nullopt if cuDNN fails or the workspace is too large; `why` is then the reason.
  std::optional<CudnnPlan> build(size_t i, std::string* why = nullptr) const;
  // Builds the first proposal that works; if none does, `why` is the reason of the last.
  std::optional<CudnnPlan> build_first(std::string* why = nullptr) const;

 private:
  void propose(cudnnBackendHeurMode_t mode, bool tensor_cores);

  CudnnDescriptor graph_;
  CudnnTarget target_;
  std::string refusal_ = "cuDNN proposes no plan that follows the rules";
  std::vector<CudnnDescriptor> configs_;
  std::vector<std::string> names_;
};

}  // namespace dltrain
