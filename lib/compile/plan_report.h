// The report of `dltrain plan` on a compiled step: memory by role and by layer, arithmetic and
// traffic.
#pragma once

#include <string>
#include <vector>

#include "compile/traffic.h"
#include "graph/program.h"
#include "graph/state_layout.h"

namespace dltrain {

struct LayerCost {
  std::string layer;
  int64_t copies = 1;           // see fold_equal_blocks()
  int64_t parameters = 0;       // elements, counted at the first layer that reads them
  size_t activation_bytes = 0;  // outputs of the forward, before any sharing
  double forward_flops = 0, backward_flops = 0;  // of one micro-batch
};

// The peak of the memory of activations and workspaces, and its content by layer; the copies of a
// `repeat` are added up.
struct MemoryPeak {
  size_t bytes = 0;
  std::string op, layer, phase;  // running at that time
  struct LiveValue {
    std::string what;  // "gelu of h.*.mlp.1"
    size_t bytes = 0;
  };
  std::vector<LiveValue> live;  // largest first
};

struct PlanReport {
  std::vector<std::pair<std::string, size_t>> state_bytes;  // by role, and alignment
  size_t state_total = 0;
  size_t work_bytes = 0;              // activations, inputs and workspaces after sharing
  std::vector<size_t> variant_bytes;  // the part of work_bytes that each variant of a step uses
  // Bytes of gradients that share that memory (ProgramOptions::keep_gradients).
  size_t gradient_bytes = 0;
  size_t stage_bytes = 0;  // staging buffers for batches on devices with separate memory
  size_t work_lower_bound = 0;
  size_t frames = 1;  // micro-batches in flight; work_lower_bound and the peak are those of one
  MemoryPeak peak;
  size_t workspace_bytes = 0;  // the largest workspace of a kernel
  size_t arena_bytes = 0;      // state_total + work_bytes + stage_bytes: what is allocated
  double flops_per_step = 0;   // of one rank, all micro-steps and the update
  double bytes_per_step = 0;   // read and written at least once, likewise
  Traffic traffic;             // between ranks
  std::vector<LayerCost> layers;
  size_t kernel_calls = 0;  // in the longest step variant, a micro-step and the update
};

// Merges adjacent blocks of equal layers, such as h.0 to h.11: the merged rows are called
// "h.0-11.ln_1", have 12 copies and contain their sums. Blocks are equal if their layers,
// parameters, activations and forward FLOP are.
std::vector<LayerCost> fold_equal_blocks(const std::vector<LayerCost>& layers);

PlanReport make_plan_report(const Program& program, const StateLayout& layout, size_t work_bytes,
                            int64_t micro_steps, const RankTopology& topology);

}  // namespace dltrain
