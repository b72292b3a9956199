// Optimizers whose elements are independent (kernels/shared/element_rules.h). sgd, adagrad,
// rmsprop, adam and adamw are those of torch.optim; lion is that of Chen et al. 2023, "Symbolic
// Discovery of Optimization Algorithms".
#include <array>

#include "optim/galore.h"
#include "optim/optimizer.h"

namespace dltrain {
namespace {

struct Sgd final : Optimizer {
  double momentum = 0, dampening = 0;
  bool nesterov = false;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.number("dampening", dampening,
             {.doc = "Share of the gradient that does not enter the velocity", .min = 0, .max = 1});
    f.boolean("nesterov", nesterov, {.doc = "Use Nesterov momentum"});
  }
  void validate(Diagnostics& diagnostics) const override {
    if (momentum == 0 && nesterov) diagnostics.add(*this, "nesterov", "nesterov needs a momentum");
    if (momentum == 0 && dampening != 0) {
      diagnostics.add(*this, "dampening", "dampening needs a momentum");
    }
    if (nesterov && dampening != 0) {
      diagnostics.add(*this, "dampening", "nesterov needs a dampening of 0");
    }
  }
  std::string op() const override { return "sgd_update"; }
  Attributes attributes() const override {
    return {{"momentum", momentum}, {"dampening", dampening}, {"nesterov", nesterov}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    if (momentum == 0) return {};
    return {{"momentum", shape}};
  }
  bool supports_8bit() const override { return momentum != 0; }
};

struct Adam : Optimizer {
  std::array<double, 2> betas{0.9, 0.999};
  double epsilon = 1e-8;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Decay of the first and second moment", .min = 0, .below = 1});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the second moment", .above = 0, .known_as = {"eps"}});
  }
  std::string op() const override { return "adam_update"; }
  Attributes attributes() const override {
    return {{"beta1", betas[0]}, {"beta2", betas[1]}, {"epsilon", epsilon}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"first_moment", shape}, {"second_moment", shape}};
  }
  bool supports_8bit() const override { return true; }
};

struct AdamW final : Adam {
  std::optional<Galore> galore;

  AdamW() { weight_decay = 0.01; }
  void describe(Fields& f) override {
    Adam::describe(f);
    f.section("galore", galore,
              {.doc = "Keep moments of gradients projected onto few singular vectors (GaLore, Zhao "
                      "et al. 2024)"});
  }
  const Galore* projection() const override { return galore ? &*galore : nullptr; }
  std::string op() const override { return "adamw_update"; }
};

struct Adagrad final : Optimizer {
  double lr_decay = 0, initial_accumulator_value = 0, epsilon = 1e-10;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("lr_decay", lr_decay,
             {.doc = "The learning rate is divided by 1 + this · (number of earlier updates)",
              .min = 0});
    f.number("initial_accumulator_value", initial_accumulator_value,
             {.doc = "Initial value of the sum of squares", .min = 0});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the sum of squares", .above = 0, .known_as = {"eps"}});
  }
  std::string op() const override { return "adagrad_update"; }
  Attributes attributes() const override {
    return {{"lr_decay", lr_decay},
            {"initial_accumulator_value", initial_accumulator_value},
            {"epsilon", epsilon}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"sum_of_squares", shape}};
  }
};

struct Rmsprop final : Optimizer {
  double alpha = 0.99, epsilon = 1e-8, momentum = 0;
  bool centered = false;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("alpha", alpha,
             {.doc = "Decay of the mean of squares", .min = 0, .below = 1, .known_as = {"rho"}});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the mean of squares", .above = 0, .known_as = {"eps"}});
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.boolean("centered", centered, {.doc = "Divide by the estimated standard deviation instead"});
  }
  std::string op() const override { return "rmsprop_update"; }
  Attributes attributes() const override {
    return {{"alpha", alpha}, {"epsilon", epsilon}, {"momentum", momentum}, {"centered", centered}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    std::vector<MomentSpec> out{{"mean_of_squares", shape}};
    if (centered) out.push_back({"mean_of_gradients", shape});
    if (momentum != 0) out.push_back({"momentum", shape});
    return out;
  }
};

struct Lion final : Optimizer {
  std::array<double, 2> betas{0.9, 0.99};

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Share of the moment in the step, and its decay", .min = 0, .below = 1});
  }
  std::string op() const override { return "lion_update"; }
  Attributes attributes() const override { return {{"beta1", betas[0]}, {"beta2", betas[1]}}; }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"momentum", shape}};
  }
  bool supports_8bit() const override { return true; }
};

}  // namespace

std::vector<KindRow<Optimizer>> element_optimizer_rows() {
  return {
      {"sgd", "stochastic gradient descent with momentum (as PyTorch's)", make_kind_of<Sgd>},
      {"adam", "Adam (Kingma & Ba 2015), decay added to the gradient", make_kind_of<Adam>},
      {"adamw", "Adam with decoupled weight decay (Loshchilov & Hutter 2019)", make_kind_of<AdamW>},
      {"adagrad",
       "steps divided by the root of the sum of squared gradients (Duchi et al. 2011, as "
       "PyTorch's)",
       make_kind_of<Adagrad>},
      {"rmsprop",
       "steps divided by the root of a moving mean of squared gradients (Tieleman & Hinton 2012)",
       make_kind_of<Rmsprop>},
      {"lion", "steps by the sign of a moment (Chen et al. 2023)", make_kind_of<Lion>}};
}

}  // namespace dltrain
