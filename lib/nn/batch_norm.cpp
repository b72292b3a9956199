// batch_norm: normalises each channel (the last axis). In training by the statistics of the
// micro-batch (a ghost group), in evaluation by running statistics, which are updated once a step
// from the mean over all micro-batches of the global batch. Names as in PyTorch: weight, bias,
// running_mean, running_var.
#include "base/error.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct BatchNorm final : Layer {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool affine = true;

  void describe(Fields& f) override {
    f.number("epsilon", epsilon,
             {.doc = "Added to the variance", .above = 0, .below = 1, .known_as = {"eps"}});
    f.number("momentum", momentum,
             {.doc = "Share of the new statistics in the running ones", .min = 0, .max = 1});
    f.boolean("affine", affine,
              {.doc = "Learn a weight and a bias", .known_as = {"elementwise_affine", "scale"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    const Shape channels{shape[-1]};
    GraphBuilder& b = c.builder();
    ValueId gamma = kNoValue, beta = kNoValue;
    if (affine) {
      gamma = c.parameter("weight", channels, Initializer::ones());
      beta = c.parameter("bias", channels, Initializer::zeros());
    }
    const ValueId mean = c.buffer("running_mean", channels, Initializer::zeros());
    const ValueId variance = c.buffer("running_var", channels, Initializer::ones());
    if (!affine) {
      // The op wants both: 0 · mean + 1 and + 0.
      gamma = b.emit1("affine", {mean}, {{"scale", 0.0}, {"shift", 1.0}});
      beta = b.emit1("affine", {mean}, {{"scale", 0.0}, {"shift", 0.0}});
    }
    if (!c.training()) {
      return b.emit1("batch_norm_inference", {x, gamma, beta, mean, variance},
                     {{"epsilon", epsilon}});
    }
    const int64_t n = shape.elements() / shape[-1];
    if (n < 2) {
      fail(ExitCode::usage, "batch statistics need more than one value a channel, got {}",
           to_string(shape));
    }
    const auto out = b.emit("batch_norm", {x, gamma, beta}, {{"epsilon", epsilon}});
    const ValueId mean_sum = b.accumulate(out[1], path_of(c, "mean_sum"), Role::statistic);
    const ValueId variance_sum = b.accumulate(out[2], path_of(c, "variance_sum"), Role::statistic);
    c.defer_update("batch_norm_update", {mean, variance, mean_sum, variance_sum},
                   {{"momentum", momentum},
                    {"groups", static_cast<double>(c.ghost_groups())},
                    {"unbias", static_cast<double>(n) / static_cast<double>(n - 1)}});
    return out[0];
  }

  static std::string path_of(LayerContext& c, const char* name) { return c.path() + "." + name; }
};

}  // namespace

std::vector<KindRow<Layer>> batch_norm_rows() {
  return {{"batch_norm", "normalises each channel over the batch", make_kind_of<BatchNorm>}};
}

}  // namespace dltrain
