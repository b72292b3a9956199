// Losses that compare output and target element by element, as PyTorch's of the same names; the
// mean is over all elements that count. Targets have the output's shape (a sample of one number may
// have a target without axes).
#include "base/error.h"
#include "nn/loss.h"

namespace dltrain {
namespace {

struct ElementwiseLoss : Loss {
  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo&) const override {
    Attributes attributes{{"kind", std::string(kind)}};
    add_attributes(attributes);
    const auto out = c.builder().emit("elementwise_loss", {output, targets}, attributes);
    if (out.size() == 1) return {out[0], {}};
    return {out[0], {{"accuracy", out[1]}}};
  }

  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    return expect_target_sample(kind, info, like_output(output));
  }
  int64_t classes(const TensorSpec&) const override { return 0; }
  TargetKind target_kind(const TargetInfo&) const override { return TargetKind::numbers; }

  virtual void add_attributes(Attributes&) const {}
};

struct Huber final : ElementwiseLoss {
  double delta = 1;

  void describe(Fields& f) override {
    f.number("delta", delta,
             {.doc = "Differences beyond it count linearly, with this slope", .above = 0});
  }
  void add_attributes(Attributes& attributes) const override { attributes.set("delta", delta); }
};

struct SmoothL1 final : ElementwiseLoss {
  double beta = 1;

  void describe(Fields& f) override {
    f.number("beta", beta,
             {.doc = "Differences beyond it count linearly, with slope 1; 0 is l1", .min = 0});
  }
  void add_attributes(Attributes& attributes) const override { attributes.set("delta", beta); }
};

struct BinaryCrossEntropy final : ElementwiseLoss {
  std::vector<double> pos_weight;

  void describe(Fields& f) override {
    f.numbers("pos_weight", pos_weight,
              {.doc = "Factor of the positive targets: one number, or one for each output",
               .min = 0,
               .scalar_ok = true});
  }
  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    if (pos_weight.size() > 1 && static_cast<int64_t>(pos_weight.size()) != output.shape[-1]) {
      fail(ExitCode::usage, "binary_cross_entropy has {} numbers of pos_weight, the model gives {}",
           pos_weight.size(), to_string(output.shape));
    }
    return ElementwiseLoss::targets(output, info);
  }
  TargetKind target_kind(const TargetInfo&) const override { return TargetKind::binary; }
  void add_attributes(Attributes& attributes) const override {
    if (!pos_weight.empty()) attributes.set("pos_weight", pos_weight);
  }
};

}  // namespace

std::vector<KindRow<Loss>> elementwise_loss_rows() {
  return {{"binary_cross_entropy", "logistic loss of logits against targets from 0 to 1",
           make_kind_of<BinaryCrossEntropy>},
          {"mse", "mean squared difference", make_kind_of<ElementwiseLoss>},
          {"l1", "mean absolute difference", make_kind_of<ElementwiseLoss>},
          {"huber", "squared for small differences, linear for large ones", make_kind_of<Huber>},
          {"smooth_l1", "huber divided by beta", make_kind_of<SmoothL1>}};
}

}  // namespace dltrain
