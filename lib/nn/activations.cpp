// Layers without weights that work element by element, softmax over the last axis, and flatten.
// Those that are made of other ops are in composed_activations.cpp.
#include <algorithm>

#include "nn/layers.h"

namespace dltrain {
namespace {

struct ActivationsActivation : Layer {
  virtual const char* op() const = 0;
  virtual Attributes attributes() const { return {}; }
  ValueId emit(LayerContext& c, ValueId x) const final {
    return c.builder().emit1(op(), {x}, attributes());
  }
};

template <size_t N>
struct OpName {
  constexpr OpName(const char (&text)[N]) { std::copy_n(text, N, name); }
  char name[N];
};

// An activation without keys: the op of that name.
template <OpName op_name>
struct Plain final : ActivationsActivation {
  const char* op() const override { return op_name.name; }
};

struct LeakyRelu final : ActivationsActivation {
  double negative_slope = 0.01;

  void describe(Fields& f) override {
    f.number("negative_slope", negative_slope,
             {.doc = "Slope below 0", .min = 0, .max = 1e6, .known_as = {"alpha", "slope"}});
  }
  const char* op() const override { return "leaky_relu"; }
  Attributes attributes() const override { return {{"negative_slope", negative_slope}}; }
};

struct Elu final : ActivationsActivation {
  double alpha = 1;

  void describe(Fields& f) override {
    f.number("alpha", alpha, {.doc = "The limit at -infinity is -alpha", .min = 0, .max = 1e6});
  }
  const char* op() const override { return "elu"; }
  Attributes attributes() const override { return {{"alpha", alpha}}; }
};

struct Softplus final : ActivationsActivation {
  double beta = 1, threshold = 20;

  void describe(Fields& f) override {
    f.number("beta", beta, {.doc = "ln(1 + exp(beta·x)) / beta", .max = 1e6, .above = 0});
    f.number("threshold", threshold, {.doc = "The result is x where beta·x is greater"});
  }
  const char* op() const override { return "softplus"; }
  Attributes attributes() const override { return {{"beta", beta}, {"threshold", threshold}}; }
};

struct Hardtanh final : ActivationsActivation {
  double min_value = -1, max_value = 1;

  void describe(Fields& f) override {
    f.number("min_value", min_value, {.doc = "Least result"});
    f.number("max_value", max_value, {.doc = "Greatest result"});
  }
  void validate(Problems& problems) const override {
    if (min_value >= max_value) {
      problems.add(*this, "min_value", "min_value must be less than max_value");
    }
  }
  const char* op() const override { return "hardtanh"; }
  Attributes attributes() const override {
    return {{"min_value", min_value}, {"max_value", max_value}};
  }
};

struct Relu6 final : ActivationsActivation {
  const char* op() const override { return "hardtanh"; }
  Attributes attributes() const override { return {{"min_value", 0.0}, {"max_value", 6.0}}; }
};

struct Gelu final : ActivationsActivation {
  bool approximate = false;

  void describe(Fields& f) override {
    f.choice("approximate", approximate,
             {{"none", false, "x·Φ(x) with erf"}, {"tanh", true, "GPT-2's tanh approximation"}},
             {.doc = "Which formula"});
  }
  const char* op() const override { return approximate ? "gelu_tanh" : "gelu"; }
};

struct Identity final : Layer {
  ValueId emit(LayerContext&, ValueId x) const override { return x; }
};

// [samples, a, b, …] → [samples, a·b·…], in the order of memory (images: height, width, channels).
struct Flatten final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    if (shape.rank() == 2) return x;
    return c.builder().emit1(
        "reshape", {x},
        {{"shape", std::vector<int64_t>{shape[0], shape.elements(1, shape.rank())}}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> activations_rows() {
  return {
      {"relu", "max(x, 0)", make_kind_of<Plain<"relu">>},
      {"identity", "its input", make_kind_of<Identity>},
      {"gelu", "x·Φ(x) (Hendrycks & Gimpel 2016)", make_kind_of<Gelu>, "approximate"},
      {"silu", "x·sigmoid(x), also called swish", make_kind_of<Plain<"silu">>},
      {"tanh", "hyperbolic tangent", make_kind_of<Plain<"tanh">>},
      {"sigmoid", "1 / (1 + exp(-x))", make_kind_of<Plain<"sigmoid">>},
      {"leaky_relu", "x above 0, negative_slope·x below", make_kind_of<LeakyRelu>,
       "negative_slope"},
      {"elu", "x above 0, alpha·(exp(x) - 1) below (Clevert et al. 2015)", make_kind_of<Elu>,
       "alpha"},
      {"selu", "elu scaled so that layers keep mean and variance (Klambauer et al. 2017)",
       make_kind_of<Plain<"selu">>},
      {"softplus", "ln(1 + exp(x)), a smooth relu", make_kind_of<Softplus>},
      {"mish", "x·tanh(softplus(x)) (Misra 2019)", make_kind_of<Plain<"mish">>},
      {"hardswish", "x·clamp(x + 3, 0, 6) / 6 (Howard et al. 2019)",
       make_kind_of<Plain<"hardswish">>},
      {"hardsigmoid", "clamp(x + 3, 0, 6) / 6", make_kind_of<Plain<"hardsigmoid">>},
      {"hardtanh", "x between min_value and max_value", make_kind_of<Hardtanh>},
      {"relu6", "clamp(x, 0, 6)", make_kind_of<Relu6>},
      {"softsign", "x / (1 + |x|)", make_kind_of<Plain<"softsign">>},
      {"quick_gelu", "x·sigmoid(1.702x), CLIP's form of gelu", make_kind_of<Plain<"quick_gelu">>},
      {"softmax", "exp(x) over its sum, along the last axis", make_kind_of<Plain<"softmax">>},
      {"log_softmax", "logarithm of softmax, along the last axis",
       make_kind_of<Plain<"log_softmax">>},
      {"flatten", "one vector a sample", make_kind_of<Flatten>}};
}

}  // namespace dltrain
