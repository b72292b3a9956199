// Owns a device, the state of a run and its compiled programs, and runs the schedule of a step.
//
// Steps of several lengths (data/length_plan.h) have a graph and a program each, over the same
// state.
//
// Memory: one arena: the state region (parameters, moments, gradients, sums, StepState) and a work
// region per frame; training and evaluation share the first, since they never run at the same time.
// It is allocated once, at the size that `dltrain plan` prints.
//
// Threads: used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/stream_collectives.h"
#include "compile/plan_report.h"
#include "compile/step_graph.h"
#include "ops/step_state.h"
#include "runtime/input_slots.h"
#include "runtime/loaded_program.h"
#include "runtime/state_store.h"
#include "runtime/step_observer.h"

namespace dltrain {

struct ExecutorOptions {
  const Engine* engine = nullptr;
  std::unique_ptr<Device> device;
  // The group of all ranks, over host memory; nullptr with one rank; outlives the executor.
  Collectives* collectives = nullptr;
  // The groups over axes of the mesh, over host memory; nullptr if no op needs them; likewise.
  const MeshGroups* groups = nullptr;
  RankTopology topology = {};
  int64_t micro_steps = 1;     // per rank and step
  StepSchedule schedule = {};  // empty: one micro-batch after the other
  int64_t global_batch = 1;    // samples of a step
  // Micro-steps overwrite sums, which their graph then combines (training.reduction: fixed).
  bool fixed_reduction = false;
  // Gradients can be read after a micro-step. Otherwise, with one rank and one micro-step, they lie
  // in the memory of activations that the backward no longer needs.
  bool keep_gradients = false;
};

// Sums of one step over the global batch, and the results of the update.
struct StepReport {
  int64_t step = -1;
  std::vector<double> sums;  // the elements of each of StepGraph::metrics
  StepResults results{};
};

class Executor final : public StateStore {
 public:
  // Compiles the programs; allocates no device memory. `training`: the graph of each variant of a
  // step, the one with the longest samples last.
  Executor(ExecutorOptions options, std::vector<StepGraph> training,
           std::optional<StepGraph> evaluation);
  ~Executor() override;

  PlanReport report() const;
  // As in the report, at no cost.
  size_t arena_bytes() const { return layout_.bytes() + work_bytes_ + stage_bytes(); }
  const RankTopology& topology() const { return options_.topology; }
  const StepGraph& training() const { return training_.back(); }
  const std::vector<ParameterInfo>& weights() const override { return training().parameters; }
  const Program& training_program() const { return training_programs_.back().program(); }
  const Program& training_program(size_t variant) const {
    return training_programs_[variant].program();
  }
  const Frame& training_frame() const { return training_programs_.back().frame(); }
  size_t variants() const { return training_.size(); }
  const Mesh& mesh() const { return options_.topology.mesh; }
  // Sets the observer from the next micro-step of training on (Frame::observe).
  void observe(StepObserver* observer);
  Device& device() { return *options_.device; }
  // The ranks' group over the memory of a GPU; nullptr with one rank, and on CPUs, where the group
  // of the options serves. It must have been joined before the first step.
  StreamCollectives* device_group() { return device_group_.get(); }
  const Engine& engine() const { return *options_.engine; }

  // Allocates the arena and fixes all addresses. The state is zero.
  void allocate();

  // Gathers the checkpointed tensors that are sharded over ranks and calls use(tensor, full
  // content) for each, on every rank of the stage that has it. All ranks must call it.
  using TensorUse =
      std::function<void(const StateTensor& tensor, std::span<const std::byte> whole)>;
  void collect_shards(const TensorUse& use);
  // The segments of a step in the order in which they are run: before the first forward of a
  // micro-batch, fill() gives it to its frame, and run() runs each segment in turn.
  const StepSchedule& schedule() const { return schedule_; }
  // Fills the input slots of a frame. `fields`: the bytes of each slot of the graph, in the order
  // of StepGraph::slots. The batch must stay as it is until the next call of fill() or run() with
  // another frame has returned (copies from pinned memory are asynchronous). The fields of `state`
  // that change within a step must be set. All micro-batches of a step are of one variant of the
  // graph; without, of the last.
  void fill(size_t frame, FieldSpan fields, const StepInputs& state,
            std::optional<size_t> variant = {});
  // Queues a segment; the update also queues the copy of sums and results to the host.
  void run(const ScheduledSegment& segment);

  // One micro-batch, of index `index` of options.micro_steps, in the first frame: fill(), forward
  // and backward.
  void micro_step(FieldSpan fields, const StepInputs& state, int64_t index,
                  std::optional<size_t> variant = {});
  // The forward of a step's only micro-batch, of the longest variant. Its sums can be read by
  // read_state; there is nothing to update.
  void forward(FieldSpan fields, const StepInputs& state);
  // The update after micro_step().
  void update();

  // The number of steps by which collect() should follow update() so as not to wait for the device.
  int lag() const;
  // Waits for and returns the report of the oldest update() not yet collected; valid until the next
  // call.
  const StepReport& collect();
  int pending() const { return static_cast<int>(pending_.size()); }

  // Counters on the device that are part of a checkpoint: the number of applied updates and the
  // loss scale (StepResults).
  struct Progress {
    int64_t updates = 0;
    double loss_scale = 1;
    int64_t scale_streak = 0;
  };
  Progress progress();
  void set_progress(const Progress& progress);

  // Runs the evaluation program on one padded micro-batch, whose first sample has index `position`
  // in the split; the first call of a pass overwrites the sums.
  void evaluate(FieldSpan fields, int64_t position, bool first);
  const std::vector<StepMetric>& evaluation_metrics() const { return evaluation_->metrics; }
  // Sums of the pass on this rank, concatenated in the order of evaluation_metrics().
  std::vector<double> evaluation_sums();
  // Logits of the last evaluate().
  std::vector<double> evaluation_output();

  // Re-runs forward and backward of a micro-batch and names the first node with a non-finite
  // output.
  std::string find_non_finite(FieldSpan fields, const StepInputs& state,
                              std::optional<size_t> variant = {});

 private:
  struct Pending {
    int64_t step;
    size_t slot;
  };
  struct HostSlot {  // pinned
    std::byte* data = nullptr;
    std::unique_ptr<Event> ready;
  };

  // Also throws if a collective on the stream has failed.
  void wait_for_device() override;
  size_t stage_bytes() const;
  std::vector<std::byte> read_bytes(size_t offset, size_t bytes);
  std::vector<std::byte> gather_bytes(std::span<const std::byte> own, std::string_view axis) const;
  void queue_report(int64_t step);

  ExecutorOptions options_;
  std::unique_ptr<StreamCollectives> device_group_;
  std::unique_ptr<const MeshGroups> device_groups_;  // nullptr without `groups`
  std::vector<StepGraph> training_;
  std::optional<StepGraph> evaluation_;
  StepSchedule schedule_;
  std::vector<LoadedProgram> training_programs_;
  std::optional<LoadedProgram> evaluation_program_;
  StepObserver* observer_ = nullptr;
  size_t variant_ = 0;                 // of the step under way
  std::vector<StepInputs> inputs_of_;  // of the micro-batch in each frame
  size_t inputs_frame_ = 0;            // whose StepInputs are on the device
  size_t work_bytes_ = 0;              // of the largest program
  Buffer arena_, host_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<InputSlots> inputs_;
  std::vector<std::vector<std::vector<InputBuffer>>> training_buffers_;  // [variant][frame]
  std::vector<InputBuffer> evaluation_buffers_;
  std::vector<HostSlot> slots_;
  std::byte* device_state_ = nullptr;
  std::vector<std::span<const std::byte>> metric_bytes_;
  std::vector<Pending> pending_;
  size_t next_slot_ = 0;
  StepReport report_;
};

}  // namespace dltrain
