#include "optim/galore.h"

#include <algorithm>

#include "config/name_patterns.h"
#include "ops/galore.h"

namespace dltrain {

void Galore::describe(Fields& f) {
  f.integer("rank", rank,
            {.doc = "Singular vectors that a gradient is projected onto (`galore: 128` means rank "
                    "128); matrices whose shorter "
                    "side is not longer are updated as without galore",
             .required = true,
             .min = 1,
             .max = 1e6,
             .known_as = {"r", "galore_rank"}});
  f.integer("update_gap", update_gap,
            {.doc = "Updates between two computations of the vectors",
             .min = 1,
             .max = 1e9,
             .known_as = {"update_proj_gap", "gap", "T"}});
  f.number("scale", scale,
           {.doc = "Multiplies the steps of projected matrices",
            .above = 0,
            .known_as = {"alpha", "galore_scale"}});
  f.choice("svd", randomized,
           {{"exact", false, "from the eigenvectors of g·gᵀ, in f64"},
            {"randomized", true,
             "by subspace iteration (Halko et al. 2011), for large matrices and small ranks"}},
           {.doc = "How the singular vectors are computed"});
  f.texts("match", match,
          {.doc = "Patterns of the names of matrices to project; patterns after ! exclude names",
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"target_modules", "optim_target_modules"}});
}

bool Galore::projects(std::string_view parameter, const Shape& shape) const {
  return shape.rank() == 2 && std::min(shape[0], shape[1]) > rank && selects(match, parameter);
}

Shape Galore::projected(const Shape& shape) const {
  return projects_from_left(shape) ? Shape{rank, shape[1]} : Shape{shape[0], rank};
}

void GaloreUpdates::project(std::vector<ValueId>& inputs, Attributes& attributes) {
  const ValueId parameter = inputs[1], gradient = inputs[2];
  const TensorSpec spec = builder_.spec(parameter);
  const bool left = projects_from_left(spec.shape);
  const TensorSpec of_projection{Shape{galore_.rank, std::min(spec.shape[0], spec.shape[1])},
                                 builder_.spec(gradient).dtype};
  const ValueId state = builder_.add_state_of(parameter, "projection", of_projection, Role::moment);
  const ValueId projection =
      builder_.emit1("galore_projection", {state_, gradient, state},
                     {{"gap", galore_.update_gap}, {"randomized", galore_.randomized}});
  const ValueId low =
      left ? builder_.emit1("matmul", {projection, gradient})
           : builder_.emit1("matmul", {gradient, projection}, {{"transpose_b", true}});
  const ValueId zeros = builder_.scaled(low, 0);
  inputs[0] = unit_rate_;
  inputs[1] = zeros;
  inputs[2] = low;
  Attributes own;
  for (const char* key : {"lr_scale", "weight_decay"}) own.set(key, attributes.numbers(key));
  matrices_.push_back({parameter, projection, zeros, own, left});
  attributes.set("lr_scale", std::vector<double>{1});
  attributes.set("weight_decay", std::vector<double>{0});
}

void GaloreUpdates::apply() {
  const ValueId plain = builder_.emit1("step_view", {state_}, {{"plain_gradient", true}});
  for (const Matrix& matrix : matrices_) {
    // sgd_update subtracts its gradient.
    const ValueId low = builder_.scaled(builder_.graph().newest(matrix.step), -galore_.scale);
    const ValueId direction =
        matrix.left ? builder_.emit1("matmul", {matrix.projection, low}, {{"transpose_a", true}})
                    : builder_.emit1("matmul", {low, matrix.projection});
    builder_.emit("sgd_update", {plain, matrix.parameter, direction}, matrix.attributes);
  }
}

}  // namespace dltrain
