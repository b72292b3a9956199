// An optimizer: its keys and the one fused update op that it emits over all parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "optim/parameter_groups.h"

namespace dltrain {

// A kind of optimizer state: one tensor for each parameter, named "<name>.<parameter>", zero at
// first.
struct MomentSpec {
  std::string name;
  Shape shape;
};

struct Optimizer : Chosen {
  double learning_rate = 0;
  double weight_decay = 0;
  WeightDecayOn weight_decay_on = WeightDecayOn::all;
  std::vector<ParameterGroup> groups;

  virtual ~Optimizer() = default;
  virtual void describe(Fields& f);

  // The update op and its own attributes (lib/ops/update.cpp).
  virtual std::string op() const = 0;
  virtual Attributes attributes() const = 0;
  // The state that a parameter of this shape has; as many kinds for every shape, those that it does
  // not have without a name.
  virtual std::vector<MomentSpec> moments(const Shape& parameter) const = 0;

  // Whether parameters that do not decay go without what sets this optimizer apart (the trust ratio
  // of lars and lamb).
  virtual bool adapts_decayed_only() const { return false; }

  // What the keys and groups say of one parameter. Later groups win, key by key.
  ParameterSettings settings(std::string_view parameter, const Shape& shape) const;
  // Reports groups that fit none of the model's parameters.
  void check_groups(Problems& problems, const std::vector<std::string>& parameters) const;

  // Emits moments and the update op. `state` is the StepState after gradient_norm; gradients are
  // complete sums.
  void emit(GraphBuilder& builder, ValueId state,
            const std::vector<ParameterGradient>& gradients) const;
};

const KindTable<Optimizer>& optimizer_table();

}  // namespace dltrain
