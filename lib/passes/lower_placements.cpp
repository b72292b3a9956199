// Lowers the changes of placement of a partitioned graph (partition.h) to collectives.
#include <algorithm>

#include "ops/gathered_parts.h"
#include "passes/partition.h"
#include "passes/tensor_sums.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

class PlacementLowering {
 public:
  explicit PlacementLowering(Graph& graph)
      : graph_(graph), builder_(graph), slot_(graph.next_slot()) {}

  void run(std::span<ValueId* const> kept) {
    readers_ = count_uses_and_views(graph_);
    for (Node& node : std::exchange(graph_.nodes, {})) {
      replace_inputs(node, replaced_);
      for (ValueId id : node.outputs) {
        ValueId& base = graph_.value(id).storage_of;
        base = replaced(replaced_, base);
      }
      lower(std::move(node));
    }
    for (ValueId* id : kept) *id = replaced(replaced_, *id);
    graph_.update_producers();
  }

 private:
  void lower(Node node) {
    builder_.set_place(node);
    const ValueId x = node.inputs.empty() ? kNoValue : node.inputs[0];
    if (node.op->name == "all_reduce_gradient") {
      replaced_[node.outputs[0]] = x;
    } else if (node.op->name == "all_reduce") {
      finish(node, reduce(node, x));
    } else if (node.op->name == "all_to_all") {
      finish(node, exchange(node));
    } else if (node.op->name == "all_gather") {
      finish(node, gather(node, x));
    } else {
      graph_.nodes.push_back(std::move(node));
    }
  }

  // The result takes the name and role of the node's; a sum needs its own memory.
  void finish(const Node& node, ValueId result) {
    const GraphValue before = graph_.value(node.outputs[0]);
    if (before.role != Role::activation) {
      result = builder_.emit1("identity", {result});
      GraphValue& value = graph_.value(result);
      value.name = before.name;
      value.role = before.role;
      value.of = before.of;
      value.kind = before.kind;
      if (before.storage_of != kNoValue) value.storage_of = before.storage_of;
      graph_.value(node.outputs[0]) = {.spec = before.spec};
    }
    replaced_[node.outputs[0]] = result;
  }

  // The sum is in place, unless others read the partial result too.
  ValueId reduce(const Node& node, ValueId x) {
    const GraphValue& value = graph_.value(x);
    const bool alone = value.role == Role::activation && value.storage_of == kNoValue &&
                       static_cast<size_t>(x) < readers_.size() &&
                       readers_[static_cast<size_t>(x)] == 1;
    if (!alone) x = builder_.emit1("identity", {x});
    Attributes attributes = node.attributes;
    attributes.set("slot", slot_++);
    x = builder_.emit1("all_reduce_begin", {x}, attributes);
    return builder_.emit1("all_reduce_end", {x}, attributes);
  }

  ValueId exchange(const Node& node) {
    const Attributes attributes = message_attributes(slot_++, node.attributes.text(kOver));
    std::vector<ValueId> inputs = node.inputs;
    const ValueId begun = builder_.emit1("all_to_all_begin", inputs, attributes);
    inputs.insert(inputs.begin(), begun);
    return builder_.emit1("all_to_all_end", inputs, attributes);
  }

  // Messages have shards of equal length, padded at the end: those of rank 0. They arrive one after
  // another and are put in a row along the dimension, then what is not padding is put in order.
  ValueId gather(const Node& node, ValueId x) {
    const int dimension = static_cast<int>(node.attributes.integer("dimension"));
    const auto ranks = static_cast<int>(node.attributes.integer("ranks"));
    const CutParts parts = gathered_parts(node.attributes);
    const int64_t length = cut_extent(parts, 0);
    const Shape& shard = graph_.value(x).spec.shape;
    const int64_t missing = length - shard[dimension];
    if (missing > 0) {
      std::vector<int64_t> before(static_cast<size_t>(shard.rank()), 0), after = before;
      after[static_cast<size_t>(dimension)] = missing;
      x = builder_.emit1("pad", {x}, {{"before", before}, {"after", after}});
    }
    x = emit_all_gather(builder_, x, dimension, ranks, node.attributes.text(kOver), slot_++);
    // One part: the ranges of the ranks are adjacent, and padding is at the end.
    if (parts.size() == 1 && parts[0].extent == length * ranks) return x;
    if (parts.size() == 1) return emit_range(builder_, x, dimension, {0, parts[0].extent});
    std::vector<CutRange> pieces;
    for (size_t part = 0; part < parts.size(); ++part) {
      for (int rank = 0; rank < ranks; ++rank) {
        int64_t at = length * rank;
        const auto ranges = cut_ranges(parts, rank);
        for (size_t earlier = 0; earlier < part; ++earlier) at += ranges[earlier].extent;
        pieces.push_back({at, ranges[part].extent});
      }
    }
    return emit_ranges(builder_, x, dimension, pieces);
  }

  Graph& graph_;
  GraphBuilder builder_;
  int64_t slot_;
  std::vector<int> readers_;  // and views, of each value of the input graph
  Replacements replaced_;
};

// Gives the state that belongs to sharded parameters their layouts and shards.
void inherit_layouts(Graph& graph) {
  for (GraphValue& value : graph.values) {
    const bool inherits =
        value.role == Role::gradient || value.role == Role::moment || value.role == Role::ema;
    if (!inherits || value.of == kNoValue) continue;
    const GraphValue& parameter = graph.value(value.of);
    if (parameter.layout.empty() || !(parameter.spec.shape == value.spec.shape)) continue;
    value.layout = parameter.layout;
    if (value.role == Role::gradient) continue;
    value.shard = parameter.shard;
    value.shard->whole.dtype = value.spec.dtype;
  }
}

// The most sets of axes over which gradients can be sharded: any of none, `tensor` and `expert`,
// with and without those of ZeRO.
constexpr int64_t kMostSets = 6;

}  // namespace

std::vector<int> count_uses_and_views(const Graph& graph) {
  std::vector<int> out = graph.count_uses();
  for (const GraphValue& value : graph.values) {
    if (value.storage_of != kNoValue) ++out[static_cast<size_t>(value.storage_of)];
  }
  return out;
}

void lower_placements(Graph& graph, std::span<ValueId* const> kept) {
  PlacementLowering(graph).run(kept);
  inherit_layouts(graph);
  verify_pass(graph);
}

void reduce_update_sums(Graph& graph, const Mesh& mesh) {
  if (mesh.size(mesh_axes::kCutAndPipeline) == 1) return;
  int64_t slot = graph.next_slot();
  GraphBuilder builder(graph);
  builder.set_phase(Phase::update);
  TensorSums sums(builder, mesh, slot);
  for (Node& node : std::exchange(graph.nodes, {})) {
    builder.set_layer(node.layer);
    if (node.op->update != UpdateKind::norm) {
      sums.add_up(node);
      graph.nodes.push_back(std::move(node));
      const Node& last = graph.nodes.back();
      if (last.op->update == UpdateKind::sums) {
        sums.note(last, cut_axis(graph.value(graph.storage(last.inputs[1]))));
      }
      continue;
    }
    emit_sharded_norm(builder, node, std::span(node.inputs).subspan(1), mesh, slot);
  }
  graph.update_producers();
  verify_pass(graph);
}

Attributes message_attributes(int64_t slot, const std::string& over) {
  Attributes out{{"slot", slot}};
  if (!over.empty()) out.set(kOver, over);
  return out;
}

std::vector<ValueId> emit_all_reduce(GraphBuilder& builder, const std::vector<ValueId>& values,
                                     const std::string& over, int64_t slot) {
  const Attributes message = message_attributes(slot, over);
  return builder.emit("all_reduce_end", builder.emit("all_reduce_begin", values, message), message);
}

ValueId emit_all_gather(GraphBuilder& builder, ValueId x, int dimension, int64_t ranks,
                        const std::string& over, int64_t slot) {
  Shape all = builder.spec(x).shape;
  const int64_t outer = all.elements(0, dimension), inner = all.elements(dimension, all.rank());
  Attributes begin = message_attributes(slot, over), end = begin;
  begin.set("shapes", std::vector<int64_t>{3, ranks, outer, inner});
  end.set("part", true);
  const ValueId begun = builder.emit1("all_gather_begin", {x}, begin);
  ValueId y = builder.emit1("all_gather_end", {begun, x}, end);
  if (outer > 1) {
    y = builder.emit1("transpose", {y}, {{"permutation", std::vector<int64_t>{1, 0, 2}}});
  }
  all[dimension] *= ranks;
  return builder.reshape(y, all);
}

void emit_sharded_norm(GraphBuilder& builder, const Node& norm, std::span<const ValueId> gradients,
                       const Mesh& mesh, int64_t& slot) {
  Graph& graph = builder.graph();
  std::vector<std::pair<std::string, std::vector<ValueId>>> by_axes;
  for (ValueId id : gradients) {
    std::string axes;
    for (const AxisPlacement& axis : graph.value(graph.storage(id)).layout) {
      axes += (axes.empty() ? "" : ",") + axis.axis;
    }
    const auto known = std::ranges::find(by_axes, axes, [](const auto& set) { return set.first; });
    if (known != by_axes.end()) {
      known->second.push_back(id);
    } else {
      by_axes.push_back({axes, {id}});
    }
  }
  std::vector<ValueId> sums;
  for (const auto& [axes, members] : by_axes) {
    ValueId squares = builder.emit1("sum_of_squares", members);
    if (!axes.empty()) {
      squares = emit_all_reduce(builder, {squares}, mesh.over(axes), slot++)[0];
    }
    sums.push_back(squares);
  }
  ValueId all = sums.size() == 1 ? sums[0] : builder.emit1("concat", sums, {{"axis", int64_t{0}}});
  if (mesh.size(mesh_axes::kPipeline) > 1) {
    // The stages may have different sets of axes, but send as many numbers.
    all = builder.emit1("pad", {all},
                        {{"before", std::vector<int64_t>{0}},
                         {"after", std::vector{kMostSets - static_cast<int64_t>(sums.size())}}});
    all = emit_all_reduce(builder, {all}, mesh_axes::kPipeline, slot++)[0];
  }
  builder.emit("gradient_norm_of", {norm.inputs[0], all});
  graph.nodes.back().outputs = norm.outputs;  // read by the rest of the update
}

}  // namespace dltrain
