#include "passes/sequence_cut.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ops/gathered_parts.h"
#include "ops/kernel.h"
#include "ops/rules.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

class SequenceCut {
 public:
  SequenceCut(Graph& graph, const PartitionOptions& options)
      : graph_(graph),
        builder_(graph),
        over_(options.mesh.over(mesh_axes::kTensor)),
        ranks_(options.ranks()),
        rank_(options.mesh.coordinate(options.rank, mesh_axes::kTensor)),
        stages_(options.mesh.size(mesh_axes::kPipeline) > 1) {}

  int run(std::span<ValueId* const> kept) {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      builder_.set_place(node);
      place(std::move(node));
    }
    for (ValueId* id : kept) *id = whole(*id);
    graph_.update_producers();
    return scattered_;
  }

 private:
  // A value of which this rank has rows: the dimension that is cut evenly, and what one rank has.
  struct Rows {
    int dimension;
    TensorSpec whole;
  };

  bool is_cut(ValueId id) const { return rows_.contains(id); }
  TensorSpec whole_spec(ValueId id) const {
    if (id == kNoValue) return absent_spec();
    const auto rows = rows_.find(id);
    return rows == rows_.end() ? graph_.value(id).spec : rows->second.whole;
  }
  Placement cut_of(const TensorSpec& whole, int dimension) const {
    return {Placement::sharded, dimension, even_cut(whole.shape[dimension], ranks_)};
  }

  void place(Node node) {
    const bool reads_rows =
        std::ranges::any_of(node.inputs, [this](ValueId id) { return is_cut(id); });
    if (node.op->name == "all_reduce") {
      place_sum(std::move(node));
    } else if (!reads_rows) {
      graph_.append(std::move(node));
    } else if (node.op->name == "all_reduce_gradient") {
      node.attributes = message(rows_.at(node.inputs[0]).dimension);
      node.attributes.set(kAlwaysAgain, true);
      node.op = find_op("gather_tokens");
      graph_.value(node.outputs[0]).storage_of = kNoValue;
      graph_.append(std::move(node));
    } else if (!place_on_rows(node)) {
      for (ValueId& id : node.inputs) id = whole(id);
      graph_.append(std::move(node));
    }
  }

  // The first dimension but the last that can be cut evenly: rows of samples are adjacent in
  // messages.
  void place_sum(Node node) {
    const TensorSpec all = graph_.value(node.outputs[0]).spec;
    int dimension = 0;
    while (dimension < all.shape.rank() - 1 && all.shape[dimension] % ranks_ != 0) ++dimension;
    if (dimension >= all.shape.rank() - 1) {
      graph_.append(std::move(node));
      return;
    }
    ++scattered_;
    node.op = find_op("scatter_tokens");
    node.attributes = message(dimension);
    set_rows(node.outputs[0], dimension, all);
    graph_.append(std::move(node));
  }

  void set_rows(ValueId id, int dimension, const TensorSpec& whole) {
    rows_[id] = {dimension, whole};
    graph_.value(id).layout = {{mesh_axes::kTensor, cut_of(whole, dimension)}};
  }

  // Runs a node on rows if its rule allows this with its other inputs whole, or with the rows of
  // those that have as many.
  bool place_on_rows(Node& node) {
    if (node.op->place == nullptr) return false;
    SpecList specs;
    std::vector<Placement> placements;
    const Rows* first = nullptr;
    for (ValueId id : node.inputs) {
      specs.push_back(whole_spec(id));
      const auto rows = rows_.find(id);
      if (rows != rows_.end() && first == nullptr) first = &rows->second;
      placements.push_back(
          rows == rows_.end() ? kReplicated : cut_of(rows->second.whole, rows->second.dimension));
    }
    auto outputs = placed(node, specs, placements);
    if (!outputs) {
      const Shape& shape = first->whole.shape;
      for (size_t i = 0; i < specs.size(); ++i) {
        const int at = first->dimension - shape.rank() + specs[i].shape.rank();
        const bool has_rows = placements[i] == kReplicated && node.inputs[i] != kNoValue &&
                              at >= 0 && specs[i].shape[at] == shape[first->dimension];
        if (has_rows) placements[i] = cut_of(specs[i], at);
      }
      outputs = placed(node, specs, placements);
    }
    if (!outputs) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      if (id == kNoValue || is_cut(id)) continue;
      id = read_by_rows(id);
      if (placements[i] != kReplicated) id = sliced(id, placements[i]);
    }
    const TensorSpec all = graph_.value(node.outputs[0]).spec;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      set_rows(node.outputs[i], (*outputs)[i].dimension, whole_spec(node.outputs[i]));
    }
    localize(node, specs, all, placements, outputs->front(), rank_);
    graph_.append(std::move(node));
    return true;
  }

  // The placements of the outputs, if all are rows that are cut evenly.
  std::optional<std::vector<Placement>> placed(const Node& node, const SpecList& specs,
                                               const std::vector<Placement>& inputs) const {
    auto outputs = node.op->place(specs, node.attributes, inputs);
    const auto is_even = [&](const Placement& p) {
      return p.kind == Placement::sharded && p.parts.size() == 1 &&
             p.parts[0].length * ranks_ == p.parts[0].extent;
    };
    const bool fits = outputs && outputs->size() >= node.outputs.size() &&
                      std::ranges::all_of(*outputs, is_even) &&
                      std::ranges::all_of(node.outputs, [&](ValueId id) {
                        return graph_.value(id).role == Role::activation;
                      });
    return fits ? outputs : std::nullopt;
  }

  Attributes over() const { return over_.empty() ? Attributes() : Attributes{{kOver, over_}}; }
  Attributes message(int dimension) const {
    Attributes out = over();
    out.set("axis", int64_t{dimension});
    TokenCut(ranks_, rank_, false).set(out);
    return out;
  }

  // Returns a whole value as ops read it that run on rows. Each layer sums its own part of the
  // gradient of a parameter where the layers that share it may be in several stages.
  ValueId read_by_rows(ValueId id) {
    if (!is_floating(graph_.value(id).spec.dtype)) return id;
    const Role role = graph_.value(id).role;
    const bool apart = stages_ && (role == Role::parameter || role == Role::low_precision);
    const auto [read, first] =
        read_by_rows_.try_emplace({id, apart ? builder_.layer() : std::string()}, kNoValue);
    if (first) read->second = builder_.emit1("all_reduce_gradient", {id}, over());
    return read->second;
  }

  ValueId sliced(ValueId id, const Placement& rows) {
    const TensorSpec all = graph_.value(id).spec;
    const ValueId out = emit_ranges(builder_, id, rows.dimension, cut_ranges(rows.parts, rank_));
    set_rows(out, rows.dimension, all);
    return out;
  }

  // Returns a value for ops that every rank runs on the whole.
  ValueId whole(ValueId id) {
    const auto rows = rows_.find(id);
    if (rows == rows_.end()) return id;
    const auto [gathered, first] = whole_.try_emplace(id, kNoValue);
    if (first) {
      gathered->second = emit_gather(
          builder_, id, cut_of(rows->second.whole, rows->second.dimension), ranks_, rank_, over());
    }
    return gathered->second;
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::string over_;
  int ranks_, rank_;
  bool stages_;  // of a pipeline
  int scattered_ = 0;
  std::map<ValueId, Rows> rows_;
  std::map<ValueId, ValueId> whole_;
  std::map<std::pair<ValueId, std::string>, ValueId> read_by_rows_;  // by value and layer
};

}  // namespace

int cut_sequence(Graph& graph, const PartitionOptions& options, std::span<ValueId* const> kept) {
  const int scattered = SequenceCut(graph, options).run(kept);
  verify_pass(graph);
  return scattered;
}

}  // namespace dltrain
