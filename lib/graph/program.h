// A Program is a graph prepared for execution: a kernel for each node, the memory layout of its
// values, and one list of calls per segment.
//
//   forward   of a micro-batch
//   backward  of it
//   weights   the part of the backward that is run later (passes/split_backward.h)
//   update    norm, clipping, optimizer; once a step
//
// A rank with several stages of a pipeline has a forward and a backward for each, its chunks.
//
// Forward and backward exist in variants for the first, a middle, the last and the only micro-batch
// of a step, over the same memory (MicroStep).
//
// A program does not change after its construction and contains no addresses: these belong to its
// frames (graph/frame.h), which run it in the order of a schedule (graph/schedule.h).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "device/engine.h"
#include "graph/graph.h"
#include "graph/memory_planner.h"
#include "graph/schedule.h"
#include "ops/kernel.h"

namespace dltrain {

struct ProgramOptions {
  const Engine* engine = nullptr;
  Device* device = nullptr;
  Collectives* collectives = nullptr;  // of all ranks; nullptr with one
  const MeshGroups* groups = nullptr;  // for collectives over a mesh axis; outlives the program
  Mesh mesh = {};                      // of these ranks; names axes in messages
  bool several_micro_steps = false;    // prepare the accumulating variants
  bool capture = true;                 // record segments where the backend can
  // False: gradients live in the memory of activations from their first writer to the update, and
  // reuse the memory of low-precision copies between the copies' last read and their rewrite by the
  // update. Requires one micro-step and one rank.
  bool keep_gradients = true;
  size_t frames = 1;      // micro-batches in flight
  FrameLives lives = {};  // of several chunks: when frames use their memory
};

// A place in the memory of a frame, in the memory that all frames share, or in the reused memory of
// low-precision copies. With several chunks the memory of a frame is in pieces (frame_lives).
struct MemoryPlace {
  size_t offset = 0;
  bool reused = false, shared = false;
  int piece = 0;
};

// One kernel call of a segment.
struct Call {
  std::unique_ptr<const Kernel> kernel;
  const KernelRow* row = nullptr;
  size_t node = 0;          // index into graph().nodes
  bool accumulate = false;  // adds to its output
  MemoryPlace workspace = {};
  std::optional<MemoryPlace> temporary = {};  // the output is written here, then added to the sum
  bool adds_temporary = false;                // this call is that addition
  // Begins a message from or to another stage of a pipeline, in the forward or backward; waits in a
  // backward for what its forward has sent.
  bool receives = false, sends = false, ends_forward = false;
};

class Program {
 public:
  // Makes the kernels and places the memory; allocates no device memory (`dltrain plan` stops
  // here). Throws Error(usage), naming the layer, when an op has no kernel.
  Program(Graph graph, const ProgramOptions& options);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Graph& graph() const { return graph_; }
  const ProgramOptions& options() const { return options_; }
  // Memory for values and workspaces that do not outlive a micro-step, of all frames. It begins
  // with what they share: what does not outlive a segment (with one frame there is none).
  size_t work_bytes() const { return work_bytes_; }
  // The beginning of a frame's memory in it.
  size_t frame_offset(size_t frame, int piece = 0) const {
    return frame_offsets_[static_cast<size_t>(piece)][frame];
  }
  // A lower bound of the bytes that any placement of the same blocks needs.
  size_t work_lower_bound() const { return busiest_step(blocks_).bytes; }
  size_t workspace_bytes() const;  // the largest workspace of a call
  // The time of peak use of that memory, and the values that are live then.
  struct PeakMemory {
    struct LiveValue {
      int node = -1;  // its producer, an index into graph().nodes; -1: an input
      size_t bytes = 0;
      bool gradient = false;   // of a parameter
      bool workspace = false;  // of the call that runs then
    };
    int node = -1;     // running at that time; -1: the program is empty
    size_t bytes = 0;  // work_lower_bound()
    std::vector<LiveValue> live;
  };
  PeakMemory peak_memory() const;
  // The bytes of that memory that are live while each node runs.
  std::vector<size_t> live_bytes() const;

  // The memory of values, by storage root: in the region of state, or at a place of the frame;
  // nullopt: nothing writes it.
  bool is_state(ValueId root) const { return persistent(graph_.value(root).role); }
  std::optional<MemoryPlace> place(ValueId root) const;
  // The low-precision copies whose memory is reused, which lie at these offsets from the first.
  const std::vector<std::pair<ValueId, size_t>>& reused_copies() const { return copies_; }
  // The number of tickets that a frame keeps for asynchronous collectives (attribute "slot").
  size_t slots() const { return static_cast<size_t>(graph_.next_slot()); }

  // The calls of a segment, in order.
  const std::vector<size_t>& segment(Phase segment, MicroStep variant, int chunk = 0) const {
    return segments_[static_cast<size_t>(chunk)][static_cast<size_t>(segment)]
                    [static_cast<size_t>(variant)];
  }
  int chunks() const { return static_cast<int>(segments_.size()); }
  const std::vector<Call>& calls() const { return calls_; }
  // "matmul in layers.2 (forward)"
  std::string described(size_t call) const;
  // Returns the number of calls of each kernel variant, by {op, variant} of KernelRow. Additions
  // after kernels that cannot accumulate count as "identity".
  std::map<std::pair<std::string, std::string>, size_t> variants() const;

 private:
  void make_calls();
  Collectives* group_of(const Node& node) const;
  void add_call(size_t node, bool accumulate, std::vector<size_t>& list);
  void place_memory();
  void merge_in_place(size_t node, const std::vector<int>& last_use);
  ReusableRegion reuse_copies();
  void keep_messages(int end);
  void share_blocks();
  void place_frames(const std::vector<size_t>& bytes);
  MemoryPlace place_of_block(int block) const {
    const MemoryBlock& at = blocks_[static_cast<size_t>(block)];
    return {at.offset, at.reused, at.shared, at.piece};
  }
  void fill_segments();
  // Returns whether values of this role are in the region of state rather than that of activations.
  bool persistent(Role role) const {
    return rules_of(role).persistent && (options_.keep_gradients || role != Role::gradient);
  }

  Graph graph_;
  ProgramOptions options_;
  std::vector<Call> calls_;
  std::vector<std::vector<size_t>> plain_calls_, accumulating_calls_;  // per node
  std::vector<MemoryBlock> blocks_;
  std::vector<int> value_block_;  // per value (storage roots only), -1: state
  std::vector<Graph::GroupOffset> group_offsets_;
  size_t work_bytes_ = 0;
  std::vector<std::vector<size_t>> frame_offsets_;  // [piece][frame]
  std::vector<std::pair<ValueId, size_t>> copies_;
  // [chunk][phase][variant]
  std::vector<std::array<std::array<std::vector<size_t>, 4>, kPhases>> segments_;
};

}  // namespace dltrain
