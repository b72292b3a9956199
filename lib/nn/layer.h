// A layer: its keys (described once, for parser, reference and schema) and how it emits ops. No
// layer writes a backward. One file a layer; the table is nn/registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "graph/builder.h"
#include "nn/parameters.h"

namespace dltrain {

// What a layer emits into. One context serves one graph; evaluation builds its own.
class LayerContext {
 public:
  // `compute` is the dtype of activations; parameters have its accumulation dtype.
  // `ghost_groups`: micro-batches in the global batch (batch statistics are averaged over them).
  LayerContext(GraphBuilder& builder, bool training, DType compute, int64_t ghost_groups)
      : builder_(builder), training_(training), compute_(compute), ghost_groups_(ghost_groups) {}

  GraphBuilder& builder() { return builder_; }
  bool training() const { return training_; }
  DType compute() const { return compute_; }
  int64_t ghost_groups() const { return ghost_groups_; }
  Shape shape(ValueId value) const { return builder_.spec(value).shape; }

  // The path of the layer that is being emitted: "layers.2".
  const std::string& path() const { return builder_.layer(); }

  // A parameter "<path>.<name>". `memory` is its shape in memory; `file` differs where files keep
  // another order of axes.
  ValueId parameter(const std::string& name, const Shape& memory, const Initializer& initializer);
  ValueId parameter(const std::string& name, const Shape& memory, const Initializer& initializer,
                    FileLayout file);
  // State that training moves without a gradient.
  ValueId buffer(const std::string& name, const Shape& memory, const Initializer& initializer);

  // Asks for a state update once a step, after the gradient norm is known: op(step_state, inputs…).
  void defer_update(std::string op, std::vector<ValueId> inputs, Attributes attributes) {
    updates_.push_back({path(), std::move(op), std::move(inputs), std::move(attributes)});
  }

  struct DeferredUpdate {
    std::string layer;
    std::string op;
    std::vector<ValueId> inputs;
    Attributes attributes;
  };

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const std::vector<DeferredUpdate>& updates() const { return updates_; }

 private:
  ValueId add(Role role, const std::string& name, const Shape& memory,
              const Initializer& initializer, FileLayout file);

  GraphBuilder& builder_;
  bool training_;
  DType compute_;
  int64_t ghost_groups_;
  std::vector<ParameterInfo> parameters_;
  std::vector<DeferredUpdate> updates_;
};

struct Layer : Chosen {
  virtual ~Layer() = default;
  virtual void describe(Fields&) {}
  // Emits the layer on `x` and returns its output. Throws Error(usage) when the shape does not fit.
  virtual ValueId emit(LayerContext& context, ValueId x) const = 0;
};

// The registry, in table order.
const KindTable<Layer>& layer_table();

// Throws Error(usage) "expects a vector a sample, got [32, 8, 8, 1]; put a flatten layer before
// it".
void expect_vectors(const Shape& shape);
void expect_images(const Shape& shape);

}  // namespace dltrain
