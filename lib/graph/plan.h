// A Plan is a graph prepared for execution: a kernel for each node, an offset for each value, and
// one list of calls per segment.
//
//   forward   of a micro-batch
//   backward  of it
//   update    norm, clipping, optimizer; once a step
//
// Forward and backward exist in variants for the first, a middle, the last and the only micro-step
// of a step, over the same memory: the first overwrites sums (gradients, statistics, metrics),
// later ones add to them; collectives over sums run in the last or only one. The calls of a segment
// between two messages to other ranks are captured as one CUDA graph. The messages are not
// captured: one begins in the backward and ends in the update, which is another graph, and the host
// counts them for the watchdog (comm/watch.h).
//
// Lifecycle: prepare (kernels made, memory placed, nothing allocated: `dltrain plan` stops here) →
// bind (addresses fixed) → run, any number of times, without allocating or waiting.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "device/engine.h"
#include "graph/graph.h"
#include "graph/memory_planner.h"
#include "graph/plan_observer.h"
#include "graph/state_layout.h"
#include "ops/kernel.h"

namespace dltrain {

enum class MicroStep : uint8_t { first, middle, last, only };
std::string_view micro_step_name(MicroStep micro_step);
// The variant of micro-step `index` out of `count`.
MicroStep micro_step_of(int64_t index, int64_t count);

struct PlanOptions {
  const Engine* engine = nullptr;
  Device* device = nullptr;
  Collectives* collectives = nullptr;  // of all ranks; nullptr with one
  const MeshGroups* groups = nullptr;  // for collectives over a mesh axis; outlives the plan
  bool several_micro_steps = false;    // prepare the accumulating variants
  bool capture = true;                 // record segments where the backend can
  // False: gradients live in the memory of activations from their first writer to the update, and
  // reuse the memory of low-precision copies between the copies' last read and their rewrite by the
  // update. Requires one micro-step and one rank.
  bool keep_gradients = true;
};

// One kernel call of a segment.
struct Call {
  std::unique_ptr<Kernel> kernel;
  const KernelRow* row = nullptr;
  size_t node = 0;              // index into graph().nodes
  bool accumulate = false;      // adds to its output
  size_t workspace_block = 0;   // index into blocks()
  int temporary_block = -1;     // the output is written here first and then added to the sum
  bool adds_temporary = false;  // this call is that addition
};

class Plan {
 public:
  // Throws Error(usage), naming the layer, when an op has no kernel.
  static Plan prepare(Graph graph, const PlanOptions& options);
  Plan(Plan&&) = default;
  Plan& operator=(Plan&&) = default;
  ~Plan();

  const Graph& graph() const { return graph_; }
  // Memory for values and workspaces that do not outlive a micro-step; plans that never run at the
  // same time may share it.
  size_t work_bytes() const { return work_bytes_; }
  // A lower bound of the bytes that any placement of the same blocks needs.
  size_t work_lower_bound() const { return lower_bound_bytes(blocks_); }
  size_t workspace_bytes() const;  // the largest workspace of a call
  // The time of peak use of that memory, and the values that are live then.
  struct PeakMemory {
    struct LiveValue {
      int node = -1;  // its producer, an index into graph().nodes; -1: an input
      size_t bytes = 0;
      bool gradient = false;   // of a parameter
      bool workspace = false;  // of the call that runs then
    };
    int node = -1;     // running at that time; -1: the plan is empty
    size_t bytes = 0;  // work_lower_bound() except for the alignment of empty blocks
    std::vector<LiveValue> live;
  };
  PeakMemory peak_memory() const;

  // Gives every call its addresses. `state` holds layout.bytes(), `work` work_bytes().
  void bind(const StateLayout& layout, std::byte* state, std::byte* work);
  // The same, with the addresses of state given by a function.
  void bind(const std::function<std::byte*(const GraphValue& value)>& state, std::byte* work);

  // The address of a value; valid after bind. The content of state and inputs can be accessed at
  // any time between runs, that of activations only within the run that produced them.
  void* address(ValueId value) const;

  // Throws the device's error, with op and layer added (for a captured segment: with the segment).
  void run(Phase segment, MicroStep variant, Stream& stream);

  // Sets the observer that is called around every kernel call, starting with the next run; nullptr
  // removes it. With an observer, captured segments run call by call.
  void observe(PlanObserver* observer) { observer_ = observer; }

  // Runs uncaptured and checks every floating output. Returns a description of the first node that
  // produced a non-finite value ("matmul in layers.2: 3 of 1280 values"), or "". Slow; for memory
  // that the host can read.
  std::string find_non_finite(Phase segment, MicroStep variant, Stream& stream);

  // The calls of a segment, in order.
  const std::vector<size_t>& segment(Phase segment, MicroStep variant) const;
  const std::vector<Call>& calls() const { return calls_; }
  const BoundCall& bound_call(size_t call) const { return bound_calls_[call]; }  // after bind
  // Returns the number of calls of each kernel variant, by {op, variant} of KernelRow. Additions
  // after kernels that cannot accumulate count as "identity".
  std::map<std::pair<std::string, std::string>, size_t> variants() const;

 private:
  explicit Plan(Graph graph, const PlanOptions& options)
      : graph_(std::move(graph)), options_(options) {}
  void make_calls();
  Collectives* group_of(const Node& node) const;
  void add_call(size_t node, bool accumulate, std::vector<size_t>& list);
  void place_memory();
  void merge_in_place(size_t node, const std::vector<int>& last_use);
  ReusableRegion reuse_copies();
  std::byte* address(const MemoryBlock& block, std::byte* work) const {
    return (block.reused ? reused_ : work) + block.offset;
  }
  void fill_segments();
  void run_call(size_t call, Stream& stream) const;
  void run_observed(const std::vector<size_t>& list, Stream& stream);
  std::string described(size_t node) const;
  // True if values of this role are stored in the region of state rather than that of activations.
  bool persistent(Role role) const {
    return rules_of(role).persistent && (options_.keep_gradients || role != Role::gradient);
  }

  Graph graph_;
  PlanOptions options_;
  std::vector<Call> calls_;
  std::vector<BoundCall> bound_calls_;
  std::vector<std::vector<size_t>> plain_calls_, accumulating_calls_;  // per node
  std::vector<Collectives::Ticket> tickets_;
  std::vector<MemoryBlock> blocks_;
  std::vector<int> value_block_;  // per value (storage roots only), -1: state
  std::vector<Graph::GroupOffset> group_offsets_;
  size_t work_bytes_ = 0;
  std::vector<std::pair<ValueId, size_t>> copies_;  // whose memory is reused, and their offsets
  std::byte* reused_ = nullptr;
  std::vector<void*> addresses_;
  std::array<std::array<std::vector<size_t>, 4>, 3> segments_;  // [phase][variant]
  struct Piece {                                                // calls [begin, end) of a segment
    size_t begin = 0, end = 0;
    std::unique_ptr<CapturedGraph> graph = nullptr;  // nullptr: the calls run one by one
  };
  struct Capture {
    int runs = 0;
    std::vector<Piece> pieces;  // none: nothing is captured
  };
  std::vector<Piece> capture(const std::vector<size_t>& segment, Stream& stream);
  std::array<std::array<Capture, 4>, 3> captures_;
  PlanObserver* observer_ = nullptr;
};

}  // namespace dltrain
