// Normalisation. Names and defaults are PyTorch's.
//
// batch_norm normalises each channel (the last axis): in training by the statistics of the
// micro-batch (a ghost group), in evaluation by running statistics, which are updated once a step
// with the mean over all micro-batches of the global batch. Names: weight, bias, running_mean,
// running_var.
//
// group_norm normalises each group of channels of each sample, layer_norm and rms_norm each vector
// along the last axis. They do not depend on the batch.
#include "base/error.h"
#include "nn/layer.h"

namespace dltrain {
namespace {

void describe_epsilon(Fields& f, double& epsilon, const char* doc) {
  f.number("epsilon", epsilon, {.doc = doc, .above = 0, .below = 1, .known_as = {"eps"}});
}

void describe_affine(Fields& f, bool& affine) {
  f.boolean("affine", affine,
            {.doc = "Learn a weight and a bias", .known_as = {"elementwise_affine", "scale"}});
}

struct BatchNorm final : Layer {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool affine = true;

  void describe(Fields& f) override {
    describe_epsilon(f, epsilon, "Added to the variance");
    f.number("momentum", momentum,
             {.doc = "Share of the new statistics in the running ones", .min = 0, .max = 1});
    describe_affine(f, affine);
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
      // The op needs both: 0 · mean + 1 and 0 · mean.
      gamma = c.scaled(mean, 0, 1);
      beta = c.scaled(mean, 0);
    }
    if (!c.training()) {
      return b.emit1("batch_norm_inference", {x, gamma, beta, mean, variance},
                     {{"epsilon", epsilon}});
    }
    const int64_t n = shape.elements() / shape[-1];
    if (n < 2) {
      fail(ExitCode::usage, "batch statistics need more than one value per channel, got {}",
           to_string(shape));
    }
    const auto out = b.emit("batch_norm", {x, gamma, beta}, {{"epsilon", epsilon}});
    const ValueId mean_sum = b.accumulate(out[1], c.path() + ".mean_sum", Role::statistic);
    const ValueId variance_sum = b.accumulate(out[2], c.path() + ".variance_sum", Role::statistic);
    c.defer_update("batch_norm_update", {mean, variance, mean_sum, variance_sum},
                   {{"momentum", momentum},
                    {"groups", static_cast<double>(c.ghost_groups())},
                    {"unbias", static_cast<double>(n) / static_cast<double>(n - 1)}});
    return out[0];
  }
};

struct GroupNorm final : Layer {
  int64_t num_groups = 0;
  double epsilon = 1e-5;
  bool affine = true;

  void describe(Fields& f) override {
    f.integer("num_groups", num_groups,
              {.doc = "Number of groups of channels; 1: all channels together; the number of "
                      "channels: instance norm",
               .required = true,
               .min = 1,
               .known_as = {"groups"}});
    describe_epsilon(f, epsilon, "Added to the variance");
    describe_affine(f, affine);
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const int64_t channels = c.shape(x)[-1];
    if (channels % num_groups != 0) {
      fail(ExitCode::usage, "{} groups must divide {} channels", num_groups, channels);
    }
    const ValueId weight =
        affine ? c.parameter("weight", {channels}, Initializer::ones()) : kNoValue;
    const ValueId bias = affine ? c.parameter("bias", {channels}, Initializer::zeros()) : kNoValue;
    return c.builder().emit1("group_norm", {x, weight, bias},
                             {{"groups", num_groups}, {"epsilon", epsilon}});
  }
};

struct LayerNorm final : Layer {
  double epsilon = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;

  void describe(Fields& f) override {
    describe_epsilon(f, epsilon, "Added to the variance");
    f.boolean("elementwise_affine", elementwise_affine,
              {.doc = "Learn a weight, and a bias unless `bias` is false",
               .known_as = {"affine", "scale"}});
    f.boolean("bias", bias, {.doc = "Learn a bias", .known_as = {"use_bias", "center"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape channels{c.shape(x)[-1]};
    const ValueId weight =
        elementwise_affine ? c.parameter("weight", channels, Initializer::ones()) : kNoValue;
    const ValueId shift =
        elementwise_affine && bias ? c.parameter("bias", channels, Initializer::zeros()) : kNoValue;
    return c.builder().emit1("layer_norm", {x, weight, shift}, {{"epsilon", epsilon}});
  }
};

struct RmsNorm final : Layer {
  double epsilon = 1.1920928955078125e-7;
  bool elementwise_affine = true;

  void describe(Fields& f) override {
    describe_epsilon(f, epsilon,
                     "Added to the mean square; the default is PyTorch's, the spacing of f32 at 1 "
                     "(language models use 1e-5 or 1e-6)");
    f.boolean("elementwise_affine", elementwise_affine,
              {.doc = "Learn a weight", .known_as = {"affine", "scale"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const ValueId weight = elementwise_affine
                               ? c.parameter("weight", {c.shape(x)[-1]}, Initializer::ones())
                               : kNoValue;
    return c.builder().emit1("rms_norm", {x, weight}, {{"epsilon", epsilon}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> norm_rows() {
  return {{"batch_norm", "normalises each channel over the batch", make_kind_of<BatchNorm>},
          {"layer_norm", "normalises each vector along the last axis (Ba et al. 2016)",
           make_kind_of<LayerNorm>},
          {"rms_norm", "divides each vector by its root mean square (Zhang & Sennrich 2019)",
           make_kind_of<RmsNorm>},
          {"group_norm", "normalises groups of channels of each sample (Wu & He 2018)",
           make_kind_of<GroupNorm>, "num_groups"}};
}

}  // namespace dltrain
