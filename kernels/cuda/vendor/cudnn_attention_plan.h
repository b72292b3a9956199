// Plans of cuDNN 9's fused attention, bf16 and f16, through NVIDIA's cudnn-frontend headers. Only
// cudnn_attention_plan.cpp includes those: they take a minute to compile.
//
// A plan can be requested for a GPU that is only described, but cuDNN builds it only with a driver
// library, so no test does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cudnn_graph.h>

#include "tensor/dtype.h"

namespace dltrain {

// q [samples, queries, heads, head_dim], k and v [samples, keys, kv_heads, head_dim], y like q
// but dense; lib/ops/attention.cpp has the formulas. No mask, dropout or ALiBi.
struct AttentionProblem {
  DType dtype = DType::bf16;
  int64_t samples = 0, queries = 0, keys = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t query_stride = 0, key_stride = 0;  // between tokens, in elements
  double scale = 1;
  bool causal = false;
  int64_t window = 0;  // with causal only; 0: none
  bool backward = false;
};

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
  virtual size_t workspace_bytes() const = 0;

  // Device memory. `sums`: f32, written by the forward, read by the backward.
  struct Data {
    void *q = nullptr, *k = nullptr, *v = nullptr, *y = nullptr, *sums = nullptr;
    void *dy = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;  // backward only
  };
  virtual void bind(const Data& data, void* workspace) = 0;
  // Queues on the handle's stream. Throws Error(device).
  virtual void run(cudnnHandle_t handle) = 0;
};

// Returns a plan with the first proposal that can be built, or nullptr if cuDNN has no
// deterministic plan; `why` is then cuDNN's message.
std::unique_ptr<CudnnAttentionPlan> plan_attention(const AttentionProblem& problem,
                                                   const AttentionTarget& target,
                                                   std::string* why = nullptr);

}  // namespace dltrain
