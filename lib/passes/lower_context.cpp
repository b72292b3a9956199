// Lowers attention over the tokens of several ranks (context_cut.h), and gathers and
// reduce-scatters of tokens, also of sequence parallelism (sequence_cut.h).
//
// Ring attention (Liu et al. 2023): keys and values pass from rank to rank, and each rank attends
// to one block of them while the next is on its way. Parts of a result are merged by the logarithms
// of their sums. The backward computes the exact parts of the gradients block by block from the
// merged result (Dao et al. 2022), and the gradients of a block travel with it.
#include <map>

#include "ops/attention.h"
#include "ops/gathered_parts.h"
#include "passes/context_cut.h"
#include "passes/partition.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

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
        ring_(options.ring),
        slot_(graph.next_slot()) {}

  void run() {
    uses_ = count_uses_and_views(graph_);
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
      const size_t begin = graph_.nodes.size();
      made = {gather(node.inputs[0], axis, cut, node.attributes.text(kOver, over_))};
      if (node.phase == Phase::forward && node.attributes.has(kAlwaysAgain)) {
        for (size_t i = begin; i < graph_.nodes.size(); ++i) {
          graph_.nodes[i].attributes.set(kAlwaysAgain, true);
        }
      }
    } else if (node.op->name == "scatter_tokens") {
      made = {scatter(node.inputs[0], axis, cut, node.attributes.text(kOver, over_))};
    } else if (node.op->name == "attention" && cut.ranks > 1) {
      made = ring_ ? attend_in_ring(node, cut) : attend(node, cut);
    } else if (node.op->name == "attention_backward" && cut.ranks > 1) {
      made = ring_ ? attend_in_ring_backward(node, cut) : attend_backward(node, cut);
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

  // By value: the graph grows.
  Shape shape(ValueId id) const { return graph_.value(id).spec.shape; }

  ValueId slice(ValueId x, int axis, CutRange range) {
    if (range.extent == shape(x)[axis]) return x;
    return emit_ranges(builder_, x, axis, std::span(&range, 1));
  }
  ValueId concat(Ids parts, int axis) {
    if (parts.size() == 1) return parts[0];
    return builder_.emit1("concat", std::move(parts), {{"axis", int64_t{axis}}});
  }
  // Likewise a result that the backward keeps, rather than the parts from which it could be made.
  ValueId joined(Ids parts, int axis) {
    return builder_.emit1("concat", std::move(parts), {{"axis", int64_t{axis}}, {"kept", true}});
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
  ValueId gather(ValueId x, int axis, const TokenCut& cut) { return gather(x, axis, cut, over_); }
  ValueId gather(ValueId x, int axis, const TokenCut& cut, const std::string& over) {
    Shape all = shape(x);
    const int64_t outer = all.elements(0, axis), inner = all.elements(axis, all.rank());
    all[axis] *= cut.ranks;
    Attributes begin = message_attributes(slot_++, over), end = begin;
    begin.set("shapes", std::vector<int64_t>{3, cut.ranks, outer, inner});
    end.set("part", true);
    const ValueId begun = builder_.emit1("all_gather_begin", {x}, begin);
    ValueId y = builder_.emit1("all_gather_end", {begun, x}, end);
    if (outer > 1) y = transposed(y, shape(y));
    y = reshape(y, all);
    return cut.balanced ? emit_ranges(builder_, y, axis, runs_of_ranks(cut, all[axis], true)) : y;
  }

  // Returns the tokens of this rank of the sum of x over the ranks.
  ValueId scatter(ValueId x, int axis, const TokenCut& cut) { return scatter(x, axis, cut, over_); }
  ValueId scatter(ValueId x, int axis, const TokenCut& cut, const std::string& over) {
    Shape local = shape(x);
    const std::vector<CutRange> runs = runs_of_ranks(cut, local[axis], false);
    if (cut.balanced) x = emit_ranges(builder_, x, axis, runs);
    local[axis] /= cut.ranks;
    const int64_t outer = local.elements(0, axis), inner = local.elements(axis, local.rank());
    // The message must not be memory that is read otherwise, such as that of a view.
    const GraphValue& value = graph_.value(x);
    const bool alone = cut.balanced || (value.role == Role::activation &&
                                        value.storage_of == kNoValue && has_one_use(x));
    x = outer > 1 ? transposed(x, {outer, cut.ranks, inner})
        : alone   ? x
                  : builder_.emit1("identity", {x});
    const Attributes end = message_attributes(slot_++, over);
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

  // `first`: the index of the queries among the inputs. Without a ring keys and values are those of
  // all ranks.
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
      out.k = ring_ ? node.inputs[first + 1] : gather(node.inputs[first + 1], 1, cut);
      out.v = ring_ ? node.inputs[first + 2] : gather(node.inputs[first + 2], 1, cut);
      return out;
    }
    const ValueId x = node.inputs[first];
    const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    out.q = reshape(slice(x, 2, {0, q}), {a.samples, a.queries, a.heads, a.head_dim});
    const ValueId local = slice(x, 2, {q, 2 * kv}), both = ring_ ? local : gather(local, 1, cut);
    const Shape keys{a.samples, shape(both)[1], a.kv_heads, a.head_dim};
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
    if (y.size() == 1) return {reshape(y[0], shape(node.outputs[0])), sums[0]};
    return {reshape(joined(y, 1), shape(node.outputs[0])), joined(sums, 2)};
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
    return {concat({flat(q), scatter(concat({flat(k), flat(v)}, 2), 1, cut)}, 2)};
  }
  // [samples, tokens, heads, head_dim] with joined heads.
  ValueId flat(ValueId x) {
    const Shape heads = shape(x);
    return reshape(x, {heads[0], heads[1], heads[2] * heads[3]});
  }

  // The sum of gradients of keys from the first token on, of all keys.
  ValueId sum(const Ids& parts, int64_t keys) {
    ValueId out = kNoValue;
    for (ValueId part : parts) out = added(out, padded(part, 0, keys));
    return out;
  }
  ValueId added(ValueId sum, ValueId x) {
    return sum == kNoValue ? x : builder_.emit1("add", {sum, x});
  }
  // x [samples, tokens, …] as the tokens from `first` on of so many.
  ValueId padded(ValueId x, int64_t first, int64_t tokens) {
    if (shape(x)[1] == tokens) return x;
    return builder_.emit1("pad", {x},
                          {{"before", std::vector<int64_t>{0, first, 0, 0}},
                           {"after", std::vector<int64_t>{0, tokens - first - shape(x)[1], 0, 0}}});
  }

  // The queries that attend to the keys of a rank, and these keys: ranges of the tokens that each
  // rank has. Of causal attention a rank has an early and a late chunk.
  struct RingBlock {
    CutRange queries, keys;
    bool causal = false;
  };
  static RingBlock block_of(const Node& node, const AttentionSizes& a, const TokenCut& cut,
                            int owner) {
    RingBlock out{{0, a.queries}, {0, a.keys}, node.attributes.boolean("causal")};
    if (!out.causal || owner == cut.rank) return out;
    out.causal = false;
    if (owner < cut.rank) {
      out.keys.extent /= 2;
    } else {
      out.queries = {a.queries / 2, a.queries / 2};
    }
    return out;
  }
  Attributes block_attributes(const Node& node, const RingBlock& block) {
    Attributes out{{"causal", block.causal}, {"first_query", int64_t{0}}};
    if (node.attributes.has("scale")) out.set("scale", node.attributes.number("scale"));
    return out;
  }

  // A tensor on its way to the next rank, and that of the rank before on its way here.
  struct Passing {
    ValueId sent = kNoValue, begun = kNoValue;
    Attributes send, receive;
  };
  Passing pass_on(ValueId x, const TokenCut& cut) {
    Passing out{
        .sent = x, .begun = kNoValue, .send = message_attributes(slot_++, over_), .receive = {}};
    out.receive = message_attributes(slot_++, over_);
    const auto send = [&] {
      Attributes begin = out.send;
      begin.set("peer", int64_t{(cut.rank + 1) % cut.ranks});
      builder_.emit("send_begin", {x}, begin);
    };
    // Neighbours must not both wait for the other to receive.
    if (cut.rank % 2 == 0) send();
    Attributes begin = out.receive;
    begin.set("peer", int64_t{(cut.rank + cut.ranks - 1) % cut.ranks});
    begin.set("shape", as_list(shape(x)));
    begin.set("dtype", std::string(dtype_name(graph_.value(x).spec.dtype)));
    out.begun = builder_.emit1("receive_begin", {}, begin);
    if (cut.rank % 2 != 0) send();
    return out;
  }
  ValueId received(const Passing& passing) {
    builder_.emit("send_end", {passing.sent}, passing.send);
    return builder_.emit1("receive_end", {passing.begun}, passing.receive);
  }

  // Calls compute(block, k, v) for the blocks of all ranks, its own first.
  template <typename Compute>
  void each_block(const Node& node, const Operands& o, const TokenCut& cut,
                  const Compute& compute) {
    ValueId k = o.k, v = o.v;
    for (int step = 0; step < cut.ranks; ++step) {
      const bool last = step + 1 == cut.ranks;
      Passing next_k, next_v;
      if (!last) {
        next_k = pass_on(k, cut);
        next_v = pass_on(v, cut);
      }
      const RingBlock block =
          block_of(node, o.sizes, cut, (cut.rank - step + cut.ranks) % cut.ranks);
      compute(block, slice(k, 1, block.keys), slice(v, 1, block.keys));
      if (last) break;
      k = received(next_k);
      v = received(next_v);
    }
  }

  // The part of a result for some queries, in the dtype of sums.
  struct PartialResult {
    ValueId y = kNoValue, sums = kNoValue;
  };
  PartialResult merged(const PartialResult& a, const PartialResult& b) {
    if (a.y == kNoValue) return b;
    const ValueId difference = builder_.emit1("sub", {b.sums, a.sums});
    ValueId weight = builder_.emit1("sigmoid", {difference});  // of b: [samples, heads, queries]
    const Shape rows = shape(weight);
    weight =
        builder_.emit1("transpose", {weight}, {{"permutation", std::vector<int64_t>{0, 2, 1}}});
    weight = reshape(weight, {rows[0], rows[2], rows[1], 1});
    const ValueId change = builder_.emit1("mul", {builder_.emit1("sub", {b.y, a.y}), weight});
    return {builder_.emit1("add", {a.y, change}),
            builder_.emit1("add", {a.sums, builder_.emit1("softplus", {difference})})};
  }
  ValueId cast(ValueId x, DType dtype) {
    if (graph_.value(x).spec.dtype == dtype) return x;
    return builder_.emit1("cast", {x}, {{"dtype", std::string(dtype_name(dtype))}});
  }

  Ids attend_in_ring(const Node& node, const TokenCut& cut) {
    const Operands o = operands(node, 0, cut);
    const TensorSpec y = graph_.value(node.outputs[0]).spec;
    const DType wide = graph_.value(node.outputs[1]).spec.dtype;
    const int64_t chunk = o.sizes.queries / (node.attributes.boolean("causal") ? 2 : 1);
    std::vector<PartialResult> parts(static_cast<size_t>(o.sizes.queries / chunk));
    each_block(node, o, cut, [&](const RingBlock& block, ValueId k, ValueId v) {
      const Ids made = builder_.emit("attention", {slice(o.q, 1, block.queries), k, v},
                                     block_attributes(node, block));
      const ValueId all = cast(made[0], wide);
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i) * chunk - block.queries.offset;
        if (at < 0) continue;
        parts[i] = merged(parts[i], {slice(all, 1, {at, chunk}), slice(made[1], 2, {at, chunk})});
      }
    });
    Ids results, sums;
    for (const PartialResult& part : parts) {
      results.push_back(cast(part.y, y.dtype));
      sums.push_back(part.sums);
    }
    return {reshape(joined(results, 1), y.shape), joined(sums, 2)};
  }

  Ids attend_in_ring_backward(const Node& node, const TokenCut& cut) {
    const Operands o = operands(node, 3, cut);
    const AttentionSizes& a = o.sizes;
    const Shape heads{a.samples, a.queries, a.heads, a.head_dim};
    const ValueId dy = reshape(node.inputs[0], heads), y = reshape(node.inputs[1], heads);
    ValueId dq = kNoValue;
    Passing dk, dv;  // the sums of the ranks before, for the block of this step
    each_block(node, o, cut, [&](const RingBlock& block, ValueId k, ValueId v) {
      const Ids made = builder_.emit(
          "attention_backward",
          {slice(dy, 1, block.queries), slice(y, 1, block.queries),
           slice(node.inputs[2], 2, block.queries), slice(o.q, 1, block.queries), k, v},
          block_attributes(node, block));
      dq = added(dq, padded(made[0], block.queries.offset, a.queries));
      const auto pass = [&](Passing& passing, ValueId part) {
        const ValueId earlier = passing.sent == kNoValue ? kNoValue : received(passing);
        passing = pass_on(added(earlier, padded(part, 0, a.keys)), cut);
      };
      pass(dk, made[1]);
      pass(dv, made[2]);
    });
    const ValueId k = received(dk), v = received(dv);
    if (!a.packed) return {dq, k, v};
    return {concat({flat(dq), flat(k), flat(v)}, 2)};
  }

  bool has_one_use(ValueId id) const {
    return static_cast<size_t>(id) < uses_.size() && uses_[static_cast<size_t>(id)] == 1;
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::vector<int> uses_;  // and views, of each value of the input graph
  std::string over_;
  bool ring_;
  int64_t slot_;
  std::map<ValueId, ValueId> replaced_;
};

}  // namespace

void lower_context(Graph& graph, const ContextOptions& options) {
  ContextLowering(graph, options).run();
  verify_pass(graph);
}

}  // namespace dltrain
