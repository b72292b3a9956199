#include "runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/float_tensors.h"

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

std::vector<InputBuffer> buffers_of(const StepGraph& graph, const Plan& plan) {
  std::vector<InputBuffer> buffers;
  for (ValueId slot : graph.slots) {
    buffers.push_back(
        {static_cast<std::byte*>(plan.address(slot)), graph.graph.value(slot).spec.bytes()});
  }
  return buffers;
}

// Returns the bytes of `whole` that this rank stores; `local` may hold them.
std::span<const std::byte> own_shard(const StateTensor& tensor, std::span<const std::byte> whole,
                                     std::vector<std::byte>& local) {
  if (!tensor.shard) return whole;
  const Shard& shard = *tensor.shard;
  if (shard.cut) {
    local.resize(shard.local().bytes());
    copy_from_box(tensor.spec, shard.cut->box(tensor.spec.shape, shard.cut->rank), whole, local);
    whole = local;
  }
  const size_t element = dtype_size(tensor.spec.dtype);
  return whole.subspan(static_cast<size_t>(shard.begin) * element,
                       static_cast<size_t>(shard.count) * element);
}

// Returns whether this rank stores a box of a tensor, and not a range of its bytes.
bool is_cut(const StateTensor& tensor) {
  return tensor.shard && tensor.shard->cut;
}

// The bytes of a tensor that this rank stores, from its address on.
ByteRange stored_range(const StateTensor& tensor) {
  if (!tensor.shard) return {0, tensor.spec.bytes()};
  const size_t element = dtype_size(tensor.spec.dtype);
  const size_t begin = static_cast<size_t>(tensor.shard->begin) * element;
  return {begin, begin + static_cast<size_t>(tensor.shard->count) * element};
}

}  // namespace

Executor::Executor(ExecutorOptions options, std::vector<StepGraph> training,
                   std::optional<StepGraph> evaluation)
    : options_(std::move(options)),
      training_(std::move(training)),
      evaluation_(std::move(evaluation)) {
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
  const PlanOptions plan_options{
      .engine = options_.engine,
      .device = options_.device.get(),
      .collectives = group,
      .groups = device_groups_ ? device_groups_.get() : options_.groups,
      .several_micro_steps = options_.micro_steps > 1 && !options_.fixed_reduction,
      .capture = options_.capture,
      .keep_gradients = gradients};
  // The longest variant comes first: it defines the order of the state.
  training_plans_.resize(training_.size());
  for (size_t i = training_.size(); i-- > 0;) {
    training_plans_[i] = std::make_unique<Plan>(Plan::prepare(training_[i].graph, plan_options));
    layout_.add(training_[i].graph, gradients);
    work_bytes_ = std::max(work_bytes_, training_plans_[i]->work_bytes());
  }
  variant_ = training_.size() - 1;
  if (evaluation_) {
    PlanOptions evaluation_options = plan_options;
    evaluation_options.several_micro_steps = true;  // sums run over all batches of a pass
    evaluation_options.capture = false;
    evaluation_options.keep_gradients = true;  // there are none
    evaluation_plan_ =
        std::make_unique<Plan>(Plan::prepare(evaluation_->graph, evaluation_options));
    layout_.add(evaluation_->graph);
    work_bytes_ = std::max(work_bytes_, evaluation_plan_->work_bytes());
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
  PlanReport report = make_plan_report(training_plan(), layout_, work_bytes_, options_.micro_steps,
                                       options_.topology);
  for (const auto& plan : training_plans_) report.variant_bytes.push_back(plan->work_bytes());
  report.stage_bytes = stage_bytes();
  report.arena_bytes += report.stage_bytes;
  return report;
}

void Executor::observe(StepObserver* observer) {
  observer_ = observer;
  for (const auto& plan : training_plans_) plan->observe(observer);
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
  for (const auto& plan : training_plans_) plan->bind(layout_, arena_.data(), work);
  if (evaluation_plan_) evaluation_plan_->bind(layout_, arena_.data(), work);
  stream_ = device.make_stream();
  for (size_t i = 0; i < training_.size(); ++i) {
    training_buffers_.push_back(buffers_of(training_[i], *training_plans_[i]));
  }
  if (evaluation_) evaluation_buffers_ = buffers_of(*evaluation_, *evaluation_plan_);

  const size_t metrics = training().metrics.size(), each = slot_bytes(metrics);
  host_ = Buffer(device, kSlots * each, Memory::pinned_host);
  for (size_t i = 0; i < kSlots; ++i) {
    slots_.push_back({host_.data() + i * each, device.make_event()});
  }
  device_state_ = state_address("step_state");
  inputs_ = std::make_unique<InputSlots>(device, work + work_bytes_, stages, device_state_);
  for (const StepMetric& metric : training().metrics) {
    metric_addresses_.push_back(state_address(metric.name));
  }
  pending_.reserve(kSlots);
  report_.sums.resize(metrics);
}

std::byte* Executor::find_state(std::string_view name) const {
  const StateTensor* tensor = layout_.find(name);
  return tensor == nullptr ? nullptr : arena_.data() + tensor->offset;
}

std::byte* Executor::state_address(std::string_view name) const {
  std::byte* address = find_state(name);
  check_internal(address != nullptr, "no state is named {}", name);
  return address;
}

void Executor::write_state(std::string_view name, std::span<const std::byte> bytes) {
  const StateTensor* tensor = layout_.find(name);
  if (tensor != nullptr && tensor->role == Role::parameter && tensor->spec.dtype == DType::bf16 &&
      bytes.size() == 2 * tensor->spec.bytes()) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    write_state(name, bytes_as(values, DType::bf16));
    return;
  }
  check_internal(tensor != nullptr && tensor->spec.bytes() == bytes.size(), "writing {}: {} bytes",
                 name, bytes.size());
  if (!is_cut(*tensor)) return write_range(name, 0, bytes);
  std::vector<std::byte> local;
  const std::span<const std::byte> own = own_shard(*tensor, bytes, local);
  options_.device->copy(state_address(name), own.data(), own.size(), *stream_);
  stream_->synchronize();
  if (const StateTensor* copy = copy_of(*tensor)) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    write_state(copy->name, bytes_as(values, copy->spec.dtype));
  }
}

const StateTensor* Executor::copy_of(const StateTensor& tensor) const {
  return tensor.role == Role::parameter ? layout_.find(tensor.name, Role::low_precision) : nullptr;
}

std::optional<ByteRange> Executor::writable_range(std::string_view name, DType dtype) const {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  if (tensor->spec.dtype != dtype || is_cut(*tensor)) return {};
  ByteRange out = stored_range(*tensor);
  const StateTensor* copy = copy_of(*tensor);
  if (copy == nullptr) return out;
  const size_t ratio = dtype_size(tensor->spec.dtype) / dtype_size(copy->spec.dtype);
  const ByteRange rounded = stored_range(*copy);
  return ByteRange{std::min(out.begin, rounded.begin * ratio),
                   std::max(out.end, rounded.end * ratio)};
}

void Executor::write_range(std::string_view name, uint64_t begin,
                           std::span<const std::byte> bytes) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  const ByteRange own = stored_range(*tensor);
  const uint64_t from = std::max(begin, own.begin), to = std::min(begin + bytes.size(), own.end);
  if (from < to) {
    options_.device->copy(state_address(name) + (from - own.begin), bytes.data() + (from - begin),
                          to - from, *stream_);
    stream_->synchronize();
  }
  if (const StateTensor* copy = copy_of(*tensor)) refresh_copy(*copy, begin, bytes);
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
      const TensorBox box = cut.box(tensor.spec.shape, rank);
      return static_cast<size_t>(box.extent.elements()) * dtype_size(tensor.spec.dtype);
    };
    std::vector<std::byte> own(local.begin(), local.end()), whole(tensor.spec.bytes());
    own.resize(bytes_of(0));
    const std::vector<std::byte> all = gather_bytes(own, cut.axis);
    for (int rank = 0; rank < cut.ranks; ++rank) {
      copy_to_box(tensor.spec, cut.box(tensor.spec.shape, rank),
                  std::span(all).subspan(own.size() * static_cast<size_t>(rank), bytes_of(rank)),
                  whole);
    }
    use(tensor, whole);
  };
  for (size_t u = 0; u < layout_.units().size(); ++u) {
    const StateUnit& part = layout_.units()[u];
    if (part.window || !rules_of(part.role).checkpointed) continue;
    const std::vector<std::byte> unit =
        gather_bytes(read_bytes(part.offset, part.spec.bytes()), mesh_axes::kShard);
    for (const StateTensor& tensor : layout_.tensors()) {
      if (tensor.unit != u) continue;
      const TensorSpec local = tensor.shard->local();
      const size_t first = static_cast<size_t>(tensor.shard->first) * dtype_size(local.dtype);
      use_whole(tensor, std::span(unit).subspan(first, local.bytes()));
    }
  }
  for (const StateTensor& tensor : layout_.tensors()) {
    if (!tensor.shard || tensor.unit || !rules_of(tensor.role).checkpointed) continue;
    use_whole(tensor, read_bytes(tensor.offset, tensor.own_bytes()));
  }
}

void Executor::refresh_copy(const StateTensor& copy, uint64_t begin,
                            std::span<const std::byte> bytes) {
  // The elements that this rank stores, counted from the beginning of `bytes`.
  const ByteRange own = stored_range(copy);
  const size_t each = dtype_size(copy.spec.dtype);
  const uint64_t first = begin / sizeof(float), all = bytes.size() / sizeof(float);
  const uint64_t from = std::clamp(own.begin / each, first, first + all) - first;
  const uint64_t to = std::clamp(own.end / each, first, first + all) - first;
  std::vector<float> values(to - from);
  if (values.empty()) return;
  std::memcpy(values.data(), bytes.data() + from * sizeof(float), values.size() * sizeof(float));
  write_range(copy.name, (first + from) * each, bytes_as(values, copy.spec.dtype));
}

void Executor::read_state(std::string_view name, std::span<std::byte> bytes) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr && !tensor->shard && tensor->spec.bytes() == bytes.size(),
                 "reading {}: {} bytes", name, bytes.size());
  options_.device->copy(bytes.data(), state_address(name), bytes.size(), *stream_);
  wait_for_device();
}

// Waits for the stream, and throws if a collective on it has failed.
void Executor::wait_for_device() {
  stream_->synchronize();
  if (device_group_) device_group_->check();
}

std::vector<float> Executor::read_floats(std::string_view name) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  std::vector<std::byte> bytes(tensor->spec.bytes());
  read_state(name, bytes);
  return floats_of(bytes, tensor->spec.dtype);
}

std::span<const std::byte> Executor::view_state(std::string_view name,
                                                std::vector<std::byte>& buffer) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr && !tensor->shard, "{} is sharded", name);
  if (options_.device->properties().on_host) {
    stream_->synchronize();
    return {state_address(name), tensor->spec.bytes()};
  }
  buffer.resize(tensor->spec.bytes());
  read_state(name, buffer);
  return buffer;
}

void Executor::micro_step(FieldSpan fields, const StepInputs& state, int64_t index,
                          std::optional<size_t> variant) {
  const MicroStep micro_step = micro_step_of(index, options_.micro_steps);
  variant_ = variant.value_or(training_.size() - 1);
  run_forward(fields, state, micro_step);
  training_plans_[variant_]->run(Phase::backward, micro_step, *stream_);
}

void Executor::forward(FieldSpan fields, const StepInputs& state) {
  variant_ = training_.size() - 1;
  run_forward(fields, state, MicroStep::only);
}

void Executor::run_forward(FieldSpan fields, const StepInputs& state, MicroStep micro_step) {
  Plan& plan = *training_plans_[variant_];
  {
    const ObservedPart part(observer_, StepPart::inputs);
    inputs_->fill(training_buffers_[variant_], fields, state, *stream_);
  }
  plan.run(Phase::forward, micro_step, *stream_);
}

void Executor::update(const StepInputs& state) {
  // The same plan waits for the reductions that its backward has started.
  training_plans_[variant_]->run(Phase::update, MicroStep::only, *stream_);
  queue_report(state.step);
}

int Executor::lag() const {
  return options_.device->properties().on_host ? 0 : 1;
}

void Executor::queue_report(int64_t step) {
  check_internal(pending_.size() < kSlots, "{} reports were not collected", pending_.size());
  HostSlot& slot = slots_[next_slot_];
  options_.device->copy(slot.data, device_state_ + offsetof(StepState, out), sizeof(StepResults),
                        *stream_);
  for (size_t i = 0; i < metric_addresses_.size(); ++i) {
    options_.device->copy(slot.data + sizeof(StepResults) + i * sizeof(double),
                          metric_addresses_[i], sizeof(double), *stream_);
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
  check_internal(evaluation_plan_ != nullptr, "no evaluation plan");
  // Streams (data/parallel_streams.h) have one sample each in every global batch.
  StepInputs step_inputs{};
  step_inputs.step = position / options_.global_batch;
  step_inputs.sample_offset = position % options_.global_batch;
  inputs_->fill(evaluation_buffers_, fields, step_inputs, *stream_);
  evaluation_plan_->run(Phase::forward, first ? MicroStep::first : MicroStep::middle, *stream_);
}

std::vector<double> Executor::evaluation_sums() {
  size_t count = 0;
  for (const StepMetric& metric : evaluation_->metrics) count += static_cast<size_t>(metric.size);
  std::vector<double> sums(count);
  double* at = sums.data();
  for (const StepMetric& metric : evaluation_->metrics) {
    const auto size = static_cast<size_t>(metric.size);
    options_.device->copy(at, state_address(metric.name), size * sizeof(double), *stream_);
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
  options_.device->copy(to, evaluation_plan_->address(evaluation_->output), spec.bytes(), *stream_);
  wait_for_device();
  std::copy(narrow.begin(), narrow.end(), out.begin());
  return out;
}

std::string Executor::find_non_finite(FieldSpan fields, const StepInputs& state,
                                      std::optional<size_t> variant) {
  const size_t which = variant.value_or(training_.size() - 1);
  Plan& plan = *training_plans_[which];
  inputs_->fill(training_buffers_[which], fields, state, *stream_);
  const std::string found = plan.find_non_finite(Phase::forward, MicroStep::first, *stream_);
  if (!found.empty()) return found;
  return plan.find_non_finite(Phase::backward, MicroStep::first, *stream_);
}

}  // namespace dltrain
