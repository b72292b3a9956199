// Appends nodes to a graph: what layers, gradient rules and passes emit through.
#pragma once

#include <string>

#include "graph/graph.h"

namespace dltrain {

class GraphBuilder final : public OpEmitter {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  // Nodes emitted from now on carry this layer path and phase.
  void set_layer(std::string layer) { layer_ = std::move(layer); }
  const std::string& layer() const { return layer_; }
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }

  // While one lives, nodes belong to a block of their own (Node::block); within another it does
  // nothing.
  class Block {
   public:
    explicit Block(GraphBuilder& builder) : builder_(builder), outermost_(builder.block_ < 0) {
      if (outermost_) builder_.block_ = builder_.blocks_++;
    }
    ~Block() {
      if (outermost_) builder_.block_ = -1;
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

   private:
    GraphBuilder& builder_;
    bool outermost_;
  };

  // A value that no node produces: an input slot or state. Names of such values are unique.
  ValueId add_value(std::string name, TensorSpec spec, Role role);

  // Infers shapes; an Error of the shape rule is thrown anew with the layer path as its place.
  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                            Attributes attributes = {}) override;
  TensorSpec spec(ValueId value) const override { return graph_.value(value).spec; }
  ValueId step_state() override;

  // Makes `value` a sum over the micro-steps of a step (role gradient, statistic or metric) under
  // `name`, through a copy unless the value is its node's only output and nothing reads it.
  ValueId accumulate(ValueId value, std::string name, Role role);
  // Adds `value` to `sum`, which accumulate() or this has returned: a value in the same memory,
  // whose node adds in every micro-step. Nothing reads `sum` any more.
  ValueId accumulate_onto(ValueId value, ValueId sum);

  Graph& graph() { return graph_; }

 private:
  ValueId as_sum(ValueId value);

  Graph& graph_;
  std::string layer_;
  Phase phase_ = Phase::forward;
  int block_ = -1, blocks_ = 0;
};

}  // namespace dltrain
