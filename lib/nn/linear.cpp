// linear: y = x·Wᵀ + b over the last axis. Weight [out, in] as in PyTorch, both in files and
// memory; with weight_layout: in_out files keep it transposed, as GPT-2's do. lm_head is a linear
// layer with one output for each id of the vocabulary.
#include "nn/layer.h"

namespace dltrain {
namespace {

// Weight and bias are uniform within 1/√in at first, as in PyTorch (He et al. 2015 with a = √5).
ValueId emit_linear(LayerContext& c, ValueId x, int64_t out, bool bias, bool in_first) {
  if (c.shape(x).rank() > 3) expect_vectors(c.shape(x));
  const int64_t in = c.shape(x)[-1];
  const auto init = Initializer::uniform_for(in);
  const FileLayout file =
      in_first ? FileLayout{{in, out}, {1, 0}, /*in_first=*/true} : FileLayout{{out, in}, {}};
  std::vector<ValueId> inputs{x, c.parameter("weight", {out, in}, init, file)};
  if (bias) inputs.push_back(c.parameter("bias", {out}, init));
  return c.builder().emit1("matmul", inputs, {{"transpose_b", true}});
}

struct Linear final : Layer {
  // `auto` is replaced by the number when the first graph is built.
  mutable IntegerOrAuto out_features = int64_t{0};
  bool bias = true, in_first = false;

  void describe(Fields& f) override {
    f.integer("out_features", out_features,
              {.doc = "Length of the output vector; auto: the number of classes of the data, "
                      "or of numbers in a target",
               .required = true,
               .min = 1,
               .max = 1e8,
               .known_as = {"units", "output_size", "hidden_size", "out_channels"}});
    f.boolean("bias", bias, {.doc = "Add a bias", .known_as = {"use_bias"}});
    f.choice("weight_layout", in_first,
             {{"out_in", false, "PyTorch's linear"},
              {"in_out", true, "transposed: GPT-2's Conv1D, Keras' dense"}},
             {.doc = "Order of the weight's axes in files"});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    if (std::holds_alternative<Auto>(out_features)) out_features = c.outputs();
    return emit_linear(c, x, std::get<int64_t>(out_features), bias, in_first);
  }
};

struct LmHead final : Layer {
  bool bias = false;

  void describe(Fields& f) override {
    f.boolean("bias", bias, {.doc = "Add a bias", .known_as = {"use_bias"}});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    return emit_linear(c, x, c.vocabulary(), bias, false);
  }
};

}  // namespace

std::vector<KindRow<Layer>> linear_rows() {
  return {{"linear", "y = x·Wᵀ + b over the last axis", make_kind_of<Linear>, "out_features"},
          {"lm_head",
           "a linear layer with an output for each id of the vocabulary (model.vocab_size); with "
           "`share: <embedding>` its weight is the embedding's",
           make_kind_of<LmHead>}};
}

}  // namespace dltrain
