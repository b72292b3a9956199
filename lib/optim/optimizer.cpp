#include "optim/optimizer.h"

#include <array>

namespace dltrain {
namespace {

// Inputs of an update op: step state, parameters, gradients, then each kind of moment.
std::vector<ValueId> update_inputs(GraphBuilder& builder, ValueId state,
                                   const std::vector<ParameterGradient>& gradients,
                                   const std::vector<std::string>& moments) {
  std::vector<ValueId> inputs{state};
  for (const auto& [parameter, gradient] : gradients) inputs.push_back(parameter);
  for (const auto& [parameter, gradient] : gradients) inputs.push_back(gradient);
  for (const std::string& moment : moments) {
    for (const auto& [parameter, gradient] : gradients) {
      const GraphValue& p = builder.graph().value(parameter);
      inputs.push_back(builder.add_value(moment + "." + p.name, p.spec, Role::moment));
    }
  }
  return inputs;
}

struct Sgd final : Optimizer {
  double momentum = 0;
  bool nesterov = false;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.boolean("nesterov", nesterov, {.doc = "Look ahead along the velocity"});
  }
  void validate(Problems& problems) const {
    if (nesterov && momentum == 0) problems.add(*this, "nesterov", "nesterov needs a momentum");
  }
  void emit(GraphBuilder& builder, ValueId state,
            const std::vector<ParameterGradient>& gradients) const override {
    const std::vector<std::string> moments =
        momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
    builder.emit("sgd_update", update_inputs(builder, state, gradients, moments),
                 {{"count", static_cast<int64_t>(gradients.size())},
                  {"momentum", momentum},
                  {"nesterov", nesterov},
                  {"weight_decay", weight_decay}});
  }
};

struct AdamW final : Optimizer {
  std::array<double, 2> betas{0.9, 0.999};
  double epsilon = 1e-8;

  AdamW() { weight_decay = 0.01; }
  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Decay of the mean of gradients, and of their squares",
               .min = 0,
               .below = 1,
               .known_as = {"beta1", "beta2", "adam_beta1", "adam_beta2"}});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the second moment",
              .above = 0,
              .known_as = {"eps", "adam_epsilon"}});
  }
  void emit(GraphBuilder& builder, ValueId state,
            const std::vector<ParameterGradient>& gradients) const override {
    builder.emit("adamw_update",
                 update_inputs(builder, state, gradients, {"first_moment", "second_moment"}),
                 {{"count", static_cast<int64_t>(gradients.size())},
                  {"beta1", betas[0]},
                  {"beta2", betas[1]},
                  {"epsilon", epsilon},
                  {"weight_decay", weight_decay}});
  }
};

}  // namespace

void Optimizer::describe(Fields& f) {
  f.number("learning_rate", learning_rate,
           {.doc = "Peak learning rate; the schedule scales it",
            .required = true,
            .min = 0,
            .known_as = {"lr", "base_lr", "max_lr"}});
  f.number("weight_decay", weight_decay,
           {.doc = "Decay of all parameters: added to the gradient by sgd, decoupled in adamw",
            .min = 0,
            .known_as = {"wd", "l2"}});
}

const KindTable<Optimizer>& optimizer_table() {
  static const KindTable<Optimizer> table{
      "optimizer",
      {{"sgd", "stochastic gradient descent with momentum (as PyTorch's)", make_kind_of<Sgd>},
       {"adamw", "Adam with decoupled weight decay (Loshchilov & Hutter 2019)",
        make_kind_of<AdamW>}}};
  return table;
}

}  // namespace dltrain
