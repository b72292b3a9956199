// An optimizer: its keys and the one fused update op that it emits over all parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "graph/builder.h"
#include "graph/reverse.h"

namespace dltrain {

struct Optimizer : Chosen {
  double learning_rate = 0;
  double weight_decay = 0;

  virtual ~Optimizer() = default;
  virtual void describe(Fields& f);
  // Emits moments (values of role moment, named "<moment>.<parameter>", zero at first) and the
  // update op. `state` is the StepState after gradient_norm; gradients are complete sums.
  virtual void emit(GraphBuilder& builder, ValueId state,
                    const std::vector<ParameterGradient>& gradients) const = 0;
};

const KindTable<Optimizer>& optimizer_table();

}  // namespace dltrain
