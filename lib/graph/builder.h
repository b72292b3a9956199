// GraphBuilder appends nodes to a graph. Layers, gradient rules and passes emit ops through it.
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
  // Nodes emitted from now on belong to this chunk (Node::chunk).
  void set_chunk(int chunk) { chunk_ = chunk; }
  int chunk() const { return chunk_; }
  // Nodes emitted from now on belong to this block.
  void set_block(int block) { block_ = block; }
  // Nodes emitted from now on have the layer, phase, block and chunk of this node.
  void set_place(const Node& node) {
    layer_ = node.layer;
    phase_ = node.phase;
    block_ = node.block;
    chunk_ = node.chunk;
  }
  // RAII scope: nodes emitted while it exists get a new block number (Node::block). A nested scope
  // has no effect.
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

  // Adds a value that no node produces: an input slot or state. Names of such values are unique,
  // which verify_graph() checks.
  ValueId add_value(std::string name, TensorSpec spec, Role role);
  // Adds state that belongs to a parameter or buffer, named "<kind> of <owner>".
  ValueId add_state_of(ValueId owner, std::string kind, TensorSpec spec, Role role);

  // Infers shapes. An Error thrown by the shape rule is rethrown with the layer path as its place.
  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                            Attributes attributes = {}) override;
  TensorSpec spec(ValueId value) const override { return graph_.value(value).spec; }
  ValueId step_state() override;

  // Makes `value` a sum over the micro-steps of a step (role gradient, statistic or metric) under
  // `name`, through a copy unless the value is its node's only output and nothing reads it.
  ValueId accumulate(ValueId value, std::string name, Role role);
  // Does the same for a sum that belongs to a parameter, as add_state_of().
  ValueId accumulate_of(ValueId value, ValueId owner, std::string kind, Role role);
  // Adds `value` to `sum`, a result of accumulate() or accumulate_onto(). The returned value has
  // the memory of `sum` and its node adds in every micro-step; `sum` must have no further readers.
  ValueId accumulate_onto(ValueId value, ValueId sum);

  Graph& graph() { return graph_; }

 private:
  ValueId as_sum(ValueId value);

  Graph& graph_;
  std::string layer_;
  Phase phase_ = Phase::forward;
  int block_ = -1, blocks_ = 0, chunk_ = 0;
};

}  // namespace dltrain
