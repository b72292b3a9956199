// The estimates of `dltrain plan --gpu`.
#pragma once

#include "compile/traffic.h"
#include "graph/schedule_times.h"
#include "run/session.h"

namespace dltrain {

// Returns the format that the experiment needs and the GPU lacks, with its key; empty if none.
std::string missing_precision(const Gpu& gpu, const Experiment& experiment);
// Throws Error(usage) if the GPU does not compute in the precision of the experiment.
void check_precision(const Gpu& gpu, const Experiment& experiment);

// A step on all ranks. The first fields are of the slowest stage of a pipeline, `needed` of the one
// with the most memory.
struct LayoutEstimate {
  double seconds = 0;  // compute + exposed + waits
  double compute = 0;
  double exposed = 0;             // messages that computation does not hide
  double waits = 0;               // for other stages
  double needed = 0, memory = 0;  // bytes, with what drivers and libraries use
  bool fits() const { return needed <= memory; }
};
LayoutEstimate estimate_layout(const Session& session, const MachineRates& rates);

// Estimates the stages of a pipeline; equal ones are opened and estimated once. `visit` gets the
// session and the estimate of each that is opened, `first_events` the events of the first.
std::vector<StageTimes> estimate_stages(
    const Session& session, const MachineRates& rates,
    const std::function<void(const Session&, const StepEstimate&)>& visit = {},
    const std::function<void(const EstimatedEvent&)>& first_events = {});

// Writes the estimated step as a Chrome trace: the segments of every stage of a pipeline, and the
// calls and messages of the first. Without rates.gpu calls take the time of their arithmetic.
// Throws Error(storage).
void write_timeline(const std::filesystem::path& path, const Session& session,
                    const MachineRates& rates);

// Opens the session of another rank of a plan.
Session open_stage(const Session& session, int stage);

// Prints the time of a step, the rate of samples or tokens, MFU, whether the memory suffices, and
// the most expensive calls.
void print_gpu_estimate(const Session& session, const MachineRates& rates);
// Prints misaligned axes of products, and how products fill the GPU.
void print_alignment(const Graph& graph, const Gpu& gpu);
// Prints the time of a step on one line, without the calls; `heading`: above it the names of the
// columns. Returns whether the memory suffices.
bool print_gpu_line(const Session& session, const MachineRates& rates, bool heading);

}  // namespace dltrain
