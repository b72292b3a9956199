// GaLore (Zhao et al. 2024, "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank
// Projection"): the gradient g [m, n] of a matrix is projected onto its leading singular vectors P
// [rank, m] (m < n; otherwise onto those of the other side), and the optimizer keeps the moments of
// P·g alone. Its step there, projected back and multiplied by `scale`, is that of the matrix. P is
// computed anew every `update_gap` updates from the gradient of that update.
//
// The ops: galore_projection, step_view (lib/ops/galore.cpp), matrix products, the optimizer's
// update of a parameter of zeros with a learning rate of 1, and sgd_update. Weight decay is
// decoupled and multiplies the matrix before the step is added (galore-torch: after it).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"
#include "graph/builder.h"

namespace dltrain {

struct Galore : ConfigObject {
  static constexpr std::string_view kBareKey = "rank";  // `galore: 128`

  int64_t rank = 0;
  int64_t update_gap = 200;
  double scale = 0.25;
  bool randomized = false;  // singular vectors by subspace iteration (Halko et al. 2011)
  std::vector<std::string> match{"*"};

  void describe(Fields& f);
  // Returns whether the gradient of a parameter of this name and shape is projected: a matrix whose
  // shorter side exceeds the rank.
  bool projects(std::string_view parameter, const Shape& shape) const;
  // Returns the shape of its projected gradient.
  Shape projected(const Shape& shape) const;
};

// Emits the nodes around the updates of an optimizer.
class GaloreUpdates {
 public:
  GaloreUpdates(const Galore& galore, GraphBuilder& builder, ValueId state)
      : galore_(galore),
        builder_(builder),
        state_(state),
        unit_rate_(builder.emit1("step_view", {state}, {{"unit_rate", true}})) {}

  // Changes an update of a matrix (inputs: step state, parameter, gradient, moments) to one of its
  // projection.
  void project(std::vector<ValueId>& inputs, Attributes& attributes);
  // Emits the steps of the matrices, after the updates of their projections.
  void apply();

 private:
  struct Matrix {
    ValueId parameter, projection, step;
    Attributes attributes;  // of the matrix's own step
    bool left;              // P multiplies from the left
  };

  const Galore& galore_;
  GraphBuilder& builder_;
  ValueId state_, unit_rate_;
  std::vector<Matrix> matrices_;
};

}  // namespace dltrain
