// Builds the graph of a whole step from a model description: emits the forward and runs the passes
// in their fixed order.
//
//   forward      emit, averages (evaluation), autocast, tf32, marks of fp8 (training), lower
//                recurrent, context cut, partition, sequence cut, expert cut
//   training     reverse or forward gradient, chunk loss, fp8, gradient squares, update
//   both         narrow parameters, frozen base, cut products (training), lower placements, lower
//                context, tf32 again, dead code, stage cut, fuse, fuse copies
//   training     recompute, overlap messages, zero or data parallel, remove copies, optimizer in
//                backward, pack updates, split backward
//   evaluation   zero (sums are reduced after the evaluation pass)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile/gpu.h"
#include "compile/step_metrics.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "optim/update_config.h"
#include "passes/expert_cut.h"
#include "passes/lower_recurrent.h"
#include "passes/precision_config.h"
#include "passes/recompute.h"
#include "passes/zero.h"

namespace dltrain {

// Called with the graph after each pass ("emit", "reverse", …).
using PassLog = std::function<void(std::string_view pass, const Graph& graph)>;

struct StepGraph;

// Called with the forward of the training graph before the reverse pass, so that checks can add
// sums of their own (GraphBuilder::accumulate with Role::metric).
using GraphProbe = std::function<void(GraphBuilder& builder, const StepGraph& graph)>;

struct StepRequest {
  const ModelConfig& model;
  const Loss& loss;
  const Optimizer& optimizer;
  std::vector<const ModelConfig*> teachers = {};  // of the loss; training only
  UpdateConfig update = {};
  bool gradient_squares = false;  // a metric of them
  std::vector<InputSpec> inputs;
  TargetInfo targets = {};
  int64_t vocabulary = 0, outputs = 0;    // of the data (ModelRequest)
  StreamInfo streams = {};                // likewise
  std::vector<std::string> metrics = {};  // of the evaluation, besides the loss (nn/metrics.h)
  int64_t micro_batch = 1;                // samples of a micro-batch
  int64_t micro_batches = 1;          // in the global batch: data-parallel ranks × accumulation
  DataParallelOptions parallel = {};  // with the mesh of all ranks, without micro-steps
  ExpertCutOptions experts = {};
  // Another graph over the same state, which is sharded in the same way; null: none.
  const StepGraph* same_state = nullptr;
  // The layers with which the stages of a pipeline begin (passes/stage_cut.h); empty: chosen.
  std::vector<std::string> stages = {};
  int virtual_stages = 1;          // of each rank along the pipeline
  bool split_backward = false;     // passes/split_backward.h
  DType compute = DType::f32;      // f64 for gradient checks on the reference engine
  PrecisionConfig precision = {};  // with compute f32
  bool narrow_parameters = false;  // with precision bf16: see passes/narrow_parameters.h
  bool noise = true;               // of training: dropout
  bool fuse = true;
  // Returns the memory of a GPU in bytes: some forms of the graph are for GPUs only. Called once
  // the model is emitted; empty or 0: another device.
  std::function<uint64_t()> gpu_memory = {};
  // Returns whether the device has products of FP8 codes with scales of blocks of so many codes, or
  // with one scale (0); likewise.
  std::function<bool(int64_t block)> has_fp8 = {};
  // The GPU whose times automatic recomputation uses; absent: an H100, or on CPUs a core.
  std::optional<Gpu> gpu = {};
  // See ProgramOptions. Gradients that are not kept may use the memory of low-precision copies
  // until the update has read them all, so a separate op then writes the copies; not on GPUs with
  // ample memory.
  bool keep_gradients = true;
  KeptBytes kept_bytes = {};             // of the engine's recurrent_network; empty: none (CPU)
  RecomputeOptions recompute = {};       // training only; without `seconds`
  const ConfigObject* memory = nullptr;  // for errors in the patterns of `recompute`
  PassLog log = {};
  GraphProbe probe = {};
};

struct StepGraph {
  Graph graph;
  // Filled by the host: the inputs of the model, perhaps the sources of the targets, the targets.
  std::vector<ValueId> slots;
  ValueId targets() const { return slots.back(); }
  ValueId output = kNoValue;  // in evaluation the host may read it after each micro-batch
  std::vector<ParameterInfo> parameters;     // and buffers, in order of emission
  std::vector<std::string> unused;           // parameters without a gradient, except frozen ones
  std::vector<std::string> frozen;           // parameters that do not learn
  std::vector<std::string> gathered;         // ops without a rule for shards (passes/partition.h)
  std::vector<std::string> gathered_tokens;  // ops that run on all tokens (passes/context_cut.h)
  std::vector<ParameterInfo> constants;      // of the teachers
  std::vector<StepMetric> metrics;           // the loss first
  bool has_sources() const;                  // the slots have those of the targets
  TensorSpec output_spec;
  std::vector<ZeroUnit> zero_units;
  std::vector<std::string> stages = {};  // layers with which the stages of a pipeline begin
  std::vector<int> equal_stages = {};    // passes/stage_cut.h
  // Returns the first rank along the pipeline whose stages are equal to those of a rank.
  int equal_rank(int rank, int ranks) const;
  double model_flops = 0;         // of a micro-batch (compile/model_flops.h)
  int recomputed_nodes = 0;       // forward nodes that run again in the backward
  double recomputed_seconds = 0;  // of these, a micro-batch, estimated (Recompute::automatic)
  double forward_seconds = 0;     // of the forward, by the same estimate
  bool asked_vocabulary = false;  // a layer uses the size of the vocabulary
};

StepGraph build_training_graph(const StepRequest& request);
StepGraph build_evaluation_graph(const StepRequest& request);

}  // namespace dltrain
