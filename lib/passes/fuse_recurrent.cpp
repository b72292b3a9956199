#include "passes/fuse_recurrent.h"

#include <algorithm>

#include "ops/kernel.h"
#include "ops/recurrent.h"
#include "passes/remove_nodes.h"

namespace dltrain {
namespace {

ValueId operand(const Node& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNoValue;
}

// The nodes of one network, by index; −1: there is none.
struct Network {
  int projection = -1, recurrent = -1, backward = -1;
  int cell = -1;                // the slice of the cells after the last token
  std::vector<int> dx, dw, db;  // at most one each, besides views of the gradient between
  std::vector<int> views;
};

class RecurrentFusion {
 public:
  RecurrentFusion(Graph& graph, const KeptBytes& kept)
      : graph_(graph), kept_(kept), readers_(graph.values.size()), gone_(graph.nodes.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (ValueId id : graph.nodes[i].inputs) {
        if (id != kNoValue) readers_[static_cast<size_t>(id)].push_back(static_cast<int>(i));
      }
    }
  }

  bool run() {
    bool any = false;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].op->name != "recurrent" || gone_[i]) continue;
      Network n;
      n.recurrent = static_cast<int>(i);
      any = (find(n) && replace(n)) || any;
    }
    if (!any) return false;
    remove_nodes(graph_, gone_);
    return true;
  }

 private:
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  const std::vector<int>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  bool find(Network& n) const {
    const Node& r = node(n.recurrent);
    n.projection = graph_.value(r.inputs[0]).producer;
    if (n.projection < 0 || !is_projection(node(n.projection), r)) return false;
    if (readers(r.inputs[0]).size() != 1) return false;
    n.backward = find_backward(n);
    return gates_are_free(n) && (n.backward < 0 || find_gradients(n));
  }

  bool is_projection(const Node& m, const Node& r) const {
    return m.op->name == "matmul" && m.phase == r.phase && m.attributes.boolean("transpose_b") &&
           !m.attributes.boolean("transpose_a") && m.attributes.text("activation").empty() &&
           shape(m.inputs[0]).rank() == 3 &&
           (operand(m, 2) == kNoValue) == (operand(r, 2) == kNoValue) &&
           graph_.value(m.inputs[0]).spec.dtype == graph_.value(r.outputs[0]).spec.dtype;
  }

  int find_backward(const Network& n) const {
    const Node& r = node(n.recurrent);
    for (int i : readers(r.outputs[0])) {
      const Node& b = node(i);
      if (b.op->name == "recurrent_backward" && b.inputs[1] == r.outputs[0] &&
          b.inputs[4] == r.inputs[1]) {
        return i;
      }
    }
    return -1;
  }

  // True if only the backward reads gates and cells, besides one slice of the last token's cells.
  bool gates_are_free(Network& n) const {
    const Node& r = node(n.recurrent);
    for (size_t i = 1; i < r.outputs.size(); ++i) {
      for (int reader : readers(r.outputs[i])) {
        if (reader == n.backward) continue;
        if (i != 2 || n.cell >= 0 || !takes_last_cell(node(reader), r)) return false;
        n.cell = reader;
      }
    }
    return true;
  }
  bool takes_last_cell(const Node& slice, const Node& r) const {
    if (slice.op->name != "slice" || recurrent_kind(r.attributes) != RecurrentKind::lstm) {
      return false;
    }
    const RecurrentSizes s = recurrent_sizes(shape(r.outputs[0]), r.attributes);
    const std::vector<int64_t> others{0, s.tokens - 1, 0}, none{0, 0, 0};
    return slice.attributes.integers("before") == (s.reverse ? none : others) &&
           slice.attributes.integers("after") == (s.reverse ? others : none);
  }

  // Finds the nodes that read the gradient of the projected inputs, or a flat view of it.
  bool find_gradients(Network& n) const {
    const ValueId gradient = node(n.backward).outputs[0];
    std::vector<ValueId> names{gradient};
    for (int i : readers(gradient)) {
      if (node(i).op->same_elements != SameElements::view) continue;
      n.views.push_back(i);
      names.push_back(node(i).outputs[0]);
    }
    for (ValueId name : names) {
      for (int i : readers(name)) {
        if (std::find(n.views.begin(), n.views.end(), i) == n.views.end() &&
            !is_gradient(i, name, n)) {
          return false;
        }
      }
    }
    return n.dx.size() <= 1 && n.dw.size() <= 1 && n.db.size() <= 1;
  }

  bool is_gradient(int i, ValueId name, Network& n) const {
    const Node& reader = node(i);
    const Node &m = node(n.projection), &b = node(n.backward);
    const DType sums = graph_.value(b.outputs[1]).spec.dtype;
    const DType found = graph_.value(reader.outputs[0]).spec.dtype;
    if (reader.phase != b.phase || reader.once_per_step || reader.inputs[0] != name) {
      return false;
    }
    if (reader.op->name == "reduce") {
      n.db.push_back(i);
      return found == sums && reader.attributes.text("kind") == "sum" &&
             operand(m, 2) != kNoValue && shape(reader.outputs[0]) == shape(m.inputs[2]);
    }
    if (reader.op->name != "matmul" || !reader.attributes.text("activation").empty() ||
        operand(reader, 2) != kNoValue || reader.attributes.boolean("transpose_b")) {
      return false;
    }
    if (reader.attributes.boolean("transpose_a")) {
      n.dw.push_back(i);
      return found == sums && graph_.storage(reader.inputs[1]) == graph_.storage(m.inputs[0]) &&
             shape(reader.outputs[0]) == shape(m.inputs[1]);
    }
    n.dx.push_back(i);
    return reader.inputs[1] == m.inputs[1] &&
           graph_.value(reader.outputs[0]).spec == graph_.value(m.inputs[0]).spec;
  }

  ValueId new_value(const TensorSpec& spec) {
    graph_.values.push_back({.name = {}, .spec = spec, .role = Role::activation});
    readers_.emplace_back();
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  // Returns false if the engine has no better kernel.
  bool replace(const Network& n) {
    const Node &r = node(n.recurrent), &m = node(n.projection);
    Node forward = r;
    forward.op = find_op("recurrent_network");
    forward.attributes = {{"kind", r.attributes.text("kind")},
                          {"reverse", r.attributes.boolean("reverse")},
                          {"kept_bytes", int64_t{0}}};
    forward.inputs = {m.inputs[0],   m.inputs[1],   r.inputs[1],  operand(m, 2),
                      operand(r, 2), operand(r, 3), operand(r, 4)};
    const SpecList inputs = graph_.input_specs(forward);
    const auto bytes =
        kept_(forward.attributes, inputs, forward.op->infer(inputs, forward.attributes));
    if (!bytes) return false;
    if (n.backward >= 0) forward.attributes.set("kept_bytes", *bytes);
    const SpecList outputs = forward.op->infer(inputs, forward.attributes);
    forward.outputs = {r.outputs[0]};
    for (size_t i = 1; i < outputs.size(); ++i) {
      const bool cell = outputs[i].dtype != DType::u8 && n.cell >= 0;
      forward.outputs.push_back(cell ? node(n.cell).outputs[0] : new_value(outputs[i]));
    }
    if (n.backward >= 0) replace_backward(n, forward);
    remove(n.projection);
    if (n.cell >= 0) remove(n.cell);
    node(n.recurrent) = std::move(forward);
    return true;
  }

  void replace_backward(const Network& n, const Node& forward) {
    Node backward = node(n.backward);
    const int x_view = view_of_inputs(n);
    const ValueId dw_hh = backward.outputs[1],
                  db_hh = backward.outputs.size() > 2 ? backward.outputs[2] : kNoValue;
    const auto& in = forward.inputs;
    const bool keeps = forward.attributes.integer("kept_bytes") > 0;
    backward.op = find_op("recurrent_network_backward");
    backward.attributes = forward.attributes;
    backward.inputs = {backward.inputs[0],
                       in[0],
                       forward.outputs[0],
                       in[1],
                       in[2],
                       in[3],
                       in[4],
                       in[5],
                       in[6],
                       keeps ? forward.outputs.back() : kNoValue};
    const SpecList outputs = backward.op->infer(graph_.input_specs(backward), backward.attributes);
    backward.outputs = {written(n.dx, outputs[0]), written(n.dw, outputs[1]), dw_hh};
    if (outputs.size() > 3) {
      backward.outputs.push_back(written(n.db, outputs[3]));
      backward.outputs.push_back(db_hh);
    }
    for (int view : n.views) remove(view);
    if (x_view >= 0) remove(x_view);
    node(n.backward) = std::move(backward);
  }

  // Returns the node of a view of x that only the product for dw_ih reads, or −1.
  int view_of_inputs(const Network& n) const {
    if (n.dw.empty()) return -1;
    const ValueId x = node(n.dw[0]).inputs[1];
    const int producer = graph_.value(x).producer;
    return producer >= 0 && node(producer).op->same_elements == SameElements::view &&
                   readers(x).size() == 1
               ? producer
               : -1;
  }

  // Returns the value that replaces the output of node list[0]: that output itself or, if it is a
  // sum over micro-steps, a new value that the node now copies to the sum.
  ValueId written(const std::vector<int>& list, const TensorSpec& spec) {
    if (list.empty()) return new_value(spec);
    Node& old = node(list[0]);
    const ValueId value = old.outputs[0];
    if (graph_.value(value).role == Role::activation) {
      remove(list[0]);
      return value;
    }
    const ValueId made = new_value(spec);
    old.op = find_op("identity");
    old.attributes = {};
    old.inputs = {made};
    return made;
  }

  void remove(int i) { gone_[static_cast<size_t>(i)] = true; }

  Graph& graph_;
  const KeptBytes& kept_;
  std::vector<std::vector<int>> readers_;  // per value: the nodes that read it
  std::vector<bool> gone_;                 // per node
};

}  // namespace

Graph fuse_recurrent(Graph graph, const KeptBytes& kept) {
  if (!RecurrentFusion(graph, kept).run()) return graph;
  verify_graph(graph);
  return graph;
}

}  // namespace dltrain
