// Layers without parameters that work element by element, and flatten.
#include "nn/layers.h"

namespace dltrain {
namespace {

struct Activation : Layer {
  virtual const char* op() const = 0;
  ValueId emit(LayerContext& c, ValueId x) const override { return c.builder().emit1(op(), {x}); }
};

struct Relu final : Activation {
  const char* op() const override { return "relu"; }
};
struct Silu final : Activation {
  const char* op() const override { return "silu"; }
};
struct Tanh final : Activation {
  const char* op() const override { return "tanh"; }
};
struct Sigmoid final : Activation {
  const char* op() const override { return "sigmoid"; }
};

struct Gelu final : Activation {
  bool approximate = false;

  void describe(Fields& f) override {
    f.choice("approximate", approximate,
             {{"none", false, "x·Φ(x) with erf"}, {"tanh", true, "GPT-2's tanh approximation"}},
             {.doc = "Which formula"});
  }
  const char* op() const override { return approximate ? "gelu_tanh" : "gelu"; }
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

KindRow<Layer> relu_row() {
  return {"relu", "max(x, 0)", make_kind_of<Relu>};
}
KindRow<Layer> gelu_row() {
  return {"gelu", "x·Φ(x) (Hendrycks & Gimpel 2016)", make_kind_of<Gelu>, "approximate"};
}
KindRow<Layer> silu_row() {
  return {"silu", "x·sigmoid(x), also called swish", make_kind_of<Silu>};
}
KindRow<Layer> tanh_row() {
  return {"tanh", "hyperbolic tangent", make_kind_of<Tanh>};
}
KindRow<Layer> sigmoid_row() {
  return {"sigmoid", "1 / (1 + exp(-x))", make_kind_of<Sigmoid>};
}
KindRow<Layer> flatten_row() {
  return {"flatten", "one vector a sample", make_kind_of<Flatten>};
}

}  // namespace dltrain
