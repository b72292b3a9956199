// Activations that are made of other ops, which are fused like any others. Slopes at kinks are
// PyTorch's.
#include "base/error.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

ValueId scaled(LayerContext& c, ValueId x, double scale, double shift = 0) {
  return c.builder().emit1("affine", {x}, {{"scale", scale}, {"shift", shift}});
}

// relu(x) + weight · (x − relu(x)): exact on both sides, and x = 0 counts as below.
struct Prelu final : Layer {
  bool per_channel = false;
  double init = 0.25;

  void describe(Fields& f) override {
    f.boolean("per_channel", per_channel,
              {.doc = "A slope for each channel (the last axis) instead of one for all",
               .known_as = {"num_parameters", "channel_shared"}});
    f.number("init", init, {.doc = "The slope below 0 at the start"});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const int64_t slopes = per_channel ? c.shape(x)[-1] : 1;
    const ValueId slope = c.parameter("weight", {slopes}, {Initializer::constant, init});
    GraphBuilder& b = c.builder();
    // Not `relu`: nothing of it is dead below 0.
    const ValueId above = b.emit1("leaky_relu", {x}, {{"negative_slope", 0.0}});
    const ValueId below = b.emit1("sub", {x, above});
    return b.emit1("add", {above, b.emit1("mul", {below, slope})});
  }
};

// alpha · elu(x / alpha): its slope is 1 on both sides of 0, whatever alpha is.
struct Celu final : Layer {
  double alpha = 1;

  void describe(Fields& f) override {
    f.number("alpha", alpha, {.doc = "The limit at -infinity is -alpha", .max = 1e6, .above = 0});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    if (alpha == 1) return c.builder().emit1("elu", {x}, {{"alpha", 1.0}});
    const ValueId y = c.builder().emit1("elu", {scaled(c, x, 1 / alpha)}, {{"alpha", 1.0}});
    return scaled(c, y, alpha);
  }
};

// −softplus(−x), without the straight part of softplus: beyond 40 it is exact anyway.
struct LogSigmoid final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const ValueId y =
        c.builder().emit1("softplus", {scaled(c, x, -1)}, {{"beta", 1.0}, {"threshold", 40.0}});
    return scaled(c, y, -1);
  }
};

struct Tanhshrink final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    return c.builder().emit1("sub", {x, c.builder().emit1("tanh", {x})});
  }
};

// x − clamp(x, −lambda, lambda)
struct Softshrink final : Layer {
  double lambda = 0.5;

  void describe(Fields& f) override {
    f.number("lambda", lambda, {.doc = "What lies within it becomes 0", .max = 1e6, .above = 0});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const ValueId inner =
        c.builder().emit1("hardtanh", {x}, {{"min_value", -lambda}, {"max_value", lambda}});
    return c.builder().emit1("sub", {x, inner});
  }
};

// a · sigmoid(b), where a and b are the halves of the last axis.
struct Glu final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    const int64_t half = shape[-1] / 2;
    if (shape[-1] % 2 != 0) {
      fail(ExitCode::usage, "glu halves the channels, and {} is odd", shape[-1]);
    }
    std::vector<int64_t> none(static_cast<size_t>(shape.rank())), one_half = none;
    one_half.back() = half;
    GraphBuilder& b = c.builder();
    const ValueId value = b.emit1("slice", {x}, {{"before", none}, {"after", one_half}});
    const ValueId gate = b.emit1("slice", {x}, {{"before", one_half}, {"after", none}});
    return b.emit1("mul", {value, b.emit1("sigmoid", {gate})});
  }
};

}  // namespace

std::vector<KindRow<Layer>> composed_activations_rows() {
  return {{"prelu", "x above 0, a learned slope times x below (He et al. 2015)",
           make_kind_of<Prelu>, "per_channel"},
          {"celu", "x above 0, alpha·(exp(x / alpha) - 1) below (Barron 2017)", make_kind_of<Celu>,
           "alpha"},
          {"log_sigmoid", "ln(1 / (1 + exp(-x)))", make_kind_of<LogSigmoid>},
          {"tanhshrink", "x - tanh(x)", make_kind_of<Tanhshrink>},
          {"softshrink", "x moved by lambda towards 0, and 0 within it", make_kind_of<Softshrink>,
           "lambda"},
          {"glu",
           "the first half of the channels times the sigmoid of the second (Dauphin et al. "
           "2016)",
           make_kind_of<Glu>}};
}

}  // namespace dltrain
