#include "optim/optimizer.h"

#include <algorithm>

#include "base/error.h"
#include "config/name_patterns.h"
#include "graph/state_name.h"

namespace dltrain {
namespace {

// Sets the groups of an update op as its attributes: parameters with equal settings share a group.
void set_groups(Attributes& attributes, const std::vector<ParameterSettings>& settings) {
  std::vector<int64_t> group;
  std::vector<double> lr_scale, weight_decay;
  for (const ParameterSettings& s : settings) {
    size_t g = 0;
    while (g < lr_scale.size() && (lr_scale[g] != s.lr_scale || weight_decay[g] != s.weight_decay))
      ++g;
    if (g == lr_scale.size()) {
      lr_scale.push_back(s.lr_scale);
      weight_decay.push_back(s.weight_decay);
    }
    group.push_back(static_cast<int64_t>(g));
  }
  if (lr_scale.size() > 1) attributes.set("group", group);
  attributes.set("lr_scale", lr_scale);
  attributes.set("weight_decay", weight_decay);
}

}  // namespace

void ParameterGroup::describe(Fields& f) {
  f.texts("match", match,
          {.doc = "Patterns of parameter names, such as layers.0.*; patterns after ! exclude names",
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
  f.boolean("freeze", freeze, {.doc = "Do not train them, as with training.freeze"});
}

void ParameterGroup::validate(Diagnostics& diagnostics) const {
  if (learning_rate && lr_scale) {
    diagnostics.add(*this, "lr_scale", "learning_rate and lr_scale are both given; keep one");
  }
}

void Optimizer::describe(Fields& f) {
  f.number("learning_rate", learning_rate,
           {.doc = "Peak learning rate; the schedule scales it",
            .required = true,
            .min = 0,
            .known_as = {"lr", "base_lr", "max_lr"}});
  f.number(
      "weight_decay", weight_decay,
      {.doc = "Decay of parameters: decoupled in adamw, lion, lamb and adafactor, added to the "
              "gradient in the others",
       .min = 0,
       .known_as = {"wd", "l2"}});
  f.choice("weight_decay_on", weight_decay_on,
           {{"all", WeightDecayOn::all, "every parameter, as PyTorch's optimizers do"},
            {"matrices", WeightDecayOn::matrices,
             "parameters of two axes and more: neither biases nor the scales of normalisation"}},
           {.doc = "Parameters to which weight_decay applies; groups can override it",
            .known_as = {"no_decay", "no_weight_decay"}});
  f.list("groups", groups,
         {.doc = "Parameters with their own settings; if several groups match, later keys take "
                 "precedence",
          .known_as = {"param_groups", "parameter_groups"}});
}

ParameterSettings Optimizer::settings(std::string_view parameter, const Shape& shape) const {
  const bool decays = weight_decay_on == WeightDecayOn::all || shape.rank() > 1;
  ParameterSettings out{.weight_decay = decays ? weight_decay : 0};
  for (const ParameterGroup& group : groups) {
    if (!selects(group.match, parameter)) continue;
    if (group.learning_rate) out.lr_scale = *group.learning_rate / learning_rate;
    if (group.lr_scale) out.lr_scale = *group.lr_scale;
    if (group.weight_decay) out.weight_decay = *group.weight_decay;
    if (group.freeze) out.frozen = *group.freeze;
  }
  return out;
}

void Optimizer::check_groups(Diagnostics& diagnostics,
                             const std::vector<std::string>& parameters) const {
  for (const ParameterGroup& group : groups) {
    check_patterns(diagnostics, group, "match", group.match, parameters, "parameter");
    if (group.learning_rate && learning_rate == 0) {
      diagnostics.add(
          group, "learning_rate",
          "a group's learning_rate is kept as a multiple of the optimizer's, which is 0");
    }
  }
}

// The inputs of an update op: step state, parameters, gradients, then each kind of moment.
void Optimizer::emit(GraphBuilder& builder, ValueId state,
                     const std::vector<ParameterGradient>& gradients) const {
  std::vector<ValueId> inputs{state};
  std::vector<ParameterSettings> all_settings;
  std::vector<std::vector<MomentSpec>> all_moments;
  for (const auto& [parameter, gradient] : gradients) {
    const GraphValue& p = builder.graph().value(parameter);
    inputs.push_back(parameter);
    all_settings.push_back(settings(p.name, p.spec.shape));
    all_moments.push_back(moments(p.spec.shape));
  }
  for (const auto& [parameter, gradient] : gradients) inputs.push_back(gradient);
  for (size_t kind = 0; kind < all_moments.front().size(); ++kind) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      const GraphValue& p = builder.graph().value(gradients[i].parameter);
      const MomentSpec& moment = all_moments[i][kind];
      if (moment.name.empty()) {
        inputs.push_back(kNoValue);
        continue;
      }
      inputs.push_back(builder.add_value(state_name(moment.name, p.name),
                                         {moment.shape, p.spec.dtype}, Role::moment));
    }
  }
  Attributes op_attributes = attributes();
  op_attributes.set("count", static_cast<int64_t>(gradients.size()));
  set_groups(op_attributes, all_settings);
  builder.emit(op(), std::move(inputs), std::move(op_attributes));
}

// Of all files of this folder (generated).
std::vector<std::vector<KindRow<Optimizer>>> optimizer_rows();

const KindTable<Optimizer>& optimizer_table() {
  static const auto table = joined_table<Optimizer>("optimizer", optimizer_rows());
  return table;
}

}  // namespace dltrain
