#include "passes/chunk_loss.h"

#include <algorithm>
#include <optional>

#include "graph/builder.h"
#include "ops/gathered_parts.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

constexpr int kNone = -1;
constexpr int64_t kMaxChunks = 256;  // the limit of concat

// Indices of the nodes that chunks replace; kNone where there is no such node.
struct Head {
  int product = kNone, loss = kNone, gradient = kNone, seed = kNone;
  int dx = kNone, dw = kNone, db = kNone;
  std::vector<int> flat = {};  // reshapes of dlogits to two axes
  std::vector<int> sums = {};  // identities that copy loss and correct to metrics, and source_sums
};

class ChunkLoss {
 public:
  ChunkLoss(Graph& graph, std::vector<ParameterGradient>& gradients, const LogitLimits& limits)
      : graph_(graph), gradients_(gradients), limits_(limits), builder_(graph) {}

  // Returns whether there was something to do.
  bool run() {
    readers_ = graph_.readers();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].op->name != "softmax_cross_entropy") continue;
      if (graph_.nodes[i].inputs.size() > 2) return false;  // the logits are sharded
      if (const auto head = find(static_cast<int>(i))) {
        rewrite(*head);
        return true;  // at most one loss per graph
      }
    }
    return false;
  }

 private:
  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  const Node& node(int index) const { return graph_.nodes[static_cast<size_t>(index)]; }
  std::string_view op(int index) const { return node(index).op->name; }
  bool is_sum(ValueId id, Role role) const { return graph_.value(id).role == role; }

  // Returns the columns that the rows of these logits lack.
  int64_t padding(const TensorSpec& logits) const {
    const int64_t columns = logits.shape[-1];
    const bool wide = columns >= 64 * limits_.wide_column_grain;
    const int64_t grain =
        wide ? std::max(limits_.column_grain, limits_.wide_column_grain) : limits_.column_grain;
    const int64_t over = columns % grain;
    return over == 0 || logits.bytes() < limits_.least_padded ? 0 : grain - over;
  }

  std::optional<Head> find(int loss) const {
    Head head{.loss = loss};
    const ValueId logits = node(loss).inputs[0];
    const GraphValue& y = graph_.value(logits);
    head.product = y.producer;
    if (head.product == kNone || y.role != Role::activation ||
        (y.spec.bytes() <= limits_.most_bytes && padding(y.spec) == 0)) {
      return {};
    }
    const Node& product = node(head.product);
    if (product.op->name != "matmul" || product.attributes.boolean("transpose_a") ||
        !product.attributes.boolean("transpose_b") ||
        !product.attributes.text("activation").empty()) {
      return {};
    }
    for (int reader : readers_[at(logits)]) {
      if (reader == loss) continue;
      if (op(reader) != "softmax_cross_entropy_backward" || head.gradient != kNone) return {};
      head.gradient = reader;
    }
    if (head.gradient == kNone) return {};
    if (!find_sums(head) || !find_products(head, node(head.gradient).outputs[0])) return {};
    return head;
  }

  // Returns whether only metrics, and for the loss the seed of the backward, read the loss's sums.
  bool find_sums(Head& head) const {
    const Node &loss = node(head.loss), &gradient = node(head.gradient);
    for (int reader : readers_[at(loss.outputs[1])]) {
      if (reader != head.gradient) return false;
    }
    for (size_t output = 0; output < loss.outputs.size(); ++output) {
      if (output == 1) continue;
      for (int reader : readers_[at(loss.outputs[output])]) {
        const bool sums = op(reader) == "identity" || op(reader) == "source_sums";
        if (sums && is_sum(node(reader).outputs[0], Role::metric)) {
          head.sums.push_back(reader);
        } else if (op(reader) == "loss_seed" && head.seed == kNone) {
          head.seed = reader;
        } else {
          return false;
        }
      }
    }
    return head.seed != kNone && gradient.inputs[3] == node(head.seed).outputs[0];
  }

  bool find_products(Head& head, ValueId dy) const {
    for (int reader : readers_[at(dy)]) {
      const Node& n = node(reader);
      const bool transposed = n.attributes.boolean("transpose_a");
      if (n.op->same_elements == SameElements::view && graph_.value(dy).storage_of == kNoValue) {
        head.flat.push_back(reader);
        if (!find_products(head, n.outputs[0])) return false;
      } else if (n.op->name == "matmul" && n.inputs[0] == dy && !transposed && head.dx == kNone) {
        head.dx = reader;
      } else if (n.op->name == "matmul" && n.inputs[0] == dy && transposed && head.dw == kNone &&
                 is_sum(n.outputs[0], Role::gradient)) {
        head.dw = reader;
      } else if (n.op->name == "reduce" && head.db == kNone &&
                 is_sum(n.outputs[0], Role::gradient)) {
        head.db = reader;
      } else {
        return false;
      }
    }
    return true;
  }

  void rewrite(const Head& head) {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    const auto gone = [&](int i) {
      const int replaced[] = {head.product, head.loss, head.gradient, head.dx, head.dw, head.db};
      const auto holds = [&](const auto& list) {
        return std::find(std::begin(list), std::end(list), i) != std::end(list);
      };
      return holds(replaced) || holds(head.sums) || holds(head.flat);
    };
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      Node& n = nodes[static_cast<size_t>(i)];
      if (i == head.seed) n.inputs.resize(1);  // the seed needs no loss, which comes later now
      if (i == head.gradient) emit_chunks(head, nodes);
      if (!gone(i)) graph_.nodes.push_back(n);
    }
    graph_.update_producers();
  }

  void emit_chunks(const Head& head, const std::vector<Node>& nodes) {
    const auto old = [&](int index) -> const Node& { return nodes[static_cast<size_t>(index)]; };
    const Node &product = old(head.product), &loss = old(head.loss);
    const TensorSpec logits = graph_.value(product.outputs[0]).spec;
    const int64_t rows = logits.shape.elements() / logits.shape[-1];
    const auto wanted = std::min<int64_t>(
        kMaxChunks,
        static_cast<int64_t>((logits.bytes() + limits_.most_bytes - 1) / limits_.most_bytes));
    const int64_t even = (rows + wanted - 1) / wanted;
    const int64_t most =
        std::min(rows, (even + limits_.row_grain - 1) / limits_.row_grain * limits_.row_grain);
    builder_.set_phase(Phase::backward);
    builder_.set_layer(product.layer);
    const ValueId x =
        builder_.reshape(product.inputs[0], {rows, graph_.value(product.inputs[0]).spec.shape[-1]});
    const ValueId targets = builder_.reshape(loss.inputs[1], {rows});
    const int64_t rest = padding(logits);
    Attributes of_loss = loss.attributes;
    if (rest != 0) of_loss.set("classes", logits.shape[-1]);
    std::vector<ValueId> operands = product.inputs;  // of the product: x, w and perhaps b
    for (size_t i = 1; rest != 0 && i < operands.size(); ++i) operands[i] = pad(operands[i], rest);
    std::vector<ValueId> dx;
    for (int64_t first = 0; first < rows; first += most) {
      const CutRange part{first, std::min(most, rows - first)};
      const ValueId x_part = operands[0] = emit_range(builder_, x, 0, part);
      builder_.set_layer(product.layer);
      const ValueId y = builder_.emit1("matmul", operands, product.attributes);
      builder_.set_layer(loss.layer);
      const ValueId targets_part = emit_range(builder_, targets, 0, part);
      const auto out = builder_.emit("softmax_cross_entropy_gradient",
                                     {y, targets_part, old(head.seed).outputs[0]}, of_loss);
      for (int sum : head.sums) {
        const Node& whole = old(sum);
        if (whole.op->name == "source_sums") {
          const ValueId sources = builder_.reshape(whole.inputs[2], {rows});
          emit_part(whole, {out[3], targets_part, emit_range(builder_, sources, 0, part)},
                    first == 0);
          continue;
        }
        const bool correct = whole.inputs[0] == loss.outputs[2];
        emit_part(whole, {out[correct ? 2 : 1]}, first == 0);
      }
      const ValueId dy = out[0];
      builder_.set_layer(product.layer);
      if (head.dx != kNone) {
        dx.push_back(builder_.emit1("matmul", {dy, operands[1]}, old(head.dx).attributes));
      }
      if (head.dw != kNone) emit_part(old(head.dw), {dy, x_part}, first == 0, rest);
      if (head.db != kNone) emit_part(old(head.db), {dy}, first == 0, rest);
    }
    if (head.dx != kNone) join(dx, old(head.dx).outputs[0]);
    end_sums();
  }

  // Appends `rest` rows of zeros to a weight or bias.
  ValueId pad(ValueId id, int64_t rest) {
    std::vector<int64_t> before(static_cast<size_t>(graph_.value(id).spec.shape.rank()), 0),
        after = before;
    after[0] = rest;
    return builder_.emit1("pad", {id}, {{"before", before}, {"after", after}});
  }

  // Emits the next part of `whole`'s sum: the first takes over its value, later ones continue it.
  // If `rest` is not 0, the parts have that many more rows, and end_sums() writes the value.
  void emit_part(const Node& whole, std::vector<ValueId> inputs, bool first, int64_t rest = 0) {
    const std::string layer = builder_.layer();
    builder_.set_layer(whole.layer);
    const ValueId made = builder_.emit1(whole.op->name, std::move(inputs), whole.attributes);
    builder_.set_layer(layer);
    const ValueId sum = whole.outputs[0];
    if (first && rest == 0) {
      graph_.nodes.back().outputs = {sum};
      graph_.value(sum).producer = static_cast<int>(graph_.nodes.size()) - 1;
    }
    if (first) return parts_.push_back({sum, rest == 0 ? sum : made, rest});
    const auto part = std::ranges::find(parts_, sum, &Part::sum);
    graph_.value(made).role = graph_.value(part->last).role;
    graph_.value(made).storage_of = part->last;
    part->last = made;
  }

  // Values that continued a sum now continue its last part.
  void end_sums() {
    for (const auto& [sum, last, rest] : parts_) {
      if (rest != 0) {
        emit_range(builder_, last, 0, {0, graph_.value(sum).spec.shape[0]});
        graph_.nodes.back().outputs = {sum};
      }
      if (rest != 0 || sum == last) continue;
      ValueId second = last;  // the one that continues `sum` itself
      while (graph_.value(second).storage_of != sum) second = graph_.value(second).storage_of;
      for (size_t i = 0; i < graph_.values.size(); ++i) {
        GraphValue& value = graph_.values[i];
        if (value.storage_of == sum && static_cast<ValueId>(i) != second) value.storage_of = last;
      }
      for (ParameterGradient& g : gradients_) {
        if (g.gradient == sum) g.gradient = last;
      }
    }
  }

  // Joins the chunks of dx into the value that the rest of the backward reads.
  void join(const std::vector<ValueId>& parts, ValueId dx) {
    const ValueId whole =
        parts.size() == 1 ? parts[0] : builder_.emit1("concat", parts, {{"axis", int64_t{0}}});
    const Shape& shape = graph_.value(dx).spec.shape;
    if (shape == graph_.value(whole).spec.shape) {
      // The last node is not the one that makes dx if there is one chunk only.
      graph_.nodes[static_cast<size_t>(graph_.value(whole).producer)].outputs = {dx};
      return;
    }
    builder_.reshape(whole, shape);
    graph_.nodes.back().outputs = {dx};
    graph_.value(dx).storage_of = whole;
  }

  Graph& graph_;
  std::vector<ParameterGradient>& gradients_;
  LogitLimits limits_;
  GraphBuilder builder_;
  std::vector<std::vector<int>> readers_;  // by value: the nodes that read it
  struct Part {
    ValueId sum, last;  // the value of a whole sum, and the last part of it
    int64_t rest;       // rows that its parts have more
  };
  std::vector<Part> parts_;
};

}  // namespace

LogitLimits logit_limits(uint64_t memory) {
  if (memory == 0) return {};
  return {.most_bytes = std::max<size_t>(kMaxLogitBytes, memory / 64),
          .row_grain = 256,
          .column_grain = 8,
          .wide_column_grain = 64};
}

bool chunk_loss(Graph& graph, std::vector<ParameterGradient>& gradients,
                const LogitLimits& limits) {
  const bool changed = ChunkLoss(graph, gradients, limits).run();
  verify_pass(graph);
  return changed;
}

}  // namespace dltrain
