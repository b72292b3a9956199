#include "passes/expert_cut.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "config/diagnostics.h"
#include "graph/builder.h"
#include "ops/gathered_parts.h"
#include "ops/rules.h"
#include "ops/token_runs.h"
#include "passes/context_cut.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// Returns the numbers of ranks that divide the experts: "1, 2, 4 or 8".
std::string divisors(int64_t experts) {
  std::vector<int64_t> all;
  for (int64_t n = 1; n <= experts; ++n) {
    if (experts % n == 0) all.push_back(n);
  }
  const int64_t last = all.back();
  all.pop_back();
  return all.empty() ? fmt::format("{}", last)
                     : fmt::format("{} or {}", fmt::join(all, ", "), last);
}

class ExpertCutter {
 public:
  ExpertCutter(Graph& graph, const ExpertCutOptions& options)
      : graph_(graph),
        builder_(graph),
        options_(options),
        ranks_(options.ranks()),
        context_(options.mesh.size(mesh_axes::kContext)),
        over_(options.mesh.over(mesh_axes::kExpert)) {}

  void run(std::vector<EmittedRouter>& routers) {
    if (routers.empty()) {
      fail_at(ranks_ > 1 ? options_.key : options_.capacity_key,
              "the model has no experts (layer moe); take {}",
              ranks_ > 1 ? "expert: 1" : "expert_capacity: dropless");
    }
    std::vector<ValueId> offsets;
    for (const EmittedRouter& router : routers) offsets.push_back(find_routing(router));
    for (Node& node : std::exchange(graph_.nodes, {})) {
      builder_.set_place(node);
      if (!moved_up_.contains(node.outputs.empty() ? kNoValue : node.outputs[0])) {
        rewrite(std::move(node));
      }
    }
    graph_.update_producers();
    for (size_t i = 0; i < routers.size(); ++i) {
      EmittedRouter& router = routers[i];
      const Layer& layer = *layer_of(offsets[i]);
      builder_.set_place(*graph_.producer_of(layer.sums));
      ValueId sums = layer.sums;
      if (context_ > 1 && !layer.of_own_tokens) {
        sums = emit_share(builder_, sums, {.mesh = options_.mesh, .compute = options_.compute});
      }
      router.sums = builder_.emit1("concat", {router.sums, sums}, {{"axis", int64_t{0}}});
      router.info.owners = ranks_;
      router.info.capacity = options_.capacity;
      router.info.buffer = options_.buffer;
    }
    graph_.update_producers();
  }

 private:
  // A layer with experts.
  struct Layer {
    ValueId rows = kNoValue, sources = kNoValue;   // in the buffers
    ValueId sent = kNoValue, received = kNoValue;  // rows of each rank
    ValueId sorted_rows = kNoValue, sorted_sources = kNoValue, sorted_offsets = kNoValue;
    ValueId sums = kNoValue;
    int64_t expected = 0;  // rows of this rank's experts
    bool of_own_tokens = false;
  };

  // The routing of all tokens, where a layer routes this rank's, and the gather of the
  // probabilities.
  struct WholeRouting {
    Node gather, routing;
  };

  // Returns the offsets of a layer's routing. A teacher's layers are not among the routers.
  ValueId find_routing(const EmittedRouter& router) {
    const Node* losses = graph_.producer_of(router.sums);  // or its part of the sums of all ranks
    while (losses->op->name != "router_losses") losses = graph_.producer_of(losses->inputs[0]);
    const Node* routing = graph_.producer_of(losses->inputs[1]);
    const Node* gather = graph_.producer_of(routing->inputs[0]);
    if (context_ == 1 || gather->op->name != "gather_tokens" || gather->attributes.has(kOver)) {
      students_[routing->outputs[4]] = {};
      return routing->outputs[4];
    }
    const auto own = std::ranges::find_if(graph_.nodes, [&](const Node& node) {
      return node.op->name == "top_k_routing" && node.inputs[0] == gather->inputs[0];
    });
    students_[own->outputs[4]] = WholeRouting{*gather, *routing};
    if (options_.capacity > 0) moved_up_.insert({gather->outputs[0], routing->outputs[0]});
    return own->outputs[4];
  }

  // Emits the routing of all tokens, and returns what place_rows reads of it.
  std::vector<ValueId> emit_whole(const WholeRouting& whole) {
    graph_.append(whole.gather);
    graph_.append(whole.routing);
    const ValueId rows = whole.routing.outputs[2];
    const auto axis = static_cast<int>(whole.gather.attributes.integer("axis"));
    const TokenCut cut(whole.gather.attributes);
    return {emit_ranges(builder_, rows, axis, cut.runs(builder_.spec(rows).shape[axis])),
            whole.routing.outputs[4]};
  }

  void rewrite(Node node) {
    replace_inputs(node, replaced_);
    if (node.op->name == "top_k_routing" && students_.contains(node.outputs[4])) {
      const std::vector<ValueId> outputs = node.outputs;
      graph_.append(std::move(node));
      add_layer(outputs, students_.at(outputs[4]));
    } else if (node.op->name == "dispatch_tokens" && layer_of(node.inputs[2])) {
      dispatch(node, *layer_of(node.inputs[2]));
    } else if (node.op->name == "combine_experts" && layer_of(node.inputs[1])) {
      combine(node, *layer_of(node.inputs[1]));
    } else if (node.op->name == "grouped_matmul" && layer_of(node.inputs[2])) {
      const Layer& layer = *layer_of(node.inputs[2]);
      shard(node.inputs[1]);
      node.inputs[2] = layer.sorted_offsets;
      node.attributes.set("rows", layer.expected);
      emit_again(node);
    } else if (std::ranges::any_of(node.inputs, [&](ValueId id) { return moved_.contains(id); })) {
      emit_again(node);
    } else {
      graph_.append(std::move(node));
    }
  }

  const Layer* layer_of(ValueId output_of_routing) const {
    const auto found = routed_.find(output_of_routing);
    return found == routed_.end() ? nullptr : &layers_[found->second];
  }

  // Rows for each owner: of K choices of T tokens.
  int64_t buffer_of(int64_t pairs, int64_t local, int64_t capacity) const {
    int64_t buffer = pairs;
    if (ranks_ > 1 && options_.buffer > 0) {
      const double average = static_cast<double>(pairs) / ranks_;
      buffer = std::min(buffer, static_cast<int64_t>(std::ceil(options_.buffer * average)));
    }
    return capacity > 0 ? std::min(buffer, capacity * local) : buffer;
  }

  void add_layer(const std::vector<ValueId>& routed, const std::optional<WholeRouting>& whole) {
    const ValueId rows = routed[2], offsets = routed[4];
    const int64_t pairs = builder_.spec(rows).shape.elements();
    const int64_t experts = builder_.spec(offsets).shape[0] - 1;
    std::vector<ValueId> inputs{rows, offsets};
    if (experts % ranks_ != 0) {
      fail_at(options_.key, "expert {}: {} has {} experts, which {} ranks fit", ranks_,
              builder_.layer(), experts, divisors(experts));
    }
    const int64_t local = experts / ranks_;
    int64_t capacity = 0;
    if (options_.capacity > 0) {
      const int64_t of_all = whole ? pairs * context_ : pairs;
      const double average = static_cast<double>(of_all) / static_cast<double>(experts);
      capacity = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(options_.capacity * average)));
    }
    if (whole && capacity > 0) {
      const std::vector<ValueId> of_all = emit_whole(*whole);
      inputs.insert(inputs.end(), {routed[3], of_all[0], of_all[1]});
    }
    const int64_t buffer = buffer_of(pairs, local, capacity);
    const auto placed =
        builder_.emit("place_rows", std::move(inputs),
                      {{"owners", int64_t{ranks_}}, {"buffer", buffer}, {"capacity", capacity}});
    Layer layer;
    layer.of_own_tokens = whole.has_value();
    layer.rows = placed[0];
    layer.sources = placed[1];
    layer.sent = placed[3];
    layer.sums = placed[4];
    const ValueId counts = exchange({placed[2]});
    const auto sorted = builder_.emit("sort_received", {counts}, {{"buffer", buffer}});
    layer.sorted_sources = sorted[0];
    layer.sorted_rows = sorted[1];
    layer.sorted_offsets = sorted[2];
    layer.received = sorted[3];
    layer.expected = std::min(pairs, buffer * ranks_);
    for (size_t i : {2, 3, 4}) routed_[routed[i]] = layers_.size();
    layers_.push_back(layer);
  }

  // Each rank's part goes to that rank. With one rank there is nothing to do.
  ValueId exchange(std::vector<ValueId> inputs) {
    if (ranks_ == 1) return inputs[0];
    Attributes attributes;
    if (!over_.empty()) attributes.set(kOver, over_);
    return builder_.emit1("all_to_all", std::move(inputs), std::move(attributes));
  }

  void dispatch(const Node& node, const Layer& layer) {
    const ValueId placed =
        builder_.emit1("dispatch_tokens", {node.inputs[0], layer.sources, layer.rows});
    ValueId rows = exchange({placed, layer.sent, layer.received});
    if (ranks_ > 1) {
      rows = builder_.emit1("dispatch_tokens", {rows, layer.sorted_sources, layer.sorted_rows});
    }
    replace(node.outputs[0], rows);
  }

  void combine(Node node, const Layer& layer) {
    ValueId rows = node.inputs[0];
    if (ranks_ > 1) {
      rows = builder_.emit1("combine_experts", {rows, layer.sorted_rows, layer.sorted_sources});
    }
    node.inputs[0] = exchange({rows, layer.received, layer.sent});
    node.inputs[1] = layer.rows;
    node.inputs[2] = layer.sources;
    graph_.append(std::move(node));
  }

  // Emits a node on rows of experts, whose number has changed.
  void emit_again(const Node& node) {
    const std::vector<ValueId> outputs = builder_.emit(node.op->name, node.inputs, node.attributes);
    for (size_t i = 0; i < outputs.size(); ++i) replace(node.outputs[i], outputs[i]);
  }

  void replace(ValueId old, ValueId made) {
    replaced_[old] = made;
    moved_.insert(made);
  }

  // Cuts the experts of a parameter, or of the average or copy that is read in its place.
  void shard(ValueId read) {
    if (ranks_ == 1) return;
    const auto made = std::ranges::find_if(
        graph_.nodes, [&](const Node& node) { return node.outputs == std::vector{read}; });
    if (made != graph_.nodes.end()) {  // a cast
      const ValueId from = made->inputs[0];
      shard(from);
      graph_.value(read).spec.shape = builder_.spec(from).shape;
      return;
    }
    const GraphValue& value = graph_.value(read);
    const ValueId parameter = value.of != kNoValue ? value.of : read;
    if (graph_.value(parameter).shard) return;
    const Placement placement{Placement::sharded, 0,
                              even_cut(graph_.value(parameter).spec.shape[0], ranks_)};
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      GraphValue& its = graph_.values[i];
      if (static_cast<ValueId>(i) != parameter && its.of != parameter) continue;
      its.layout = {{mesh_axes::kExpert, placement}};
      its.shard =
          Shard{.whole = its.spec,
                .cut = Cut{.axis = mesh_axes::kExpert,
                           .dimension = 0,
                           .ranks = ranks_,
                           .rank = options_.mesh.coordinate(options_.rank, mesh_axes::kExpert),
                           .parts = placement.parts}};
      its.spec = its.shard->stored();
    }
  }

  Graph& graph_;
  GraphBuilder builder_;
  const ExpertCutOptions& options_;
  const int ranks_, context_;
  const std::string over_;
  std::vector<Layer> layers_;
  std::map<ValueId, std::optional<WholeRouting>> students_;  // by the offsets of the layers
  std::set<ValueId> moved_up_;                               // first outputs of nodes
  std::map<ValueId, size_t> routed_;  // rows, sources and offsets of top_k_routing, and their layer
  Replacements replaced_;
  std::set<ValueId> moved_;  // rows of experts
};

}  // namespace

void expert_cut(Graph& graph, const ExpertCutOptions& options,
                std::vector<EmittedRouter>& routers) {
  if (!options.changes()) return;
  ExpertCutter(graph, options).run(routers);
  verify_pass(graph);
}

}  // namespace dltrain
