// Memory of a plan's values: blocks with the lifetime from first to last use, and their addresses.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/plan.h"

namespace dltrain {

// Lets an element-wise output reuse the block of an input whose last reader is this node.
void Plan::merge_in_place(size_t index, const std::vector<int>& last_use) {
  const Node& node = graph_.nodes[index];
  if (!node.op->in_place_allowed || node.outputs.size() != 1) return;
  const ValueId output = node.outputs[0];
  if (graph_.value(output).role != Role::activation) return;
  if (group_offsets_[static_cast<size_t>(output)].group >= 0) return;
  for (ValueId input : node.inputs) {
    if (input == kNoValue) continue;
    const ValueId root = graph_.storage(input);
    const int block = value_block_[static_cast<size_t>(root)];
    if (block < 0 || graph_.value(root).role != Role::activation) continue;
    if (group_offsets_[static_cast<size_t>(root)].group >= 0) continue;
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
  group_offsets_ = graph_.group_offsets();
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
      const int group = group_offsets_[static_cast<size_t>(id)].group;
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
  work_bytes_ = place_blocks(blocks_, reuse_copies());
}

// Returns the memory of the low-precision copies, which are adjacent in the order of their ids.
ReusableRegion Plan::reuse_copies() {
  ReusableRegion reused;
  if (options_.keep_gradients) return reused;
  const int end = static_cast<int>(graph_.nodes.size());
  // For each copy: the last node that reads it before the rewrite, and the node that rewrites it.
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
    // The update does not rewrite the copy of a frozen parameter, so its memory is never reused.
    MemoryBlock own{.bytes = graph_.value(copy).spec.bytes(),
                    .first = -1,
                    .last = written == end ? end : last_read,
                    .offset = reused.bytes};
    copies_.push_back({copy, reused.bytes});
    reused.bytes += align_up(own.bytes);
    reused.occupied.push_back(own);
    if (written == end) continue;
    own.first = written;
    own.last = end;
    reused.occupied.push_back(own);
  }
  return reused;
}

Plan::PeakMemory Plan::peak_memory() const {
  const auto end = graph_.nodes.size();
  std::vector<int64_t> bytes(end + 2, 0);  // by node, and after the last; changes first
  for (const MemoryBlock& block : blocks_) {
    if (block.reused || block.last < 0) continue;
    const auto aligned = static_cast<int64_t>(align_up(block.bytes));
    bytes[static_cast<size_t>(std::max(block.first, 0))] += aligned;
    bytes[static_cast<size_t>(block.last) + 1] -= aligned;
  }
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  PeakMemory out;
  if (end == 0) return out;
  out.node = static_cast<int>(
      std::max_element(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(end)) -
      bytes.begin());
  out.bytes = static_cast<size_t>(bytes[static_cast<size_t>(out.node)]);
  std::vector<bool> gradient(blocks_.size(), false), value(blocks_.size(), false);
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    if (value_block_[i] < 0) continue;
    value[static_cast<size_t>(value_block_[i])] = true;
    if (graph_.values[i].role == Role::gradient)
      gradient[static_cast<size_t>(value_block_[i])] = true;
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const MemoryBlock& block = blocks_[i];
    if (block.reused || block.bytes == 0 || block.first > out.node || block.last < out.node)
      continue;
    out.live.push_back({.node = block.first,
                        .bytes = align_up(block.bytes),
                        .gradient = gradient[i],
                        .workspace = !value[i]});
  }
  return out;
}

size_t Plan::workspace_bytes() const {
  size_t most = 0;
  for (const Call& call : calls_) most = std::max(most, call.kernel->workspace_bytes());
  return most;
}

void Plan::bind(const StateLayout& layout, std::byte* state, std::byte* work) {
  bind([&](const GraphValue& value) { return state + layout.offset_of(value); }, work);
}

void Plan::bind(const std::function<std::byte*(const GraphValue& value)>& state, std::byte* work) {
  addresses_.assign(graph_.values.size(), nullptr);
  for (const auto& [copy, offset] : copies_) {
    std::byte* address = state(graph_.value(copy));
    if (offset == 0) reused_ = address;
    check_internal(address == reused_ + offset, "{} is not at its offset in the reused memory",
                   graph_.value(copy).name);
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const ValueId root = graph_.storage(static_cast<ValueId>(i));
    const GraphValue& value = graph_.value(root);
    if (persistent(value.role)) {
      addresses_[i] = state(value);
    } else if (const int block = value_block_[static_cast<size_t>(root)]; block >= 0) {
      addresses_[i] = address(blocks_[static_cast<size_t>(block)], work) +
                      group_offsets_[static_cast<size_t>(root)].offset;
    }
  }
  bound_calls_.clear();
  for (const Call& call : calls_) {
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
    const int64_t slot = node.attributes.integer("slot", -1);
    bound_calls_.emplace_back(*call.kernel, inputs, outputs,
                              address(blocks_[call.workspace_block], work),
                              slot < 0 ? nullptr : &tickets_[static_cast<size_t>(slot)]);
  }
}

}  // namespace dltrain
