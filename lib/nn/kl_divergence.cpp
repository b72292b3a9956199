// kl_divergence: Σ t·(log t − log softmax(x)) for target distributions t, from the model's logits
// x. PyTorch's kl_div(log_softmax(x), t). With a temperature T the logits are divided by T and the
// loss multiplied with T², so that gradients keep their size (Hinton et al. 2015, section 2.1).
#include "base/error.h"
#include "nn/losses.h"

namespace dltrain {
namespace {

enum class Reduction : uint8_t { batchmean, mean };

struct KlDivergence final : Loss {
  Reduction reduction = Reduction::batchmean;
  double temperature = 1;

  void describe(Fields& f) override {
    f.choice("reduction", reduction,
             {{"batchmean", Reduction::batchmean, "divide by the number of distributions"},
              {"mean", Reduction::mean, "divide by the number of their elements"}},
             {.doc = "What the sum is divided by"});
    f.number("temperature", temperature,
             {.doc = "The logits are divided by it, the loss is multiplied with its square; the "
                     "targets stay as they are",
              .above = 0});
  }

  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo&) const override {
    if (temperature != 1) {
      output = c.builder().emit1("affine", {output}, {{"scale", 1 / temperature}, {"shift", 0.0}});
    }
    const auto out = c.builder().emit("weighted_cross_entropy", {output, targets},
                                      {{"relative", true}, {"scale", temperature * temperature}});
    return {out[0], {{"accuracy", out[2]}}};
  }

  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    if (output.shape.rank() < 2) {
      fail(ExitCode::usage, "kl_divergence expects one vector of logits a sample, got {}",
           to_string(output.shape));
    }
    const TensorSpec wanted = like_output(output);
    expect_target_sample(kind, info, wanted);
    return wanted;
  }

  TargetWeights target_weights(const TensorSpec& output, const TargetInfo&) const override {
    const int64_t classes = output.shape[-1];
    return {.group = classes,
            .each = reduction == Reduction::mean ? static_cast<double>(classes) : 1.0};
  }
  int64_t classes(const TensorSpec&) const override { return 0; }
  TargetKind target_kind(const TargetInfo&) const override { return TargetKind::distributions; }
};

}  // namespace

KindRow<Loss> kl_divergence_row() {
  return {"kl_divergence", "Kullback-Leibler divergence of softmax from target distributions",
          make_kind_of<KlDivergence>};
}

}  // namespace dltrain
