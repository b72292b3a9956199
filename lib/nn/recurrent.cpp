// lstm, gru and rnn: recurrent networks over the tokens [samples, tokens, width], of several layers
// and both directions. Parameters have the names, shapes and initial values of torch.nn.LSTM, GRU
// and RNN: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, with _reverse for the second
// direction. Every sample begins with a state of zeros; with carry_state, it begins with the last
// state of the same row of the previous batch (truncated back-propagation through time).
#include "ops/recurrent.h"

#include "base/error.h"
#include "nn/decoding.h"
#include "nn/layer.h"
#include "ops/gathered_parts.h"

namespace dltrain {
namespace {

struct Recurrent : Layer {
  int64_t hidden_size = 0, num_layers = 1;
  bool bias = true, bidirectional = false, return_sequences = true, carry_state = false;
  double dropout = 0;

  // The attribute `kind` of the ops: that of lstm and gru is the kind of the layer.
  virtual std::string op_kind() const { return kind; }

  void describe(Fields& f) override {
    f.integer("hidden_size", hidden_size,
              {.doc = "Units of a layer and direction",
               .required = true,
               .min = 1,
               .max = 1e6,
               .known_as = {"units", "out_features"}});
    f.integer("num_layers", num_layers, {.doc = "Stacked layers", .min = 1, .max = 1000});
    f.boolean("bidirectional", bidirectional,
              {.doc = "A second network reads from the last token to the first; both outputs are "
                      "concatenated, 2 · hidden_size wide"});
    f.boolean("bias", bias, {.doc = "Add biases", .known_as = {"use_bias"}});
    f.number("dropout", dropout,
             {.doc = "Probability of setting an output of any layer but the last to zero in "
                     "training",
              .min = 0,
              .below = 1});
    f.boolean("return_sequences", return_sequences,
              {.doc = "true: the outputs for all tokens; false: the output after the last token, "
                      "one vector a sample"});
    f.boolean("carry_state", carry_state,
              {.doc = "Each sample begins with the final state of the same row of the previous "
                      "batch, without a gradient (truncated back-propagation through "
                      "time). Needs data with `sampling: streams`; the state is zero where an "
                      "epoch or an evaluation begins, and part of checkpoints",
               .known_as = {"stateful"}});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (dropout > 0 && num_layers == 1) {
      diagnostics.add(*this, "dropout", "dropout lies between layers, and num_layers is 1");
    }
    if (carry_state && bidirectional) {
      diagnostics.add(
          *this, "carry_state",
          "the second direction begins at the end of a sample, so no state can be carried "
          "to it");
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_tokens(c.shape(x));
    if (c.document_positions() != kNoValue) {
      fail(ExitCode::usage,
           "keeps its state from one document to the next; data.document_mask is "
           "for attention");
    }
    if (decoding_of(c, x) != nullptr && (bidirectional || !return_sequences)) {
      fail(ExitCode::usage, "{}, so this model cannot generate text",
           bidirectional ? "reads from the last token too (bidirectional)"
                         : "gives one vector a text (return_sequences)");
    }
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      if (layer > 0) {
        x = c.with_dropout(x, dropout, fmt::format("{}.dropout_l{}", c.path(), layer));
      }
      const bool whole = return_sequences || layer + 1 < num_layers;
      std::vector<ValueId> out;
      for (const bool reverse : {false, true}) {
        if (reverse && !bidirectional) continue;
        const ValueId y = direction(c, x, layer, reverse);
        out.push_back(whole ? y : last(c, y, reverse));
      }
      const int64_t axis = c.shape(out[0]).rank() - 1;
      x = out.size() == 1 ? out[0] : c.builder().emit1("concat", out, {{"axis", axis}});
    }
    return x;
  }

 private:
  ValueId direction(LayerContext& c, ValueId x, int64_t layer, bool reverse) const {
    const std::string suffix = fmt::format("_l{}{}", layer, reverse ? "_reverse" : "");
    const Attributes attributes{{"kind", op_kind()}, {"reverse", reverse}};
    const int64_t width = recurrent_gates(recurrent_kind(attributes)) * hidden_size;
    // All initial values are uniform within 1/√hidden_size, as in torch.
    const auto init = Initializer::uniform_for(hidden_size);
    const auto parameter = [&](const char* name, const Shape& shape) {
      return c.parameter(name + suffix, shape, init);
    };
    // The inputs of recurrent_network (lib/ops/recurrent_network.cpp).
    std::vector<ValueId> inputs(7, kNoValue);
    inputs[0] = x;
    inputs[1] = parameter("weight_ih", {width, c.shape(x)[-1]});
    inputs[2] = parameter("weight_hh", {width, hidden_size});
    if (bias) {
      inputs[3] = parameter("bias_ih", {width});
      inputs[4] = parameter("bias_hh", {width});
    }
    if (decoding_of(c, x) != nullptr) return continued(c, inputs, attributes, suffix);
    return whole(c, std::move(inputs), attributes, layer);
  }

  // With carry_state, starts with the state of the previous batch and stores the new state.
  ValueId whole(LayerContext& c, std::vector<ValueId> inputs, Attributes attributes,
                int64_t layer) const {
    const bool cells = recurrent_kind(attributes) == RecurrentKind::lstm;
    const std::string h = fmt::format("hidden_l{}", layer), cell = fmt::format("cell_l{}", layer);
    const int64_t samples = c.shape(inputs[0])[0];
    if (carry_state) inputs[5] = c.carried(h, samples, hidden_size);
    if (carry_state && cells) inputs[6] = c.carried(cell, samples, hidden_size);
    attributes.set("kept_bytes", int64_t{0});
    const auto out = c.builder().emit("recurrent_network", inputs, attributes);
    if (carry_state) c.carry(h, last(c, out[0], false));
    if (carry_state && cells) c.carry(cell, c.reshape(out[1], {samples, hidden_size}));
    return out[0];
  }

  // In generation, starts with the cached state of earlier tokens. `network`: the inputs of
  // recurrent_network.
  ValueId continued(LayerContext& c, const std::vector<ValueId>& network,
                    const Attributes& attributes, const std::string& suffix) const {
    const Decoding& d = *decoding_of(c, network[0]);
    const bool cells = recurrent_kind(attributes) == RecurrentKind::lstm;
    const TensorSpec spec{Shape{d.slots, hidden_size}, c.compute()};
    std::vector<ValueId> projection{network[0], network[1]};
    if (bias) projection.push_back(network[3]);
    std::vector<ValueId> inputs{c.builder().emit1("matmul", projection, {{"transpose_b", true}}),
                                network[2], network[4]};
    std::vector<ValueId> kept;
    for (const char* name : {"h", "c"}) {
      if (*name == 'c' && !cells) continue;
      kept.push_back(add_cache(c, name + suffix, spec));
      inputs.push_back(c.builder().emit1("slot_state", {kept.back(), d.positions, d.slot_ids}));
    }
    const std::vector<ValueId> out = c.builder().emit("recurrent", inputs, attributes);
    for (size_t i = 0; i < kept.size(); ++i) {
      c.builder().emit("slot_state_update",
                       {kept[i], i == 0 ? out[0] : out[2], d.counts, d.slot_ids});
    }
    return out[0];
  }

  // Returns the output of the last step, [samples, hidden].
  ValueId last(LayerContext& c, ValueId y, bool reverse) const {
    const Shape shape = c.shape(y);
    const ValueId one = emit_range(c.builder(), y, 1, {reverse ? 0 : shape[1] - 1, 1});
    return c.reshape(one, {shape[0], shape[2]});
  }
};

struct Rnn final : Recurrent {
  bool relu = false;

  std::string op_kind() const override { return relu ? "rnn_relu" : "rnn_tanh"; }
  void describe(Fields& f) override {
    Recurrent::describe(f);
    f.choice("nonlinearity", relu, {{"tanh", false, "tanh"}, {"relu", true, "max(x, 0)"}},
             {.doc = "Activation of the sum of input and state", .known_as = {"activation"}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> recurrent_rows() {
  return {{"lstm", "long short-term memory over tokens (Hochreiter and Schmidhuber 1997)",
           make_kind_of<Recurrent>, "hidden_size"},
          {"gru", "gated recurrent units over tokens (Cho et al. 2014)", make_kind_of<Recurrent>,
           "hidden_size"},
          {"rnn", "a plain recurrent network over tokens (Elman 1990)", make_kind_of<Rnn>,
           "hidden_size"}};
}

}  // namespace dltrain
