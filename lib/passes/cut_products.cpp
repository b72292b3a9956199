#include "passes/cut_products.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/builder.h"
#include "ops/gathered_parts.h"
#include "ops/token_runs.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

bool is(const Node& node, std::string_view op) {
  return node.op->name == op && node.phase == Phase::forward;
}

class ProductCut {
 public:
  ProductCut(Graph& graph, const PiecesOfProduct& pieces)
      : graph_(graph), builder_(graph), pieces_(pieces), readers_(graph.readers()) {}

  int run() {
    graph_.update_producers();
    const std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (done_.contains(i)) continue;
      for (ValueId id : node.inputs) append_whole(id, node);
      if (!cut(nodes, i)) graph_.nodes.push_back(node);
    }
    graph_.update_producers();
    return messages_;
  }

 private:
  // A tensor [before, ranks · rows, after], and the pieces of the rows of each rank.
  struct Rows {
    int axis = 0;
    int64_t ranks = 0, rows = 0;
    int pieces = 1;
    int64_t piece() const { return rows / pieces; }
  };

  bool cut(const std::vector<Node>& nodes, size_t at) {
    if (is(nodes[at], "gather_tokens")) return cut_gather(nodes, at);
    // The scales of blocks cannot be cut together with the codes.
    const bool of_codes = is(nodes[at], "fp8_matmul") && !nodes[at].attributes.has("block_a");
    return (is(nodes[at], "matmul") || of_codes) && cut_scatter(nodes, nodes[at]);
  }

  // The rows of a message, whose `local` tensor has those of one rank, and the number of pieces.
  Rows rows_of(const Node& message, ValueId local, const Node& product, double copied,
               bool even) const {
    const TensorSpec& spec = graph_.value(local).spec;
    Rows out{.axis = static_cast<int>(message.attributes.integer("axis")),
             .ranks = TokenCut(message.attributes).ranks};
    out.rows = spec.shape[out.axis];
    const bool by_rows = !TokenCut(message.attributes).balanced &&
                         out.axis < spec.shape.rank() - 1 &&
                         !product.attributes.boolean("transpose_a") &&
                         graph_.value(message.outputs[0]).role == Role::activation;
    if (!by_rows) return out;
    const double received = static_cast<double>(out.ranks - 1) * static_cast<double>(spec.bytes());
    out.pieces = pieces_(product, received, copied, even);
    while (out.rows % out.pieces != 0) --out.pieces;
    return out;
  }

  // Returns whether all ranks have as much of the weight as this one.
  bool is_even(const Node& product) const {
    const std::optional<Shard>& shard = graph_.value(product.inputs[1]).shard;
    if (!shard || !shard->cut) return false;
    const Cut& cut = *shard->cut;
    return cut.local(shard->whole.shape, 0) == cut.local(shard->whole.shape, cut.ranks - 1);
  }

  double bytes(ValueId id) const { return static_cast<double>(graph_.value(id).spec.bytes()); }

  // Rows of a rank → gather → products.
  bool cut_gather(const std::vector<Node>& nodes, size_t at) {
    const Node& gather = nodes[at];
    // The products move up to the gather, so whatever else they read must be made before it.
    const auto is_ready = [&](ValueId id) {
      return id == kNoValue || graph_.value(id).producer <= static_cast<int>(at);
    };
    std::vector<size_t> products;
    bool other = false, even = true;
    double copied = 0;
    for (int reader : readers_[static_cast<size_t>(gather.outputs[0])]) {
      const Node& node = nodes[static_cast<size_t>(reader)];
      if (node.phase != Phase::forward) continue;
      other |= !is(node, "matmul") || node.inputs[0] != gather.outputs[0] ||
               std::ranges::count(node.inputs, gather.outputs[0]) > 1 ||
               !std::ranges::all_of(node.inputs, is_ready);
      products.push_back(static_cast<size_t>(reader));
      copied += 2 * bytes(node.outputs[0]);
      even = even && !other && is_even(node);
    }
    if (other || products.empty()) return false;
    const Rows rows = rows_of(gather, gather.inputs[0], nodes[products[0]], copied, even);
    if (rows.pieces == 1) return false;
    builder_.set_place(gather);
    std::vector<ValueId> gathered;
    for (int piece = 0; piece < rows.pieces; ++piece) {
      gathered.push_back(emit_like(gather, {slice(gather.inputs[0], rows.axis, rows, piece)}));
    }
    std::vector<std::vector<ValueId>> made(products.size());
    for (int piece = 0; piece < rows.pieces; ++piece) {
      for (size_t p = 0; p < products.size(); ++p) {
        const Node& product = nodes[products[p]];
        builder_.set_place(product);
        std::vector<ValueId> inputs = product.inputs;
        inputs[0] = gathered[static_cast<size_t>(piece)];
        const ValueId out = emit_like(product, std::move(inputs));
        made[p].push_back(builder_.reshape(out, split(out, rows, rows.piece())));
      }
    }
    for (size_t p = 0; p < products.size(); ++p) {
      const Node& product = nodes[products[p]];
      builder_.set_place(product);
      const ValueId joined = builder_.emit1("concat", made[p], {{"axis", int64_t{rows.axis + 1}}});
      const Shape& shape = graph_.value(product.outputs[0]).spec.shape;
      append_as(product, "reshape", {joined}, {{"shape", shape.list()}});
      done_.insert(products[p]);
    }
    whole_[gather.outputs[0]] = gather;
    ++messages_;
    return true;
  }

  // Product → scatter.
  bool cut_scatter(const std::vector<Node>& nodes, const Node& product) {
    const std::vector<int>& readers = readers_[static_cast<size_t>(product.outputs[0])];
    if (readers.size() != 1 || !is(nodes[static_cast<size_t>(readers[0])], "scatter_tokens")) {
      return false;
    }
    const Node& scatter = nodes[static_cast<size_t>(readers[0])];
    const double copied = 2 * bytes(product.inputs[0]) + 2 * bytes(scatter.outputs[0]);
    const Rows rows = rows_of(scatter, scatter.outputs[0], product, copied, is_even(product));
    if (rows.pieces == 1) return false;
    builder_.set_place(product);
    const ValueId x = product.inputs[0];
    const Shape apart = split(x, rows, rows.rows);
    std::vector<ValueId> made;
    for (int piece = 0; piece < rows.pieces; ++piece) {
      std::vector<ValueId> inputs = product.inputs;
      inputs[0] = slice(builder_.reshape(x, apart), rows.axis + 1, rows, piece);
      Shape shape = graph_.value(x).spec.shape;
      shape[rows.axis] = rows.ranks * rows.piece();
      inputs[0] = builder_.reshape(inputs[0], shape);
      made.push_back(emit_like(scatter, {emit_like(product, std::move(inputs))}));
    }
    append_as(scatter, "concat", std::move(made), {{"axis", int64_t{rows.axis}}});
    done_.insert(static_cast<size_t>(readers[0]));
    ++messages_;
    return true;
  }

  // The whole gather runs before its first reader in the backward.
  void append_whole(ValueId id, const Node& reader) {
    const auto whole = whole_.find(id);
    if (whole == whole_.end()) return;
    Node node = std::move(whole->second);
    whole_.erase(whole);
    node.phase = reader.phase;
    node.block = reader.block;
    node.chunk = reader.chunk;
    node.attributes.erase(kAlwaysAgain);
    graph_.nodes.push_back(std::move(node));
  }

  ValueId emit_like(const Node& node, std::vector<ValueId> inputs) {
    Attributes attributes = node.attributes;
    attributes.erase(kAlwaysAgain);
    return builder_.emit1(node.op->name, std::move(inputs), std::move(attributes));
  }
  // Appends a node that makes the output of another one.
  void append_as(const Node& node, std::string_view op, std::vector<ValueId> inputs,
                 Attributes attributes) {
    Node out = node;
    out.op = find_op(op);
    out.inputs = std::move(inputs);
    out.attributes = std::move(attributes);
    graph_.append(std::move(out));
  }
  Shape split(ValueId id, const Rows& rows, int64_t extent) const {
    std::vector<int64_t> out = graph_.value(id).spec.shape.list();
    out[static_cast<size_t>(rows.axis)] = rows.ranks;
    out.insert(out.begin() + rows.axis + 1, extent);
    return Shape(std::span<const int64_t>(out));
  }
  ValueId slice(ValueId id, int axis, const Rows& rows, int piece) {
    return emit_range(builder_, id, axis, {piece * rows.piece(), rows.piece()});
  }

  Graph& graph_;
  GraphBuilder builder_;
  const PiecesOfProduct& pieces_;
  std::vector<std::vector<int>> readers_;  // by value, as indices of the nodes before
  std::set<size_t> done_;                  // nodes that have been replaced
  std::map<ValueId, Node> whole_;          // gathers that the backward may read
  int messages_ = 0;
};

}  // namespace

int cut_products(Graph& graph, const PiecesOfProduct& pieces) {
  const int messages = ProductCut(graph, pieces).run();
  if (messages > 0) verify_pass(graph);
  return messages;
}

}  // namespace dltrain
