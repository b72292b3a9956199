#include "optim/parameter_groups.h"

namespace dltrain {

void ParameterGroup::describe(Fields& f) {
  f.texts("match", match,
          {.doc = "Patterns of parameter names, such as layers.0.*; ! before one takes out again",
           .required = true,
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"params", "pattern", "patterns", "parameters"}});
  f.number("learning_rate", learning_rate,
           {.doc = "Peak learning rate of these parameters; the schedule scales it too",
            .min = 0,
            .known_as = {"lr"}});
  f.number("lr_scale", lr_scale,
           {.doc = "Learning rate of these parameters as a multiple of the optimizer's",
            .min = 0,
            .known_as = {"lr_mult", "lr_multiplier"}});
  f.number("weight_decay", weight_decay,
           {.doc = "Decay of these parameters", .min = 0, .known_as = {"wd"}});
  f.boolean("freeze", freeze, {.doc = "Leave them as they are; as training.freeze does"});
}

void ParameterGroup::validate(Problems& problems) const {
  if (learning_rate && lr_scale) {
    problems.add(*this, "lr_scale", "learning_rate and lr_scale are both given; keep one");
  }
}

}  // namespace dltrain
