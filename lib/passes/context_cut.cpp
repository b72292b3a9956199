#include "passes/context_cut.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "config/diagnostics.h"
#include "ops/attention.h"
#include "ops/gathered_parts.h"
#include "ops/kernel.h"
#include "ops/rules.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// The part of a value that a rank has.
struct TokenState {
  enum Kind : uint8_t {
    whole,    // all of it
    cut,      // its tokens along `axis`
    rows,     // values of its tokens that have lost their order, along axis 0
    partial,  // a sum over its tokens
  };
  Kind kind = whole;
  int axis = 0;
  int token_axis() const { return kind == cut || kind == rows ? axis : kNoTokenAxis; }
};

bool is_attention(const Node& node) {
  return node.op->name == "attention";
}

// Returns whether the sums of an op's parts are the parts of its sums.
bool is_linear(const Node& node) {
  return node.op->name == "identity" || node.op->name == "cast" || node.op->name == "add" ||
         (node.op->name == "affine" && node.attributes.number("shift") == 0);
}

class ContextCut {
 public:
  ContextCut(Graph& graph, const ContextOptions& options)
      : graph_(graph), builder_(graph), options_(options), cut_(options.ranks(), 0, false) {
    cut_.rank = options.mesh.coordinate(options.rank, mesh_axes::kContext);
    cut_.balanced = std::ranges::any_of(graph.nodes, [](const Node& node) {
      return is_attention(node) && node.attributes.boolean("causal");
    });
    for (const GraphValue& value : graph.values) whole_specs_.push_back(value.spec);
    states_.resize(graph.values.size());
  }

  ContextCutResult run(std::span<ValueId* const> sums, ValueId output,
                       std::span<ValueId* const> targets) {
    old_ = std::exchange(graph_.nodes, {});
    for (const Node& node : old_) {
      builder_.set_place(node);
      place(node);
    }
    if (!attends_) {
      fail_at(options_.key,
              "context {}: the model has no attention between tokens whose ids are embedded; take "
              "context: 1 and data-parallel ranks",
              cut_.ranks);
    }
    for (ValueId* id : sums) {
      if (state(*id).kind == TokenState::partial) continue;
      builder_.set_place(*std::ranges::find_if(graph_.nodes, [&](const Node& node) {
        return std::ranges::find(node.outputs, *id) != node.outputs.end();
      }));
      *id = share(whole(*id));
    }
    if (state(output).kind == TokenState::cut) {
      for (ValueId* id : targets) *id = with_tokens_of(output, *id);
    }
    graph_.update_producers();
    return {std::move(gathered_), state(output).kind == TokenState::whole};
  }

 private:
  TokenState& state(ValueId id) { return states_[static_cast<size_t>(id)]; }
  bool is_cut(ValueId id) { return id != kNoValue && state(id).token_axis() != kNoTokenAxis; }
  const TensorSpec& whole_spec(ValueId id) const { return whole_specs_[static_cast<size_t>(id)]; }

  // Records values that have been emitted since the last call.
  void add_values(TokenState made, const TensorSpec& whole) {
    while (states_.size() < graph_.values.size()) {
      states_.push_back(made);
      whole_specs_.push_back(whole);
    }
  }

  std::vector<int> axes_of(const Node& node) {
    std::vector<int> axes;
    for (ValueId id : node.inputs) {
      axes.push_back(id == kNoValue ? kNoTokenAxis : state(id).token_axis());
    }
    return axes;
  }

  SpecList whole_inputs(const Node& node) const {
    SpecList out;
    for (ValueId id : node.inputs) out.push_back(id == kNoValue ? absent_spec() : whole_spec(id));
    return out;
  }

  void place(Node node) {
    const auto any = [&](const auto& test) {
      return std::ranges::any_of(node.inputs,
                                 [&](ValueId id) { return id != kNoValue && test(id); });
    };
    replace_inputs(node, cut_again_);
    if (reads_tokens_in_order(node)) {
      fail_at(options_.key,
              "context {}: {}: recurrent layers read the tokens of a text one after another; take "
              "context: 1",
              cut_.ranks, node.layer);
    }
    const auto is_partial = [&](ValueId id) { return state(id).kind == TokenState::partial; };
    if (any(is_partial)) {
      check_internal(is_linear(node) && std::ranges::all_of(node.inputs, is_partial),
                     "{}: {} reads a sum over tokens", node.layer, node.op->name);
      add_local(std::move(node), {TokenState::partial});
      return;
    }
    if (node.op->name == "embedding" && is_ids(node.inputs[0])) {
      node.inputs[0] = sliced(node.inputs[0], 1);
    }
    if (!any([&](ValueId id) { return is_cut(id); })) {
      add_whole(std::move(node));
    } else if (is_attention(node)) {
      place_attention(std::move(node));
    } else if (node.op->sums_rows) {
      const int axis = state(node.inputs[0]).axis;
      if (state(node.inputs[0]).kind != TokenState::cut) {
        run_whole(std::move(node));
        return;
      }
      for (ValueId& id : node.inputs) {
        if (id != kNoValue) id = with_tokens(id, axis, whole_spec(node.inputs[0]).shape[axis]);
      }
      add_local(std::move(node), {TokenState::partial});
    } else {
      place_by_rule(std::move(node));
    }
  }

  // Token ids are cut, in equal chunks.
  bool is_ids(ValueId id) const {
    const GraphValue& value = graph_.value(id);
    const Shape& shape = value.spec.shape;
    if (value.role != Role::input || shape.rank() != 2 || shape[1] == 1) return false;
    const int64_t chunks = cut_.chunks(), below = shape[1] / chunks * chunks;
    if (below != shape[1]) {
      fail_at(
          options_.key,
          "context {}: {} tokens of {} cannot be divided into {} equal chunks{}; {}{} would fit",
          cut_.ranks, shape[1], value.name, chunks,
          cut_.balanced ? ", two for each rank as attention is causal" : "",
          below > 0 ? fmt::format("{} or ", below) : "", below + chunks);
    }
    return true;
  }

  void place_by_rule(Node node) {
    const auto rule = [&] {
      if (node.op->token_axis == nullptr) return kMixesTokens;
      const SpecList inputs = whole_inputs(node);
      SpecList outputs;
      for (ValueId id : node.outputs) outputs.push_back(whole_spec(id));
      return node.op->token_axis({inputs, outputs, node.attributes, axes_of(node)});
    };
    int axis = rule();
    if (axis == kMixesTokens && slice_operands(node)) axis = rule();
    const bool keeps_order =
        axis != kNoTokenAxis && std::ranges::any_of(node.inputs, [&](ValueId id) {
          return id != kNoValue && state(id).kind == TokenState::cut;
        });
    if (axis == kMixesTokens || (!keeps_order && node.op->localize_tokens != nullptr)) {
      run_whole(std::move(node));
    } else {
      add_local(std::move(node),
                keeps_order ? TokenState{TokenState::cut, axis} : TokenState{TokenState::rows, 0});
    }
  }

  // Slices the whole operands that have a row for each token of an operand that is cut; operands
  // are aligned at their last axes. Returns whether there are any.
  bool slice_operands(Node& node) {
    const auto first = std::ranges::find_if(node.inputs, [&](ValueId id) {
      return id != kNoValue && state(id).kind == TokenState::cut;
    });
    if (first == node.inputs.end()) return false;
    const Shape& shape = whole_spec(*first).shape;
    const int at = state(*first).axis;
    bool any = false;
    for (ValueId& id : node.inputs) {
      if (id == kNoValue || is_cut(id)) continue;
      const ValueId rows =
          with_tokens(id, at - shape.rank() + whole_spec(id).shape.rank(), shape[at]);
      any = any || rows != id;
      id = rows;
    }
    return any;
  }

  // Returns the rank's tokens of a whole value that has so many along an axis, other values as they
  // are.
  ValueId with_tokens(ValueId id, int axis, int64_t tokens) {
    const Shape& shape = whole_spec(id).shape;
    const bool has = !is_cut(id) && axis >= 0 && axis < shape.rank() && shape[axis] == tokens;
    return has ? sliced(id, axis) : id;
  }
  ValueId with_tokens_of(ValueId output, ValueId id) {
    const int axis = state(output).axis;
    return with_tokens(id, axis, whole_spec(output).shape[axis]);
  }

  ValueId sliced(ValueId id, int axis) {
    const auto [slice, first] = slices_.try_emplace({id, axis}, kNoValue);
    if (!first) return slice->second;
    const TensorSpec spec = whole_spec(id);
    slice->second = emit_ranges(builder_, id, axis, cut_.runs(spec.shape[axis]));
    add_values({TokenState::cut, axis}, spec);
    whole_[slice->second] = id;
    return slice->second;
  }

  void place_attention(Node node) {
    const AttentionPattern pattern(node.attributes);
    const bool packed = whole_spec(node.inputs[0]).shape.rank() == 3;
    const auto counts = [&](ValueId id) {
      return state(id).kind == TokenState::cut && state(id).axis == 1;
    };
    const bool keys = packed || (counts(node.inputs[1]) && counts(node.inputs[2]));
    // Every query attends to the same keys, such as those of an image.
    const bool alike = !packed && !is_cut(node.inputs[1]) && !is_cut(node.inputs[2]) &&
                       !pattern.causal && pattern.window == 0 && !pattern.alibi &&
                       node.attributes.number("dropout") == 0;
    if (!counts(node.inputs[0]) || (!keys && !alike)) {
      run_whole(std::move(node));
      return;
    }
    for (size_t i = packed ? 1 : 3; i < node.inputs.size(); ++i) {
      node.inputs[i] = whole(node.inputs[i]);
    }
    if (keys) {
      cut_.set(node.attributes);
      attends_ = true;
    }
    const ValueId sums = node.outputs[1];
    add_local(std::move(node), {TokenState::cut, 1});
    state(sums) = {TokenState::rows, 2};
  }

  // Appends a node that runs on the tokens of this rank.
  void add_local(Node node, TokenState made) {
    const TensorSpec first = whole_spec(node.outputs[0]);
    if (made.kind == TokenState::cut && node.op->localize_tokens != nullptr) {
      node.op->localize_tokens(node.attributes, {first, made.axis, cut_});
    }
    const SpecList local = node.op->output_specs(graph_.input_specs(node), node.attributes);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      state(id) = made;
      graph_.value(id).spec = local[i];
      if (made.kind != TokenState::cut) continue;
      const Shape& all = whole_spec(id).shape;
      const bool counts = made.axis < all.rank() && all[made.axis] == first.shape[made.axis];
      if (!counts) state(id) = {TokenState::rows, 0};
      check_internal(!counts || local[i].shape[made.axis] == cut_.local(all[made.axis]),
                     "{}: {} makes {} of {} tokens", node.layer, node.op->name,
                     local[i].shape[made.axis], cut_.local(all[made.axis]));
    }
    graph_.append(std::move(node));
  }

  // Appends a node that every rank runs on whole values. Of a sum over micro-batches and ranks this
  // rank adds its part.
  void add_whole(Node node) {
    for (ValueId id : node.outputs) {
      const GraphValue& value = graph_.value(id);
      if (!rules_of(value.role).accumulates || value.storage_of != kNoValue) continue;
      check_internal(node.op->name == "identity", "{}: {} makes a sum", node.layer, node.op->name);
      node.inputs[0] = share(node.inputs[0]);
    }
    graph_.append(std::move(node));
  }

  void run_whole(Node node) {
    gathered_.push_back(fmt::format("{}: {}", node.layer, node.op->name));
    const ValueId cut = *std::ranges::find_if(node.inputs, [&](ValueId id) { return is_cut(id); });
    const int axis = state(cut).axis;
    const int64_t tokens = whole_spec(cut).shape[axis];
    for (ValueId& id : node.inputs) id = whole(id);
    const std::vector<ValueId> outputs = node.outputs;
    add_whole(std::move(node));
    for (ValueId id : outputs) {
      const ValueId again = with_tokens(id, axis, tokens);
      if (again != id) cut_again_[id] = again;
    }
  }

  // Returns a value as one rank would have it. What cannot be gathered is computed again.
  ValueId whole(ValueId id) {
    if (id == kNoValue || state(id).kind == TokenState::whole) return id;
    if (const auto known = whole_.find(id); known != whole_.end()) return known->second;
    const TensorSpec spec = whole_spec(id);
    check_internal(state(id).kind != TokenState::partial, "a sum over tokens is not gathered");
    if (state(id).kind == TokenState::cut && is_floating(spec.dtype)) {
      Attributes attributes{{"axis", int64_t{state(id).axis}}};
      cut_.set(attributes);
      return whole_[id] = emit("gather_tokens", {id}, std::move(attributes))[0];
    }
    const auto producer = std::ranges::find_if(old_, [&](const Node& node) {
      return std::ranges::find(node.outputs, id) != node.outputs.end();
    });
    check_internal(producer != old_.end(), "a value of tokens without a node");
    std::vector<ValueId> inputs = producer->inputs;
    for (ValueId& input : inputs) input = whole(input);
    const auto made = emit(producer->op->name, std::move(inputs), producer->attributes);
    for (size_t i = 0; i < made.size(); ++i) whole_[producer->outputs[i]] = made[i];
    return whole_.at(id);
  }

  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                            Attributes attributes) {
    const auto out = builder_.emit(op, std::move(inputs), std::move(attributes));
    for (ValueId id : out) {
      states_.emplace_back();
      whole_specs_.push_back(graph_.value(id).spec);
    }
    return out;
  }

  ValueId share(ValueId id) {
    const ValueId out = emit_share(builder_, id, options_);
    add_values({}, graph_.value(out).spec);
    return out;
  }

  Graph& graph_;
  GraphBuilder builder_;
  const ContextOptions& options_;
  TokenCut cut_;
  std::vector<Node> old_;
  std::vector<TokenState> states_;       // of each value
  std::vector<TensorSpec> whole_specs_;  // likewise, on one rank
  std::map<std::pair<ValueId, int>, ValueId> slices_;
  Replacements whole_;      // of values that are cut
  Replacements cut_again_;  // outputs of ops that ran whole, which have tokens
  std::vector<std::string> gathered_;
  bool attends_ = false;
};

}  // namespace

bool reads_tokens_in_order(const Node& node) {
  return node.op->name.starts_with("recurrent") || node.op->name.starts_with("carry");
}

ContextCutResult cut_context(Graph& graph, const ContextOptions& options,
                             std::span<ValueId* const> sums, ValueId output,
                             std::span<ValueId* const> targets) {
  ContextCutResult out = ContextCut(graph, options).run(sums, output, targets);
  verify_pass(graph);
  return out;
}

// Engines compute with f64 numbers only where all are.
ValueId emit_share(GraphBuilder& builder, ValueId sum, const ContextOptions& options) {
  const DType dtype = builder.spec(sum).dtype;
  const DType within = dtype == DType::f64 ? accumulation_dtype(options.compute) : dtype;
  const ValueId part = builder.scaled(cast_to(builder, sum, within), 1.0 / options.ranks());
  return cast_to(builder, part, dtype);
}

}  // namespace dltrain
