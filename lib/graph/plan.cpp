#include "graph/plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

bool accumulates(const Graph& graph, const Node& node) {
  return node.outputs.size() == 1 && graph.value(node.outputs[0]).storage_of == kNoValue &&
         rules_of(graph.value(node.outputs[0]).role).accumulates;
}

constexpr MicroStep kVariants[] = {MicroStep::first, MicroStep::middle, MicroStep::last,
                                   MicroStep::only};

}  // namespace

std::string_view micro_step_name(MicroStep micro_step) {
  constexpr std::string_view names[] = {"first", "middle", "last", "only"};
  return names[static_cast<size_t>(micro_step)];
}

MicroStep micro_step_of(int64_t index, int64_t count) {
  if (count == 1) return MicroStep::only;
  if (index == 0) return MicroStep::first;
  return index + 1 == count ? MicroStep::last : MicroStep::middle;
}

Plan::~Plan() = default;

Plan Plan::prepare(Graph graph, const PlanOptions& options) {
  verify_graph(graph);
  check_internal(options.keep_gradients || !options.several_micro_steps,
                 "gradients of several micro-steps must be kept");
  Plan plan(std::move(graph), options);
  plan.make_calls();
  plan.place_memory();
  plan.fill_segments();
  return plan;
}

void Plan::make_calls() {
  int64_t slots = 0;
  for (const Node& node : graph_.nodes) {
    slots = std::max(slots, node.attributes.integer("slot", -1) + 1);
  }
  tickets_.assign(static_cast<size_t>(slots), 0);
  plain_calls_.resize(graph_.nodes.size());
  accumulating_calls_.resize(graph_.nodes.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    // A part that continues a sum adds to it in every micro-step.
    const auto& outputs = graph_.nodes[i].outputs;
    add_call(i, outputs.size() == 1 && graph_.continues_sum(outputs[0]), plain_calls_[i]);
    if (options_.several_micro_steps && accumulates(graph_, graph_.nodes[i])) {
      add_call(i, true, accumulating_calls_[i]);
    }
  }
}

// Whom a collective op talks to.
Collectives* Plan::group_of(const Node& node) const {
  const std::string axis = node.attributes.text(kOver);
  if (axis.empty()) return options_.collectives;
  check_internal(options_.groups != nullptr, "{} over {} without groups", node.op->name, axis);
  return &options_.groups->along(axis);
}

void Plan::add_call(size_t index, bool accumulate, std::vector<size_t>& list) {
  const Node& node = graph_.nodes[index];
  const SpecList inputs = graph_.input_specs(node), outputs = graph_.output_specs(node);
  const auto request = [&](std::string_view op, const Attributes& attributes, SpecSpan in,
                           bool add) {
    return KernelRequest{.op = op,
                         .attributes = attributes,
                         .inputs = in,
                         .outputs = outputs,
                         .accumulate = add,
                         .device = *options_.device,
                         .collectives = group_of(node),
                         .tickets = tickets_};
  };
  const auto push = [&](FoundKernel found, bool add) -> Call& {
    list.push_back(calls_.size());
    calls_.push_back(
        {.kernel = std::move(found.kernel), .row = found.row, .node = index, .accumulate = add});
    return calls_.back();
  };
  try {
    FoundKernel found =
        find_kernel(*options_.engine, request(node.op->name, node.attributes, inputs, accumulate));
    if (found.kernel) {
      push(std::move(found), accumulate);
      return;
    }
    // No kernel of this op can add to its output: compute beside it, then add.
    push(find_kernel(*options_.engine, request(node.op->name, node.attributes, inputs, false)),
         false)
        .temporary_block = 0;  // numbered by place_memory
    const Attributes none;
    FoundKernel add = find_kernel(*options_.engine, request("identity", none, outputs, true));
    check_internal(add.kernel != nullptr, "the {} engine cannot add", options_.engine->name);
    push(std::move(add), true).adds_temporary = true;
  } catch (const Error& error) {
    if (node.layer.empty() || !error.place().empty()) throw;
    throw Error(error.code(), error.what(), node.layer);
  }
}

// An element-wise output takes over the block of an input that dies with this node.
void Plan::merge_in_place(size_t index, const std::vector<int>& last_use) {
  const Node& node = graph_.nodes[index];
  if (!node.op->in_place_allowed || node.outputs.size() != 1) return;
  const ValueId output = node.outputs[0];
  if (graph_.value(output).role != Role::activation) return;
  if (places_[static_cast<size_t>(output)].group >= 0) return;
  for (ValueId input : node.inputs) {
    if (input == kNoValue) continue;
    const ValueId root = graph_.storage(input);
    const int block = value_block_[static_cast<size_t>(root)];
    if (block < 0 || graph_.value(root).role != Role::activation) continue;
    if (places_[static_cast<size_t>(root)].group >= 0) continue;
    if (last_use[static_cast<size_t>(root)] != static_cast<int>(index)) continue;
    if (!(graph_.value(input).spec == graph_.value(output).spec)) continue;
    value_block_[static_cast<size_t>(output)] = block;
    return;
  }
}

void Plan::place_memory() {
  const int end = static_cast<int>(graph_.nodes.size());
  std::vector<int> last_use(graph_.values.size(), -2);
  for (int i = 0; i < end; ++i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (ValueId id : *ids) {
        if (id != kNoValue) last_use[static_cast<size_t>(graph_.storage(id))] = i;
      }
    }
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    if (graph_.values[i].role != Role::output) continue;
    last_use[static_cast<size_t>(graph_.storage(static_cast<ValueId>(i)))] = end;
  }
  places_ = graph_.group_places();
  std::vector<int> group_block(graph_.groups.size(), -1);
  value_block_.assign(graph_.values.size(), -1);
  const auto new_block = [&](size_t bytes, int first, int last) {
    blocks_.push_back({.bytes = bytes, .first = first, .last = last});
    return static_cast<int>(blocks_.size() - 1);
  };
  for (ValueId id : graph_.with_role(Role::input)) {
    value_block_[static_cast<size_t>(id)] = new_block(
        graph_.value(id).spec.bytes(), -1, std::max(last_use[static_cast<size_t>(id)], -1));
  }
  for (int i = 0; i < end; ++i) {
    const auto index = static_cast<size_t>(i);
    merge_in_place(index, last_use);
    for (ValueId id : graph_.nodes[index].outputs) {
      const GraphValue& value = graph_.value(id);
      if (value.storage_of != kNoValue || persistent(value.role)) continue;
      int& block = value_block_[static_cast<size_t>(id)];
      const int last = last_use[static_cast<size_t>(id)];
      const int group = places_[static_cast<size_t>(id)].group;
      if (group >= 0) block = group_block[static_cast<size_t>(group)];
      if (block < 0) {
        block = new_block(
            group >= 0 ? graph_.groups[static_cast<size_t>(group)].bytes : value.spec.bytes(), i,
            last);
        if (group >= 0) group_block[static_cast<size_t>(group)] = block;
      } else {
        MemoryBlock& shared = blocks_[static_cast<size_t>(block)];
        shared.last = std::max(shared.last, last);
      }
    }
  }
  for (Call& call : calls_) {
    const int at = static_cast<int>(call.node);
    call.workspace_block = static_cast<size_t>(new_block(call.kernel->workspace_bytes(), at, at));
    if (call.temporary_block >= 0) {
      const Node& node = graph_.nodes[call.node];
      call.temporary_block = new_block(graph_.value(node.outputs[0]).spec.bytes(), at, at);
    } else if (call.adds_temporary) {
      call.temporary_block = (&call - 1)->temporary_block;
    }
  }
  work_bytes_ = place_blocks(blocks_, lend_copies());
}

// The copies lie side by side in the region of state, in the order of their ids.
LentRegion Plan::lend_copies() {
  LentRegion lent;
  if (options_.keep_gradients) return lent;
  const int end = static_cast<int>(graph_.nodes.size());
  // Of each copy: the last node that reads it before the one that writes it, and that one.
  struct Uses {
    int last_read = -1, written = 0;
  };
  std::vector<Uses> uses(graph_.values.size(), {-1, end});
  for (int i = 0; i < end; ++i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    const auto of_storage = [&](ValueId id) -> Uses& {
      return uses[static_cast<size_t>(graph_.storage(id))];
    };
    for (ValueId id : node.outputs) {
      if (id != kNoValue) of_storage(id).written = std::min(of_storage(id).written, i);
    }
    for (ValueId id : node.inputs) {
      if (id != kNoValue && of_storage(id).written == end) of_storage(id).last_read = i;
    }
  }
  for (ValueId copy : graph_.with_role(Role::low_precision)) {
    if (graph_.value(copy).storage_of != kNoValue) continue;
    const auto [last_read, written] = uses[static_cast<size_t>(copy)];
    // Nobody would write the copy of a parameter that does not learn again.
    MemoryBlock own{.bytes = graph_.value(copy).spec.bytes(),
                    .first = -1,
                    .last = written == end ? end : last_read,
                    .offset = lent.bytes};
    copies_.push_back({copy, lent.bytes});
    lent.bytes += align_up(own.bytes);
    lent.taken.push_back(own);
    if (written == end) continue;
    own.first = written;
    own.last = end;
    lent.taken.push_back(own);
  }
  return lent;
}

size_t Plan::workspace_bytes() const {
  size_t most = 0;
  for (const Call& call : calls_) most = std::max(most, call.kernel->workspace_bytes());
  return most;
}

void Plan::fill_segments() {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    for (MicroStep variant : kVariants) {
      const bool begins = variant == MicroStep::first || variant == MicroStep::only;
      const bool ends = variant == MicroStep::last || variant == MicroStep::only;
      if (node.once_a_step && !ends) continue;
      const auto& calls =
          begins || accumulating_calls_[i].empty() ? plain_calls_[i] : accumulating_calls_[i];
      auto& list = segments_[static_cast<size_t>(node.phase)][static_cast<size_t>(variant)];
      list.insert(list.end(), calls.begin(), calls.end());
    }
  }
}

const std::vector<size_t>& Plan::segment(Phase segment, MicroStep variant) const {
  return segments_[static_cast<size_t>(segment)][static_cast<size_t>(variant)];
}

void Plan::bind(const StateLayout& layout, std::byte* state, std::byte* work) {
  bind([&](const GraphValue& value) { return state + layout.offset_of(value); }, work);
}

void Plan::bind(const std::function<std::byte*(const GraphValue& value)>& state, std::byte* work) {
  addresses_.assign(graph_.values.size(), nullptr);
  for (const auto& [copy, offset] : copies_) {
    std::byte* address = state(graph_.value(copy));
    if (offset == 0) lent_ = address;
    check_internal(address == lent_ + offset, "{} does not lie where it lends its memory",
                   graph_.value(copy).name);
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const ValueId root = graph_.storage(static_cast<ValueId>(i));
    const GraphValue& value = graph_.value(root);
    if (persistent(value.role)) {
      addresses_[i] = state(value);
    } else if (const int block = value_block_[static_cast<size_t>(root)]; block >= 0) {
      addresses_[i] = address(blocks_[static_cast<size_t>(block)], work) +
                      places_[static_cast<size_t>(root)].offset;
    }
  }
  for (Call& call : calls_) {
    const Node& node = graph_.nodes[call.node];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? nullptr : address(id));
    for (ValueId id : node.outputs) outputs.push_back(address(id));
    if (call.temporary_block >= 0) {
      void* temporary = address(blocks_[static_cast<size_t>(call.temporary_block)], work);
      if (call.adds_temporary) {
        inputs = {temporary};
      } else {
        outputs = {temporary};
      }
    }
    call.kernel->bind({.inputs = inputs,
                       .outputs = outputs,
                       .workspace = address(blocks_[call.workspace_block], work)});
  }
}

void* Plan::address(ValueId value) const {
  return addresses_[static_cast<size_t>(value)];
}

// "matmul in layers.2 (forward)"
std::string Plan::described(size_t index) const {
  const Node& node = graph_.nodes[index];
  return fmt::format("{} in {} ({})", node.op->name, node.layer.empty() ? "the model" : node.layer,
                     phase_name(node.phase));
}

void Plan::run_call(Call& call, Stream& stream) const {
  try {
    call.kernel->run(stream);
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    throw Error(error.code(), described(call.node) + ": " + error.what());
  }
}

void Plan::run_observed(const std::vector<size_t>& list, Stream& stream) {
  for (size_t call : list) {
    observer_->begin_call(*this, call, stream);
    run_call(calls_[call], stream);
    observer_->end_call(*this, call, stream);
  }
}

// Nothing where the backend does not capture.
std::vector<Plan::Piece> Plan::capture(const std::vector<size_t>& segment, Stream& stream) {
  std::vector<Piece> pieces;
  const auto captured = [&](size_t i) { return calls_[segment[i]].kernel->captured(); };
  for (size_t i = 0; i < segment.size();) {
    Piece piece{.begin = i};
    for (; i < segment.size() && captured(i) == captured(piece.begin); ++i) piece.end = i + 1;
    if (captured(piece.begin)) {
      piece.graph = options_.device->capture(stream, [&] {
        for (size_t k = piece.begin; k < piece.end; ++k) run_call(calls_[segment[k]], stream);
      });
      if (!piece.graph) return {};
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void Plan::run(Phase segment, MicroStep variant, Stream& stream) {
  const auto& list = segments_[static_cast<size_t>(segment)][static_cast<size_t>(variant)];
  if (observer_ != nullptr) return run_observed(list, stream);
  Capture& capture = captures_[static_cast<size_t>(segment)][static_cast<size_t>(variant)];
  const auto run_calls = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) run_call(calls_[list[i]], stream);
  };
  // The first run is never captured: vendor libraries finish their set-up in it.
  if (options_.capture && capture.runs == 1) capture.pieces = this->capture(list, stream);
  if (capture.runs < 2) ++capture.runs;
  if (capture.pieces.empty()) return run_calls(0, list.size());
  for (const Piece& piece : capture.pieces) {
    if (piece.graph) {
      piece.graph->launch(stream);
    } else {
      run_calls(piece.begin, piece.end);
    }
  }
}

namespace {

template <typename T>
int64_t count_non_finite(const std::vector<std::byte>& bytes, int64_t elements) {
  const T* values = reinterpret_cast<const T*>(bytes.data());
  return std::count_if(values, values + elements, [](T v) {
    if constexpr (std::is_floating_point_v<T>) return !std::isfinite(v);
    if constexpr (!std::is_floating_point_v<T>) return !std::isfinite(to_f32(v));
  });
}

int64_t count_non_finite(DType dtype, const std::vector<std::byte>& bytes, int64_t elements) {
  switch (dtype) {
    case DType::f32:
      return count_non_finite<float>(bytes, elements);
    case DType::f64:
      return count_non_finite<double>(bytes, elements);
    case DType::bf16:
      return count_non_finite<Bf16>(bytes, elements);
    case DType::f16:
      return count_non_finite<F16>(bytes, elements);
    default:
      return 0;
  }
}

}  // namespace

std::string Plan::find_non_finite(Phase segment, MicroStep variant, Stream& stream) {
  for (size_t index : this->segment(segment, variant)) {
    Call& call = calls_[index];
    run_call(call, stream);
    const Node& node = graph_.nodes[call.node];
    for (ValueId id : node.outputs) {
      const TensorSpec& spec = graph_.value(id).spec;
      if (!is_floating(spec.dtype)) continue;
      std::vector<std::byte> host(spec.bytes());
      options_.device->copy(host.data(), address(id), host.size(), stream);
      stream.synchronize();
      const int64_t n = spec.shape.elements();
      const int64_t bad = count_non_finite(spec.dtype, host, n);
      if (bad != 0) {
        return fmt::format("{}: {} of {} values", described(call.node), bad, n);
      }
    }
  }
  return {};
}

}  // namespace dltrain
