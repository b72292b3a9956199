// Plans of cuDNN 9's fused attention, bf16 and f16, without ALiBi, through NVIDIA's cudnn-frontend
// headers. Only cudnn_attention_plan.cpp includes those: they take a minute to compile.
//
// A plan can be built for a GPU that is only described; cuDNN then needs a driver library, but no
// GPU (tests/cuda_attention).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <cudnn_graph.h>

#include "cuda/attention_inputs.h"

namespace dltrain {

// A GPU with a handle, or a description of one (json as cuDNN writes it, and 90 for sm_90).
struct AttentionTarget {
  cudnnHandle_t handle = nullptr;
  std::string description = {};
  int sm_version = 0;
};

class CudnnAttentionPlan {
 public:
  virtual ~CudnnAttentionPlan() = default;
  // Returns the names of cuDNN's proposals, best estimate first. Names are the same in every
  // process for one version of cuDNN.
  virtual const std::vector<std::string>& proposals() const = 0;
  // Builds a proposal, with its own workspace, for later runs. Returns false if cuDNN fails or the
  // workspace exceeds 4 GiB; another one must then be selected.
  virtual bool select(size_t proposal) = 0;
  // Selects the proposal of this name if it can be built, else the first that can be.
  virtual bool select(const std::string& name) = 0;
  virtual size_t workspace_bytes() const = 0;

  // Returns the selected plan for restore_attention; empty if cuDNN cannot store it.
  virtual std::string stored() const = 0;
  static std::string format();  // of stored plans: the version of the headers

  // cuDNN's identifiers of the tensors. `sums`: f32, written by the forward, read by the backward,
  // which has dy to dv; with a mask: a bias of layout bias_of(); with dropout: seed and offset, 64
  // bits.
  enum Id : int64_t { kQ = 1, kK, kV, kY, kSums, kDy, kDq, kDk, kDv, kBias, kSeed, kOffset };
  using Addresses = std::unordered_map<int64_t, void*>;  // device memory
  // Queues on the handle's stream. Throws Error(device).
  virtual void run(cudnnHandle_t handle, Addresses& addresses, void* workspace) const = 0;
};

// The layout of the bias of a mask. The forward reads one row for all queries, except of documents.
// From such a row cuDNN's backward computes wrong gradients (9.19 on an H100, 2026-11-27), so it
// has one for each query.
inline AttentionBias bias_of(const AttentionCall& call, bool backward) {
  const bool by_query = backward || call.mask == AttentionCall::Mask::documents;
  return {by_query ? call.queries : 1, (call.keys + 7) / 8 * 8};
}

// A mask is a bias for each sample and key, added to the scores. With dropout cuDNN draws by its
// own generator from a seed, the same in forward and backward; call.stream is not used.
//
// Returns a plan with the first proposal that can be built, or nullptr if cuDNN has no
// deterministic plan; `why` is then cuDNN's message.
std::unique_ptr<CudnnAttentionPlan> plan_attention(const AttentionCall& call, bool backward,
                                                   const AttentionTarget& target,
                                                   std::string* why = nullptr);

// Returns the plan of CudnnAttentionPlan::stored(), without proposals, in a hundredth of the time
// of building it; nullptr if cuDNN does not read it. The target is a GPU of the same kind.
std::unique_ptr<CudnnAttentionPlan> restore_attention(const std::string& stored,
                                                      const AttentionTarget& target);

}  // namespace dltrain
