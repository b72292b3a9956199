// Activations: layers that work element by element, softmax over the last axis, and flatten.
#include "base/error.h"
#include "nn/layer.h"
#include "ops/gathered_parts.h"

namespace dltrain {
namespace {

// One op, usually that of the same name.
struct Activation : Layer {
  virtual std::string_view op() const { return kind; }
  virtual Attributes attributes() const { return {}; }
  ValueId emit(LayerContext& c, ValueId x) const final {
    return c.builder().emit1(op(), {x}, attributes());
  }
};

struct LeakyRelu final : Activation {
  double negative_slope = 0.01;

  void describe(Fields& f) override {
    f.number("negative_slope", negative_slope,
             {.doc = "Slope below 0", .min = 0, .max = 1e6, .known_as = {"alpha", "slope"}});
  }
  Attributes attributes() const override { return {{"negative_slope", negative_slope}}; }
};

struct Elu final : Activation {
  double alpha = 1;

  void describe(Fields& f) override {
    f.number("alpha", alpha, {.doc = "The limit at -infinity is -alpha", .min = 0, .max = 1e6});
  }
  Attributes attributes() const override { return {{"alpha", alpha}}; }
};

struct Softplus final : Activation {
  double beta = 1, threshold = 20;

  void describe(Fields& f) override {
    f.number("beta", beta, {.doc = "ln(1 + exp(beta·x)) / beta", .max = 1e6, .above = 0});
    f.number("threshold", threshold, {.doc = "If beta·x is greater, the result is x"});
  }
  Attributes attributes() const override { return {{"beta", beta}, {"threshold", threshold}}; }
};

struct Hardtanh final : Activation {
  double min_value = -1, max_value = 1;

  void describe(Fields& f) override {
    f.number("min_value", min_value, {.doc = "Least result"});
    f.number("max_value", max_value, {.doc = "Greatest result"});
  }
  void validate(Diagnostics& diagnostics) const override {
    if (min_value >= max_value) {
      diagnostics.add(*this, "min_value", "min_value must be less than max_value");
    }
  }
  Attributes attributes() const override {
    return {{"min_value", min_value}, {"max_value", max_value}};
  }
};

struct Relu6 final : Activation {
  std::string_view op() const override { return "hardtanh"; }
  Attributes attributes() const override { return {{"min_value", 0.0}, {"max_value", 6.0}}; }
};

struct Gelu final : Activation {
  bool approximate = false;

  void describe(Fields& f) override {
    f.choice("approximate", approximate,
             {{"none", false, "x·Φ(x) with erf"}, {"tanh", true, "GPT-2's tanh approximation"}},
             {.doc = "Which formula"});
  }
  std::string_view op() const override { return approximate ? "gelu_tanh" : "gelu"; }
};

struct Identity final : Layer {
  ValueId emit(LayerContext&, ValueId x) const override { return x; }
};

// [samples, a, b, …] → [samples, a·b·…], in the order of memory (images: height, width, channels).
struct Flatten final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    if (shape.rank() == 2) return x;
    return c.reshape(x, {shape[0], shape.elements(1, shape.rank())});
  }
};

// These activations are composed of other ops. Slopes at kinks are PyTorch's, but those of
// softshrink at ±lambda, which are 1 here and 0 there.

// relu(x) + weight · (x − relu(x)) is exact on both sides; x = 0 has the slope `weight`.
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
    // leaky_relu replaces relu, so that dltrain check does not count dead units.
    const ValueId above = b.emit1("leaky_relu", {x}, {{"negative_slope", 0.0}});
    const ValueId below = b.emit1("sub", {x, above});
    return b.emit1("add", {above, b.emit1("mul", {below, slope})});
  }
};

// alpha · elu(x / alpha) has slope 1 on both sides of 0 for any alpha.
struct Celu final : Layer {
  double alpha = 1;

  void describe(Fields& f) override {
    f.number("alpha", alpha, {.doc = "The limit at -infinity is -alpha", .max = 1e6, .above = 0});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    if (alpha == 1) return c.builder().emit1("elu", {x}, {{"alpha", 1.0}});
    const ValueId y = c.builder().emit1("elu", {c.scaled(x, 1 / alpha)}, {{"alpha", 1.0}});
    return c.scaled(y, alpha);
  }
};

// −softplus(−x). The threshold of 40 does not change the result.
struct LogSigmoid final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const ValueId y =
        c.builder().emit1("softplus", {c.scaled(x, -1)}, {{"beta", 1.0}, {"threshold", 40.0}});
    return c.scaled(y, -1);
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
    f.number("lambda", lambda,
             {.doc = "Values from -lambda to lambda become 0", .max = 1e6, .above = 0});
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
    const int last = shape.rank() - 1;
    const int64_t half = shape[last] / 2;
    if (shape[-1] % 2 != 0) {
      fail(ExitCode::usage, "glu halves the channels, and {} is odd", shape[-1]);
    }
    GraphBuilder& b = c.builder();
    const ValueId value = emit_range(b, x, last, {0, half});
    const ValueId gate = emit_range(b, x, last, {half, half});
    return b.emit1("mul", {value, b.emit1("sigmoid", {gate})});
  }
};

}  // namespace

std::vector<KindRow<Layer>> activations_rows() {
  return {{"relu", "max(x, 0)", make_kind_of<Activation>},
          {"identity", "returns its input", make_kind_of<Identity>},
          {"gelu", "x·Φ(x) (Hendrycks & Gimpel 2016)", make_kind_of<Gelu>, "approximate"},
          {"silu", "x·sigmoid(x), also called swish", make_kind_of<Activation>},
          {"tanh", "hyperbolic tangent", make_kind_of<Activation>},
          {"sigmoid", "1 / (1 + exp(-x))", make_kind_of<Activation>},
          {"leaky_relu", "x above 0, negative_slope·x below", make_kind_of<LeakyRelu>,
           "negative_slope"},
          {"elu", "x above 0, alpha·(exp(x) - 1) below (Clevert et al. 2015)", make_kind_of<Elu>,
           "alpha"},
          {"selu", "elu scaled so that layers keep mean and variance (Klambauer et al. 2017)",
           make_kind_of<Activation>},
          {"softplus", "ln(1 + exp(x)), a smooth relu", make_kind_of<Softplus>},
          {"mish", "x·tanh(softplus(x)) (Misra 2019)", make_kind_of<Activation>},
          {"hardswish", "x·clamp(x + 3, 0, 6) / 6 (Howard et al. 2019)", make_kind_of<Activation>},
          {"hardsigmoid", "clamp(x + 3, 0, 6) / 6", make_kind_of<Activation>},
          {"hardtanh", "x between min_value and max_value", make_kind_of<Hardtanh>},
          {"relu6", "clamp(x, 0, 6)", make_kind_of<Relu6>},
          {"softsign", "x / (1 + |x|)", make_kind_of<Activation>},
          {"quick_gelu", "x·sigmoid(1.702x), CLIP's form of gelu", make_kind_of<Activation>},
          {"softmax", "exp(x) over its sum, along the last axis", make_kind_of<Activation>},
          {"log_softmax", "logarithm of softmax, along the last axis", make_kind_of<Activation>},
          {"flatten", "one vector a sample", make_kind_of<Flatten>},
          {"prelu", "x above 0, a learned slope times x below (He et al. 2015)",
           make_kind_of<Prelu>, "per_channel"},
          {"celu", "x above 0, alpha·(exp(x / alpha) - 1) below (Barron 2017)", make_kind_of<Celu>,
           "alpha"},
          {"log_sigmoid", "ln(1 / (1 + exp(-x)))", make_kind_of<LogSigmoid>},
          {"tanhshrink", "x - tanh(x)", make_kind_of<Tanhshrink>},
          {"softshrink", "x moved towards 0 by lambda, at most to 0", make_kind_of<Softshrink>,
           "lambda"},
          {"glu",
           "the first half of the channels times the sigmoid of the second (Dauphin et al. "
           "2016)",
           make_kind_of<Glu>}};
}

}  // namespace dltrain
