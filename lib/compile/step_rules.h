// What a request decides about the passes of a step, and what it may not ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compile/step_graph.h"
#include "graph/reverse.h"

namespace dltrain {

// Returns the parameters that are not frozen and lists the others in `out.frozen`. Throws for
// patterns that match no parameter.
std::vector<ValueId> learning_parameters(const StepRequest& r, StepGraph& out);

// The seconds of a node on a core of a CPU, of which automatic recomputation uses the ratios: about
// 10 FLOP of a product in the time of a byte of memory (docs/performance.md).
double core_seconds(const Graph& graph, const Node& node);

// The losses of routers are means over the tokens of a micro-batch; what is added to the loss is
// their mean over the micro-batches of the global batch.
std::vector<AddedLosses> added_losses(const StepRequest& r,
                                      const std::vector<EmittedRouter>& routers);

// Graphs over the same state are for samples of different lengths. Passes that shard their state
// rely on equal parameters.
void check_same_parameters(const StepRequest& r, const std::vector<ParameterInfo>& parameters);

// Returns the layers with which the stages of a pipeline begin; none without a pipeline.
std::vector<std::string> stages_of(const StepRequest& r, const Graph& forward);

// Throws for patterns that match no layer.
void check_layer_patterns(const StepRequest& r, const Graph& forward);

// Returns for each stage the first one with an equal plan (find_equal_stages). What else than ops
// and shapes decides it: what learns, or depends on what learns and so has a gradient, the moments
// of parameters, and the layers whose activations are kept or recomputed.
std::vector<int> equal_stages(const StepRequest& r, const StepGraph& step,
                              const std::vector<ValueId>& learning);

// Returns the GPU whose times passes use; none on the CPU. `memory`: that of the device, 0: a CPU.
std::optional<Gpu> gpu_for_times(const StepRequest& r, size_t memory);

// Returns the pieces with which a product and its message (bytes) take the least time
// (PiecesOfProduct).
int pieces_of_product(const StepRequest& r, const std::optional<Gpu>& gpu, const Graph& graph,
                      const Node& product, double message, double copied, bool even);

void check_optimizer_in_backward(const StepRequest& r, const Graph& graph);

// Returns whether a GPU has so much more memory than the 16-bit copies of parameters need that
// gradients need not use it (StepRequest::keep_gradients): 48 bytes for each parameter.
bool copies_are_small(const Graph& graph, uint64_t gpu_memory);

}  // namespace dltrain
