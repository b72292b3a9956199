// Optimizers with a trust ratio, which scales the step of a tensor to its norm: LARS (You, Gitman &
// Ginsburg 2017, "Large Batch Training of Convolutional Networks") and LAMB (You et al. 2020,
// "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"). Tensors without decay
// are not scaled by default, as in NVIDIA's and timm's implementations: they are biases and scales,
// whose steps would become tiny.
#include <array>

#include "optim/optimizer.h"

namespace dltrain {
namespace {

struct TrustRatioOptimizer : Optimizer {
  bool always_adapt = false;

  bool adapts_decayed_only() const override { return !always_adapt; }

  // `plain`: the optimizer that updates tensors without scaling.
  void describe_adaptation(Fields& f, const std::string& plain) {
    f.boolean(
        "always_adapt", always_adapt,
        {.doc = "Scale tensors without decay too, as the papers do. Otherwise, as in NVIDIA's "
                "and timm's implementations, they take the step of " +
                plain + ", as do all tensors if nothing decays",
         .known_as = {"use_nvlamb", "trust_without_decay"}});
  }
  Attributes with_adaptation(Attributes own) const {
    if (always_adapt) own.set("always_adapt", true);
    return own;
  }
};

struct Lars final : TrustRatioOptimizer {
  double momentum = 0.9, trust_coefficient = 1e-3, epsilon = 1e-8;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.number("trust_coefficient", trust_coefficient,
             {.doc = "Step of a tensor as a share of its norm",
              .above = 0,
              .known_as = {"trust_coeff", "eta"}});
    f.number("epsilon", epsilon,
             {.doc = "Added to the norm of the step", .min = 0, .known_as = {"eps"}});
    describe_adaptation(f, "SGD");
  }
  std::string op() const override { return "lars_update"; }
  void emit_nodes(GraphBuilder& builder, std::vector<UpdateNode>& nodes) const override {
    for (UpdateNode& node : nodes) {
      const std::vector<ValueId>& of = node.inputs;
      node.inputs.push_back(builder.emit1("lars_sums", {of[0], of[1], of[2]}));
    }
    Optimizer::emit_nodes(builder, nodes);
  }
  Attributes attributes() const override {
    return with_adaptation(
        {{"momentum", momentum}, {"trust_coefficient", trust_coefficient}, {"epsilon", epsilon}});
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    if (momentum == 0) return {};
    return {{"momentum", shape}};
  }
};

struct Lamb final : TrustRatioOptimizer {
  std::array<double, 2> betas{0.9, 0.999};
  double epsilon = 1e-6;

  Lamb() { weight_decay = 0.01; }
  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Decay of the first and second moment", .min = 0, .below = 1});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the second moment", .above = 0, .known_as = {"eps"}});
    describe_adaptation(f, "Adam");
  }
  std::string op() const override { return "lamb_update"; }
  void emit_nodes(GraphBuilder& builder, std::vector<UpdateNode>& nodes) const override {
    for (UpdateNode& node : nodes) {
      const auto made = builder.emit("lamb_moments", node.inputs, node.attributes);
      node.inputs = {node.inputs[0], node.inputs[1], made[0], made[1], made[2]};
    }
    Optimizer::emit_nodes(builder, nodes);
  }
  Attributes attributes() const override {
    return with_adaptation({{"beta1", betas[0]}, {"beta2", betas[1]}, {"epsilon", epsilon}});
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"first_moment", shape}, {"second_moment", shape}};
  }
};

}  // namespace

std::vector<KindRow<Optimizer>> trust_ratio_rows() {
  return {{"lars", "momentum with steps scaled to each tensor's norm (You et al. 2017)",
           make_kind_of<Lars>},
          {"lamb", "AdamW with steps scaled to each tensor's norm (You et al. 2020)",
           make_kind_of<Lamb>}};
}

}  // namespace dltrain
