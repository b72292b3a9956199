// Lowers attention over the tokens of several ranks (context_cut.h), and gathers and
// reduce-scatters of tokens, also of sequence parallelism (sequence_cut.h).
//
// Ring attention (Liu et al. 2023): keys and values pass from rank to rank, and each rank attends
// to one block of them while the next is on its way. Parts of a result are merged by the logarithms
// of their sums. The backward computes the exact parts of the gradients block by block from the
// merged result (Dao et al. 2022), and the gradients of a block travel with it. Where positions
// matter (windows, ALiBi, masks, dropout of weights) a block has adjacent queries and adjacent
// keys, and those in which no query attends to a key are not computed. They are passed on all the
// same: causal ranks need keys of both neighbours.
#include <algorithm>
#include <map>

#include "ops/attention.h"
#include "ops/gathered_parts.h"
#include "ops/rules.h"
#include "passes/context_cut.h"
#include "passes/partition.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

using Ids = std::vector<ValueId>;

// The size of the logarithm of a sum without keys, beyond those of all others.
constexpr double kNoKeys = 1e30;

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
      replace_inputs(node, replaced_);
      for (ValueId id : node.outputs) {
        ValueId& base = graph_.value(id).storage_of;
        base = replaced(replaced_, base);
      }
      builder_.set_place(node);
      lower(std::move(node));
    }
    graph_.update_producers();
  }

 private:
  void lower(Node node) {
    const TokenCut cut(node.attributes);
    const auto axis = static_cast<int>(node.attributes.integer("axis"));
    Ids made;
    const size_t begin = graph_.nodes.size();
    const auto mark = [&](const char* attribute) {
      for (size_t i = begin; i < graph_.nodes.size(); ++i) {
        graph_.nodes[i].attributes.set(attribute, true);
      }
    };
    if (node.op->name == "gather_tokens") {
      made = {gather(node.inputs[0], axis, cut, node.attributes.text(kOver, over_))};
      if (node.phase == Phase::forward && node.attributes.has(kAlwaysAgain)) mark(kAlwaysAgain);
    } else if (node.op->name == "scatter_tokens") {
      made = {scatter(node.inputs[0], axis, cut, node.attributes.text(kOver, over_))};
    } else if (node.op->name == "attention" && cut.ranks > 1) {
      made = ring_ ? attend_in_ring(node, cut) : attend(node, cut);
      mark(kNeverAgain);
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

  // Returns a copy, since the graph grows.
  Shape shape(ValueId id) const { return graph_.value(id).spec.shape; }

  ValueId slice(ValueId x, int axis, CutRange range) {
    if (range.extent == shape(x)[axis]) return x;
    return emit_range(builder_, x, axis, range);
  }
  ValueId concat(Ids parts, int axis) {
    if (parts.size() == 1) return parts[0];
    return builder_.emit1("concat", std::move(parts), {{"axis", int64_t{axis}}});
  }
  ValueId reshape(ValueId x, const Shape& to) { return builder_.reshape(x, to); }

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
    const ValueId y = emit_all_gather(builder_, x, axis, cut.ranks, over, slot_++);
    if (!cut.balanced) return y;
    return emit_ranges(builder_, y, axis, runs_of_ranks(cut, shape(y)[axis], true));
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
    if (outer > 1) {
      x = builder_.emit1("transpose", {reshape(x, {outer, cut.ranks, inner})},
                         {{"permutation", std::vector<int64_t>{1, 0, 2}}});
    } else if (!alone) {
      x = builder_.emit1("identity", {x});
    }
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

  static Attributes attributes_on_one_rank(const Node& node) {
    Attributes out = node.attributes;
    for (const char* name : {"ranks", "rank", "balanced", "heads", "kv_heads"}) out.erase(name);
    return out;
  }
  // Returns the parts of attention to the gathered keys of all ranks.
  static std::vector<Part> parts_of(const Node& node, const AttentionSizes& a,
                                    const TokenCut& cut) {
    Attributes rest = attributes_on_one_rank(node);
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
    add_others(out, o, {0, part.keys}, part.queries, part.attributes);
    return out;
  }
  // Adds the mask of ranges of all keys and of the rank's queries, and the step state.
  void add_others(Ids& inputs, const Operands& o, CutRange keys, CutRange queries,
                  const Attributes& attributes) {
    for (size_t i = 0; i < o.others.size(); ++i) {
      const bool by_token = i == 0 && o.masked && shape(o.others[0]).rank() == 2;
      if (by_token && attributes.boolean("documents")) {
        keys = {attributes.integer("first_query"), queries.extent};
      }
      inputs.push_back(by_token ? slice(o.others[0], 1, keys) : o.others[i]);
    }
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

  // Queries, and the keys to which they attend: ranges of the tokens that each rank has.
  struct RingBlock {
    CutRange queries, keys;
    int64_t first_key = 0;  // in the text, if positions matter
    Attributes attributes;

    // Some of the queries may have no keys here.
    bool gaps() const { return attributes.boolean("masked") || attributes.integer("window") > 0; }
  };
  static bool positions_matter(const Node& node) {
    const AttentionPattern pattern(node.attributes);
    return pattern.masked || pattern.window > 0 || pattern.alibi ||
           node.attributes.number("dropout") > 0;
  }
  // The blocks with the keys of a rank. Of causal attention a rank has an early and a late chunk.
  static std::vector<RingBlock> blocks_of(const Node& node, const AttentionSizes& a,
                                          const TokenCut& cut, int owner) {
    RingBlock block{{0, a.queries}, {0, a.keys}, 0, attributes_on_one_rank(node)};
    const AttentionPattern pattern(node.attributes);
    if (!positions_matter(node)) {
      block.attributes.set("causal", pattern.causal && owner == cut.rank);
      block.attributes.set("first_query", int64_t{0});
      if (pattern.causal && owner < cut.rank) block.keys.extent /= 2;
      if (pattern.causal && owner > cut.rank) block.queries = {a.queries / 2, a.queries / 2};
      return {block};
    }
    block.attributes.set("all_queries", a.queries * cut.ranks);
    block.attributes.set("all_keys", a.keys * cut.ranks);
    std::vector<RingBlock> out;
    block.queries.offset = 0;
    for (const CutRange& queries : cut.runs(a.queries * cut.ranks)) {
      block.queries.extent = queries.extent;
      block.keys.offset = 0;
      for (const CutRange& keys : cut.runs(a.keys * cut.ranks, owner)) {
        block.keys.extent = keys.extent;
        block.first_key = keys.offset;
        block.attributes.set("causal", pattern.causal && keys.offset == queries.offset);
        block.attributes.set("first_query", queries.offset);
        block.attributes.set("first_key", keys.offset);
        const int64_t ahead = queries.offset - keys.offset;
        const int64_t least = std::max(ahead - (keys.extent - 1), 1 - queries.extent - ahead);
        const int64_t most = std::max(ahead + queries.extent - 1, keys.extent - 1 - ahead);
        block.attributes.set("window", most < pattern.window ? 0 : pattern.window);
        const bool later = pattern.causal && ahead < 0;
        if (!later && (pattern.window == 0 || least < pattern.window)) out.push_back(block);
        block.keys.offset += keys.extent;
      }
      block.queries.offset += queries.extent;
    }
    return out;
  }
  Ids block_inputs(const Operands& o, const RingBlock& block, ValueId k, ValueId v) {
    Ids out{slice(o.q, 1, block.queries), slice(k, 1, block.keys), slice(v, 1, block.keys)};
    add_others(out, o, {block.first_key, block.keys.extent}, block.queries, block.attributes);
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
    begin.set("shape", shape(x).list());
    begin.set("dtype", std::string(dtype_name(graph_.value(x).spec.dtype)));
    out.begun = builder_.emit1("receive_begin", {}, begin);
    if (cut.rank % 2 != 0) send();
    return out;
  }
  ValueId received(const Passing& passing) {
    builder_.emit("send_end", {passing.sent}, passing.send);
    return builder_.emit1("receive_end", {passing.begun}, passing.receive);
  }

  // Calls compute(blocks, k, v) with the keys and values of all ranks, its own first.
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
      compute(blocks_of(node, o.sizes, cut, (cut.rank - step + cut.ranks) % cut.ranks), k, v);
      if (last) break;
      k = received(next_k);
      v = received(next_v);
    }
  }

  // The part of a result for some queries, in the dtype of sums. `gaps`: some of them may have no
  // keys yet, and then the sum −kNoKeys and the result 0.
  struct PartialResult {
    ValueId y = kNoValue, sums = kNoValue;
    bool gaps = false;
  };
  // Returns the sums with those that are sign · kNoKeys negated.
  ValueId turned(ValueId sums, double sign) {
    const ValueId beyond = builder_.emit1("relu", {builder_.scaled(sums, sign, -kNoKeys / 2)});
    return builder_.emit1("add", {sums, builder_.scaled(beyond, -4 * sign)});
  }
  // Attention gives the sum +∞ to queries without keys.
  ValueId finite(ValueId sums) {
    return builder_.emit1("hardtanh", {sums}, {{"min_value", -kNoKeys}, {"max_value", kNoKeys}});
  }
  PartialResult part_of(const Ids& made, CutRange queries, bool gaps, DType wide) {
    const ValueId sums = slice(made[1], 2, queries);
    return {slice(cast_to(builder_, made[0], wide), 1, queries),
            gaps ? turned(finite(sums), 1) : sums, gaps};
  }
  PartialResult merged(const PartialResult& a, const PartialResult& b) {
    if (a.y == kNoValue) return b;
    const ValueId difference = builder_.emit1("sub", {b.sums, a.sums});
    const ValueId of_b = builder_.emit1("sigmoid", {difference});  // [samples, heads, queries]
    const Shape rows = shape(of_b);
    ValueId weight =
        builder_.emit1("transpose", {of_b}, {{"permutation", std::vector<int64_t>{0, 2, 1}}});
    weight = reshape(weight, {rows[0], rows[2], rows[1], 1});
    const ValueId change = builder_.emit1("mul", {builder_.emit1("sub", {b.y, a.y}), weight});
    ValueId sums = builder_.emit1("add", {a.sums, builder_.emit1("softplus", {difference})});
    if (a.gaps) {  // without keys a.sums is lost in the difference: take the sum as seen from b
      const ValueId less = builder_.emit1("softplus", {builder_.scaled(difference, -1)});
      const ValueId from_b = builder_.emit1("add", {b.sums, less});
      sums = builder_.emit1(
          "add", {sums, builder_.emit1("mul", {builder_.emit1("sub", {from_b, sums}), of_b})});
    }
    return {builder_.emit1("add", {a.y, change}), sums, a.gaps && b.gaps};
  }

  Ids attend_in_ring(const Node& node, const TokenCut& cut) {
    const Operands o = operands(node, 0, cut);
    const TensorSpec y = graph_.value(node.outputs[0]).spec;
    const DType wide = graph_.value(node.outputs[1]).spec.dtype;
    const bool halves = positions_matter(node) ? cut.balanced : node.attributes.boolean("causal");
    const int64_t chunk = o.sizes.queries / (halves ? 2 : 1);
    std::vector<PartialResult> parts(static_cast<size_t>(o.sizes.queries / chunk));
    each_block(node, o, cut, [&](const std::vector<RingBlock>& blocks, ValueId k, ValueId v) {
      for (const RingBlock& block : blocks) {
        const Ids made = builder_.emit("attention", block_inputs(o, block, k, v), block.attributes);
        for (size_t i = 0; i < parts.size(); ++i) {
          const int64_t at = static_cast<int64_t>(i) * chunk - block.queries.offset;
          if (at < 0 || at >= block.queries.extent) continue;
          parts[i] = merged(parts[i], part_of(made, {at, chunk}, block.gaps(), wide));
        }
      }
    });
    Ids results, sums;
    for (const PartialResult& part : parts) {
      results.push_back(cast_to(builder_, part.y, y.dtype));
      sums.push_back(part.gaps ? turned(part.sums, -1) : part.sums);
    }
    return {reshape(concat(results, 1), y.shape), concat(sums, 2)};
  }

  Ids attend_in_ring_backward(const Node& node, const TokenCut& cut) {
    const Operands o = operands(node, 3, cut);
    const AttentionSizes& a = o.sizes;
    const Shape heads{a.samples, a.queries, a.heads, a.head_dim};
    const ValueId dy = reshape(node.inputs[0], heads), y = reshape(node.inputs[1], heads);
    ValueId dq = kNoValue;
    Passing dk, dv;  // the sums of the ranks before, for the block of this step
    each_block(node, o, cut, [&](const std::vector<RingBlock>& blocks, ValueId k, ValueId v) {
      ValueId k_part = kNoValue, v_part = kNoValue;
      for (const RingBlock& block : blocks) {
        Ids inputs{slice(dy, 1, block.queries), slice(y, 1, block.queries),
                   slice(node.inputs[2], 2, block.queries)};
        const Ids forward = block_inputs(o, block, k, v);
        inputs.insert(inputs.end(), forward.begin(), forward.end());
        const Ids made = builder_.emit("attention_backward", std::move(inputs), block.attributes);
        dq = added(dq, padded(made[0], block.queries.offset, a.queries));
        k_part = added(k_part, padded(made[1], block.keys.offset, a.keys));
        v_part = added(v_part, padded(made[2], block.keys.offset, a.keys));
      }
      const auto pass = [&](Passing& passing, ValueId part) {
        const ValueId earlier = passing.sent == kNoValue ? kNoValue : received(passing);
        passing = pass_on(part == kNoValue ? earlier : added(earlier, part), cut);
      };
      pass(dk, k_part);
      pass(dv, v_part);
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
  Replacements replaced_;
};

}  // namespace

void lower_context(Graph& graph, const ContextOptions& options) {
  ContextLowering(graph, options).run();
  verify_pass(graph);
}

}  // namespace dltrain
