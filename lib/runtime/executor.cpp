#include "runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kSlots = 3;  // reports in flight: one being computed, one pending, one being read
constexpr size_t kSlotAlignment = 64;

size_t slot_bytes(size_t metrics) {
  return align_up(sizeof(StepResults) + metrics * sizeof(double), kSlotAlignment);
}

size_t batch_bytes(const StepGraph& graph) {
  size_t bytes = 0;
  for (ValueId slot : graph.slots) bytes += graph.graph.value(slot).spec.bytes();
  return bytes;
}

std::vector<InputBuffer> buffers_of(const StepGraph& graph, const Frame& frame) {
  std::vector<InputBuffer> buffers;
  for (ValueId slot : graph.slots) {
    buffers.push_back(
        {static_cast<std::byte*>(frame.address(slot)), graph.graph.value(slot).spec.bytes()});
  }
  return buffers;
}

}  // namespace

Executor::Executor(ExecutorOptions options, std::vector<StepGraph> training,
                   std::optional<StepGraph> evaluation)
    : options_(std::move(options)),
      training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      schedule_(options_.schedule.empty() ? step_schedule(options_.micro_steps)
                                          : std::move(options_.schedule)),
      inputs_of_(frames_of(schedule_)) {
  Collectives* group = options_.collectives;
  if (group != nullptr && !options_.device->properties().on_host) {
    device_group_ =
        std::make_unique<StreamCollectives>(*options_.device, group->rank(), group->size());
    group = device_group_.get();
    if (options_.groups != nullptr) {
      device_groups_ = std::make_unique<const MeshGroups>(*group, options_.topology.mesh,
                                                          options_.groups->sets());
    }
  }
  const bool gradients =
      options_.keep_gradients || options_.micro_steps > 1 || options_.collectives != nullptr;
  const ProgramOptions program_options{
      .engine = options_.engine,
      .device = options_.device.get(),
      .collectives = group,
      .groups = device_groups_ ? device_groups_.get() : options_.groups,
      .mesh = options_.topology.mesh,
      .several_micro_steps = options_.micro_steps > 1 && !options_.fixed_reduction,
      .keep_gradients = gradients,
      .frames = frames_of(schedule_),
      .lives = chunks_of(schedule_) > 1 ? frame_lives(schedule_) : FrameLives()};
  // The longest variant comes first: it defines the order of the state.
  for (size_t i = training_.size(); i-- > 0;) {
    training_programs_.emplace_back(training_[i].graph, program_options);
    layout_.add(training_[i].graph, gradients);
    work_bytes_ = std::max(work_bytes_, training_programs_.back().program().work_bytes());
  }
  std::reverse(training_programs_.begin(), training_programs_.end());
  variant_ = training_.size() - 1;
  if (evaluation_) {
    ProgramOptions evaluation_options = program_options;
    evaluation_options.several_micro_steps = true;  // sums run over all batches of a pass
    evaluation_options.capture = false;
    evaluation_options.keep_gradients = true;  // there are none
    evaluation_options.frames = 1;
    evaluation_options.lives.clear();
    evaluation_program_.emplace(evaluation_->graph, evaluation_options);
    layout_.add(evaluation_->graph);
    work_bytes_ = std::max(work_bytes_, evaluation_program_->program().work_bytes());
  }
}

Executor::~Executor() {
  // After an error, ranks may still exchange gradients in the memory that is freed here.
  if (options_.collectives != nullptr) options_.collectives->settle();
  if (options_.groups != nullptr) options_.groups->settle();
  try {
    if (stream_) stream_->synchronize();
  } catch (const Error&) {  // the device has failed, which was reported before
  }
  inputs_.reset();  // its stages lie in the arena
}

PlanReport Executor::report() const {
  PlanReport report = make_plan_report(training_program(), layout_, work_bytes_,
                                       options_.micro_steps, options_.topology);
  for (const LoadedProgram& loaded : training_programs_) {
    report.variant_bytes.push_back(loaded.program().work_bytes());
  }
  report.frames = frames_of(schedule_);
  report.stage_bytes = stage_bytes();
  report.arena_bytes = arena_bytes();
  return report;
}

void Executor::observe(StepObserver* observer) {
  observer_ = observer;
  for (LoadedProgram& loaded : training_programs_) {
    for (Frame& frame : loaded.frames()) frame.observe(observer);
  }
}

size_t Executor::stage_bytes() const {
  size_t bytes = 0, fields = 0;
  const auto count = [&](const StepGraph& graph) {
    bytes = std::max(bytes, batch_bytes(graph));
    fields = std::max(fields, graph.slots.size());
  };
  for (const StepGraph& graph : training_) count(graph);
  if (evaluation_) count(*evaluation_);
  return InputSlots::stage_bytes(*options_.device, bytes, fields);
}

void Executor::allocate() {
  Device& device = *options_.device;
  const size_t stages = stage_bytes();
  arena_ = Buffer(device, layout_.bytes() + work_bytes_ + stages);
  std::byte* work = arena_.data() + layout_.bytes();
  stream_ = device.make_stream();
  place_state(device, *stream_, arena_.data());
  const StateAddress state = state_addresses();
  for (size_t i = 0; i < training_.size(); ++i) {
    LoadedProgram& loaded = training_programs_[i];
    loaded.load(state, work);
    auto& buffers = training_buffers_.emplace_back();
    for (const Frame& frame : loaded.frames()) {
      buffers.push_back(buffers_of(training_[i], frame));
    }
  }
  if (evaluation_) {
    evaluation_program_->load(state, work);
    evaluation_buffers_ = buffers_of(*evaluation_, evaluation_program_->frame());
  }

  size_t metrics = 0;
  for (const StepMetric& metric : training().metrics) metrics += static_cast<size_t>(metric.size);
  const size_t each = slot_bytes(metrics);
  host_ = Buffer(device, kSlots * each, Memory::pinned_host);
  for (size_t i = 0; i < kSlots; ++i) {
    slots_.push_back({host_.data() + i * each, device.make_event()});
  }
  device_state_ = state_address("step_state");
  inputs_ = std::make_unique<InputSlots>(device, work + work_bytes_, stages, device_state_);
  for (const StepMetric& metric : training().metrics) {
    metric_bytes_.emplace_back(state_address(metric.name),
                               static_cast<size_t>(metric.size) * sizeof(double));
  }
  pending_.reserve(kSlots);
  report_.sums.resize(metrics);
}

std::vector<std::byte> Executor::read_bytes(size_t offset, size_t bytes) {
  std::vector<std::byte> out(bytes);
  options_.device->copy(out.data(), arena_.data() + offset, bytes, *stream_);
  wait_for_device();
  return out;
}

// Returns the bytes of all ranks along an axis of the mesh, one after another.
std::vector<std::byte> Executor::gather_bytes(std::span<const std::byte> own,
                                              std::string_view axis) const {
  static const auto subject = std::make_shared<const std::string>("the state in one place");
  const std::string over = options_.topology.mesh.over(axis);
  Collectives& ranks = over.empty() ? *options_.collectives : options_.groups->along(over);
  std::vector<std::byte> all(own.size() * static_cast<size_t>(ranks.size()));
  HostStream host;
  ranks.wait(ranks.all_gather(own.data(), all.data(), own.size(), DType::u8, host, subject), host);
  return all;
}

void Executor::collect_shards(const TensorUse& use) {
  // Puts the cuts of the ranks together. Messages have equal lengths.
  const auto use_whole = [&](const StateTensor& tensor, std::span<const std::byte> local) {
    if (!tensor.shard->cut) return use(tensor, local);
    const Cut& cut = *tensor.shard->cut;
    const auto bytes_of = [&](int rank) {
      return TensorSpec{cut.local(tensor.spec.shape, rank), tensor.spec.dtype}.bytes();
    };
    std::vector<std::byte> own(local.begin(), local.end()), whole(tensor.spec.bytes());
    own.resize(bytes_of(0));
    const std::vector<std::byte> all = gather_bytes(own, cut.axis);
    for (int rank = 0; rank < cut.ranks; ++rank) {
      copy_to_cut(tensor.spec, cut, rank,
                  std::span(all).subspan(own.size() * static_cast<size_t>(rank), bytes_of(rank)),
                  whole);
    }
    use(tensor, whole);
  };
  // Ranges of tensors in one unit are adjacent, and are gathered together.
  std::vector<std::pair<size_t, const StateTensor*>> shards;  // by the beginning of the unit's part
  for (const StateTensor& tensor : layout_.tensors()) {
    if (!tensor.shard || !tensor.shard->is_here || !rules_of(tensor.role).checkpointed) continue;
    const size_t at = tensor.shard->flat ? static_cast<size_t>(tensor.shard->range().at) : 0;
    shards.emplace_back(tensor.offset - at * dtype_size(tensor.spec.dtype), &tensor);
  }
  std::ranges::stable_sort(shards, {}, [](const auto& shard) { return shard.first; });
  std::vector<std::byte> unit;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto& [begin, tensor] = shards[i];
    const TensorSpec box = tensor->shard->box();
    if (!tensor->shard->flat) {
      use_whole(*tensor, read_bytes(begin, box.bytes()));
      continue;
    }
    const FlatCut& flat = *tensor->shard->flat;
    const size_t element = dtype_size(box.dtype);
    if (i == 0 || shards[i - 1].first != begin) {
      unit = gather_bytes(read_bytes(begin, static_cast<size_t>(flat.length) * element),
                          tensor->shard->cut && tensor->shard->cut->axis == mesh_axes::kExpert
                              ? mesh_axes::kStateOfExpert
                              : mesh_axes::kState);
    }
    use_whole(*tensor,
              std::span(unit).subspan(static_cast<size_t>(flat.first) * element, box.bytes()));
  }
}

void Executor::wait_for_device() {
  StateStore::wait_for_device();
  if (device_group_) device_group_->check();
}

void Executor::fill(size_t frame, FieldSpan fields, const StepInputs& state,
                    std::optional<size_t> variant) {
  const ObservedPart part(observer_, StepPart::inputs);
  variant_ = variant.value_or(training_.size() - 1);
  inputs_of_[frame] = state;
  inputs_frame_ = frame;
  inputs_->fill(training_buffers_[variant_][frame], fields, state, *stream_);
}

void Executor::run(const ScheduledSegment& segment) {
  if (segment.frame != inputs_frame_) {
    inputs_frame_ = segment.frame;
    inputs_->fill({}, {}, inputs_of_[segment.frame], *stream_);
  }
  LoadedProgram& program = training_programs_[variant_];
  const auto receive = [&](const std::vector<size_t>& list) {
    for (size_t i : list) {
      const ScheduledSegment& later = schedule_[i];
      program.frame(later.frame).receive(later.segment, later.variant, *stream_, later.chunk);
    }
  };
  // On GPUs all messages share one stream, and several chunks make the ranks a ring, so messages
  // have one order for all ranks (graph/schedule.h).
  const bool blocks = !options_.device->properties().on_host || program.program().chunks() > 1;
  std::function<void()> receive_next;
  if (blocks && !segment.before_sends.empty()) {
    receive_next = [&] { receive(segment.before_sends); };
  }
  for (size_t i : segment.sent) {
    program.frame(schedule_[i].frame).end_sends(*stream_, schedule_[i].chunk);
  }
  receive(segment.first);
  program.frame(segment.frame)
      .run(segment.segment, segment.variant, *stream_, receive_next, segment.chunk);
  if (segment.segment == Phase::update) queue_report(inputs_of_[segment.frame].step);
}

void Executor::micro_step(FieldSpan fields, const StepInputs& state, int64_t index,
                          std::optional<size_t> variant) {
  const MicroStep micro_step = micro_step_of(index, options_.micro_steps);
  fill(0, fields, state, variant);
  run({Phase::forward, 0, index, micro_step});
  run({Phase::backward, 0, index, micro_step});
  run({Phase::weights, 0, index, micro_step});
}

void Executor::forward(FieldSpan fields, const StepInputs& state) {
  fill(0, fields, state);
  run({Phase::forward});
}

void Executor::update() {
  run({Phase::update});
}

int Executor::lag() const {
  return options_.device->properties().on_host ? 0 : 1;
}

void Executor::queue_report(int64_t step) {
  check_internal(pending_.size() < kSlots, "{} reports were not collected", pending_.size());
  HostSlot& slot = slots_[next_slot_];
  options_.device->copy(slot.data, device_state_ + offsetof(StepState, out), sizeof(StepResults),
                        *stream_);
  std::byte* to = slot.data + sizeof(StepResults);
  for (const std::span<const std::byte> metric : metric_bytes_) {
    options_.device->copy(to, metric.data(), metric.size(), *stream_);
    to += metric.size();
  }
  slot.ready->record(*stream_);
  pending_.push_back({step, next_slot_});
  next_slot_ = (next_slot_ + 1) % kSlots;
}

const StepReport& Executor::collect() {
  check_internal(!pending_.empty(), "no step to collect");
  const Pending oldest = pending_.front();
  pending_.erase(pending_.begin());
  HostSlot& slot = slots_[oldest.slot];
  slot.ready->synchronize();
  if (device_group_) device_group_->check();
  report_.step = oldest.step;
  std::memcpy(&report_.results, slot.data, sizeof(StepResults));
  std::memcpy(report_.sums.data(), slot.data + sizeof(StepResults),
              report_.sums.size() * sizeof(double));
  return report_;
}

Executor::Progress Executor::progress() {
  StepState state;
  read_state("step_state", std::as_writable_bytes(std::span(&state, 1)));
  return {state.out.updates, state.out.loss_scale, state.out.scale_streak};
}

void Executor::set_progress(const Progress& progress) {
  StepState state{};
  state.out.updates = progress.updates;
  state.out.loss_scale = progress.loss_scale;
  state.out.scale_streak = progress.scale_streak;
  state.out.finite = 1;
  write_state("step_state", std::as_bytes(std::span(&state, 1)));
}

void Executor::evaluate(FieldSpan fields, int64_t position, bool first) {
  check_internal(evaluation_program_.has_value(), "no evaluation program");
  // Streams (data/token_windows.h) have one sample each in every global batch.
  StepInputs step_inputs{};
  step_inputs.step = position / options_.global_batch;
  step_inputs.sample_offset = position % options_.global_batch;
  inputs_->fill(evaluation_buffers_, fields, step_inputs, *stream_);
  evaluation_program_->frame().run(Phase::forward, first ? MicroStep::first : MicroStep::middle,
                                   *stream_);
}

std::vector<double> Executor::evaluation_sums() {
  size_t count = 0;
  for (const StepMetric& metric : evaluation_->metrics) count += static_cast<size_t>(metric.size);
  std::vector<double> sums(count);
  double* at = sums.data();
  for (const StepMetric& metric : evaluation_->metrics) {
    const auto size = static_cast<size_t>(metric.size);
    // Other stages of a pipeline have the metric.
    if (const std::byte* sum = find_state(metric.name)) {
      options_.device->copy(at, sum, size * sizeof(double), *stream_);
    }
    at += size;
  }
  wait_for_device();
  return sums;
}

std::vector<double> Executor::evaluation_output() {
  const TensorSpec& spec = evaluation_->output_spec;
  std::vector<double> out(static_cast<size_t>(spec.shape.elements()));
  std::vector<float> narrow(spec.dtype == DType::f64 ? 0 : out.size());
  void* to = narrow.empty() ? static_cast<void*>(out.data()) : narrow.data();
  evaluation_program_->read(evaluation_->output, to, *stream_);
  wait_for_device();
  std::copy(narrow.begin(), narrow.end(), out.begin());
  return out;
}

std::string Executor::find_non_finite(FieldSpan fields, const StepInputs& state,
                                      std::optional<size_t> variant) {
  fill(0, fields, state, variant);
  Frame& frame = training_programs_[variant_].frame();
  for (Phase phase : {Phase::forward, Phase::backward, Phase::weights}) {
    const std::string found = frame.find_non_finite(phase, MicroStep::first, *stream_);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace dltrain
