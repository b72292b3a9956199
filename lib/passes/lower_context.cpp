// Lowers attention over the tokens of several ranks, and gathers of tokens (context_cut.h).
#include <map>

#include "ops/attention.h"
#include "ops/gathered_parts.h"
#include "passes/context_cut.h"
#include "passes/partition.h"

namespace dltrain {
namespace {

using Ids = std::vector<ValueId>;

std::vector<int64_t> as_list(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

class ContextLowering {
 public:
  ContextLowering(Graph& graph, const ContextOptions& options)
      : graph_(graph),
        builder_(graph),
        over_(options.mesh.over(mesh_axes::kContext)),
        slot_(graph.next_slot()) {}

  void run() {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      for (ValueId& id : node.inputs) id = replaced(id);
      for (ValueId id : node.outputs) {
        ValueId& base = graph_.value(id).storage_of;
        base = replaced(base);
      }
      builder_.set_phase(node.phase);
      builder_.set_layer(node.layer);
      builder_.set_block(node.block);
      lower(std::move(node));
    }
    graph_.update_producers();
  }

 private:
  ValueId replaced(ValueId id) const {
    const auto found = replaced_.find(id);
    return found == replaced_.end() ? id : found->second;
  }

  void lower(Node node) {
    const TokenCut cut(node.attributes);
    const auto axis = static_cast<int>(node.attributes.integer("axis"));
    Ids made;
    if (node.op->name == "gather_tokens") {
      made = {gather(node.inputs[0], axis, cut)};
    } else if (node.op->name == "scatter_tokens") {
      made = {scatter(node.inputs[0], axis, cut)};
    } else if (node.op->name == "attention" && cut.ranks > 1) {
      made = attend(node, cut);
    } else if (node.op->name == "attention_backward" && cut.ranks > 1) {
      made = attend_backward(node, cut);
    } else {
      graph_.nodes.push_back(std::move(node));
      return;
    }
    for (size_t i = 0; i < made.size(); ++i) {
      if (graph_.value(node.outputs[i]).role == Role::activation) {
        replaced_[node.outputs[i]] = made[i];
      } else {  // an output or a sum, which others know by its id
        builder_.emit1("identity", {made[i]});
        graph_.nodes.back().outputs = {node.outputs[i]};
      }
    }
  }

  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  ValueId slice(ValueId x, int axis, CutRange range) {
    if (range.extent == shape(x)[axis]) return x;
    return emit_ranges(builder_, x, axis, std::span(&range, 1));
  }
  ValueId concat(Ids parts, int axis) {
    if (parts.size() == 1) return parts[0];
    return builder_.emit1("concat", std::move(parts), {{"axis", int64_t{axis}}});
  }
  ValueId reshape(ValueId x, const Shape& to) {
    if (shape(x) == to) return x;
    return builder_.emit1("reshape", {x}, {{"shape", as_list(to)}});
  }
  // x with its axes `outer` × ranks × the rest in the order of the permutation.
  ValueId transposed(ValueId x, const Shape& as) {
    return builder_.emit1("transpose", {reshape(x, as)},
                          {{"permutation", std::vector<int64_t>{1, 0, 2}}});
  }

  // The runs of the ranks in a row as they lie in a message, or where each of them lies in it, in
  // the order of the text.
  static std::vector<CutRange> runs_of_ranks(const TokenCut& cut, int64_t tokens, bool of_text) {
    std::map<int64_t, CutRange> ordered;  // by the place in the message, or in the text
    int64_t at = 0;
    for (int rank = 0; rank < cut.ranks; ++rank) {
      for (const CutRange& run : cut.runs(tokens, rank)) {
        ordered[of_text ? run.offset : at] = of_text ? CutRange{at, run.extent} : run;
        at += run.extent;
      }
    }
    std::vector<CutRange> out;
    for (const auto& [place, run] : ordered) out.push_back(run);
    return out;
  }

  // Returns the tokens of all ranks, in the order of the text.
  ValueId gather(ValueId x, int axis, const TokenCut& cut) {
    Shape all = shape(x);
    const int64_t outer = all.elements(0, axis), inner = all.elements(axis, all.rank());
    all[axis] *= cut.ranks;
    Attributes begin = message_attributes(slot_++, over_), end = begin;
    begin.set("shapes", std::vector<int64_t>{3, cut.ranks, outer, inner});
    end.set("part", true);
    const ValueId begun = builder_.emit1("all_gather_begin", {x}, begin);
    ValueId y = builder_.emit1("all_gather_end", {begun, x}, end);
    if (outer > 1) y = transposed(y, shape(y));
    y = reshape(y, all);
    return cut.balanced ? emit_ranges(builder_, y, axis, runs_of_ranks(cut, all[axis], true)) : y;
  }

  // Returns the tokens of this rank of the sum of x over the ranks.
  ValueId scatter(ValueId x, int axis, const TokenCut& cut) {
    Shape local = shape(x);
    const std::vector<CutRange> runs = runs_of_ranks(cut, local[axis], false);
    if (cut.balanced) x = emit_ranges(builder_, x, axis, runs);
    local[axis] /= cut.ranks;
    const int64_t outer = local.elements(0, axis), inner = local.elements(axis, local.rank());
    // The message must not be memory that is read otherwise, such as that of a view.
    x = outer > 1      ? transposed(x, {outer, cut.ranks, inner})
        : cut.balanced ? x
                       : builder_.emit1("identity", {x});
    const Attributes end = message_attributes(slot_++, over_);
    Attributes begin = end;
    begin.set("elements", local.elements());
    begin.set("ranks", int64_t{cut.ranks});
    const ValueId part = builder_.emit1("reduce_scatter_begin", {x}, begin);
    return reshape(builder_.emit1("reduce_scatter_end", {part, x}, end), local);
  }

  // The operands of a node of attention.
  struct Operands {
    ValueId q = kNoValue, k = kNoValue, v = kNoValue;  // [samples, tokens, heads, head_dim]
    Ids others;                                        // mask, step state
    AttentionSizes sizes;
    bool masked = false;
  };

  // `first`: the index of the queries among the inputs. Keys and values are those of all ranks.
  Operands operands(const Node& node, size_t first, const TokenCut& cut) {
    const SpecList specs = graph_.input_specs(node);
    Operands out;
    out.sizes = attention_sizes(node.op->name, std::span(specs).subspan(first), node.attributes);
    out.masked = node.attributes.boolean("masked");
    const AttentionSizes& a = out.sizes;
    out.others.assign(node.inputs.begin() + static_cast<ptrdiff_t>(first + (a.packed ? 1 : 3)),
                      node.inputs.end());
    if (!a.packed) {
      out.q = node.inputs[first];
      out.k = gather(node.inputs[first + 1], 1, cut);
      out.v = gather(node.inputs[first + 2], 1, cut);
      return out;
    }
    const ValueId x = node.inputs[first];
    const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    out.q = reshape(slice(x, 2, {0, q}), {a.samples, a.queries, a.heads, a.head_dim});
    const ValueId both = gather(slice(x, 2, {q, 2 * kv}), 1, cut);
    const Shape keys{a.samples, a.keys * cut.ranks, a.kv_heads, a.head_dim};
    out.k = reshape(slice(both, 2, {0, kv}), keys);
    out.v = reshape(slice(both, 2, {kv, kv}), keys);
    return out;
  }

  // The queries of a run, and the keys to which they may attend.
  struct Part {
    CutRange queries;  // of the rank's
    int64_t keys;
    Attributes attributes;
  };

  static std::vector<Part> parts_of(const Node& node, const AttentionSizes& a,
                                    const TokenCut& cut) {
    Attributes rest = node.attributes;
    for (const char* name : {"ranks", "rank", "balanced", "heads", "kv_heads"}) rest.erase(name);
    const AttentionPattern pattern(rest);
    const int64_t all = a.queries * cut.ranks, keys = a.keys * cut.ranks;
    rest.set("all_queries", all);
    rest.set("all_keys", keys);
    rest.set("first_query", int64_t{0});
    const bool placed =
        pattern.causal || pattern.window > 0 || pattern.alibi || rest.number("dropout") > 0;
    if (!placed) return {{{0, a.queries}, keys, rest}};
    std::vector<Part> out;
    int64_t at = 0;
    for (const CutRange& run : cut.runs(all)) {
      rest.set("first_query", run.offset);
      out.push_back({{at, run.extent}, pattern.causal ? run.offset + run.extent : keys, rest});
      at += run.extent;
    }
    return out;
  }

  Ids part_inputs(const Operands& o, const Part& part) {
    Ids out{slice(o.q, 1, part.queries), slice(o.k, 1, {0, part.keys}),
            slice(o.v, 1, {0, part.keys})};
    for (size_t i = 0; i < o.others.size(); ++i) {
      const bool by_key = i == 0 && o.masked && shape(o.others[0]).rank() == 2;
      out.push_back(by_key ? slice(o.others[0], 1, {0, part.keys}) : o.others[i]);
    }
    return out;
  }

  Ids attend(const Node& node, const TokenCut& cut) {
    const Operands o = operands(node, 0, cut);
    Ids y, sums;
    for (const Part& part : parts_of(node, o.sizes, cut)) {
      const Ids made = builder_.emit("attention", part_inputs(o, part), part.attributes);
      y.push_back(made[0]);
      sums.push_back(made[1]);
    }
    return {reshape(concat(y, 1), shape(node.outputs[0])), concat(sums, 2)};
  }

  Ids attend_backward(const Node& node, const TokenCut& cut) {
    const Operands o = operands(node, 3, cut);
    const AttentionSizes& a = o.sizes;
    const Shape heads{a.samples, a.queries, a.heads, a.head_dim};
    const ValueId dy = reshape(node.inputs[0], heads), y = reshape(node.inputs[1], heads);
    Ids dq, dk, dv;
    for (const Part& part : parts_of(node, a, cut)) {
      Ids inputs{slice(dy, 1, part.queries), slice(y, 1, part.queries),
                 slice(node.inputs[2], 2, part.queries)};
      const Ids forward = part_inputs(o, part);
      inputs.insert(inputs.end(), forward.begin(), forward.end());
      const Ids made = builder_.emit("attention_backward", std::move(inputs), part.attributes);
      dq.push_back(made[0]);
      dk.push_back(made[1]);
      dv.push_back(made[2]);
    }
    const int64_t keys = shape(o.k)[1];
    const ValueId q = concat(dq, 1), k = sum(dk, keys), v = sum(dv, keys);
    if (!a.packed) return {q, scatter(k, 1, cut), scatter(v, 1, cut)};
    const auto joined = [&](ValueId x) {
      return reshape(x, {a.samples, shape(x)[1], shape(x)[2] * a.head_dim});
    };
    const ValueId both = scatter(concat({joined(k), joined(v)}, 2), 1, cut);
    return {concat({joined(q), both}, 2)};
  }

  // The sum of gradients of keys from the first token on, of all keys.
  ValueId sum(const Ids& parts, int64_t keys) {
    ValueId out = kNoValue;
    for (ValueId part : parts) {
      out = out == kNoValue ? padded(part, keys) : builder_.emit1("add", {out, padded(part, keys)});
    }
    return out;
  }
  ValueId padded(ValueId x, int64_t keys) {
    const int64_t missing = keys - shape(x)[1];
    if (missing == 0) return x;
    return builder_.emit1("pad", {x},
                          {{"before", std::vector<int64_t>{0, 0, 0, 0}},
                           {"after", std::vector<int64_t>{0, missing, 0, 0}}});
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::string over_;
  int64_t slot_;
  std::map<ValueId, ValueId> replaced_;
};

}  // namespace

void lower_context(Graph& graph, const ContextOptions& options) {
  ContextLowering(graph, options).run();
  verify_graph(graph);
}

}  // namespace dltrain
