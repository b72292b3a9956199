// Recurrent layers: parameters, emitted graphs, refusals.
#include <cmath>

#include "catch.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("recurrent layers have the parameters of torch") {
  const EmittedModel model = emit_text(
      "layers: [{type: lstm, hidden_size: 3, num_layers: 2, bidirectional: true}, flatten, linear: "
      "3]",
      {5, 4});
  CHECK(
      parameters_of(model).starts_with("layers.0.weight_ih_l0 f32[12, 4]\n"
                                       "layers.0.weight_hh_l0 f32[12, 3]\n"
                                       "layers.0.bias_ih_l0 f32[12]\n"
                                       "layers.0.bias_hh_l0 f32[12]\n"
                                       "layers.0.weight_ih_l0_reverse f32[12, 4]\n"));
  CHECK_THAT(parameters_of(model), Contains("layers.0.weight_ih_l1 f32[12, 6]\n"));
  CHECK(model.parameters[0].initializer.value == Approx(1 / std::sqrt(3.0)));
  const std::string text = print_graph(model.graph);
  CHECK_THAT(text,
             Contains("{kept_bytes=0, kind=lstm, reverse=true} : f32[2, 5, 3], f32[2, 1, 3]") &&
                 Contains("concat("));
}

TEST_CASE("the last output of each direction is that of its last step") {
  const EmittedModel model = emit_text(
      "layers: [{type: gru, hidden_size: 3, bidirectional: true, bias: false, return_sequences: "
      "false}]",
      {5, 4});
  CHECK(parameters_of(model) ==
        "layers.0.weight_ih_l0 f32[9, 4]\nlayers.0.weight_hh_l0 f32[9, 3]\n"
        "layers.0.weight_ih_l0_reverse f32[9, 4]\nlayers.0.weight_hh_l0_reverse f32[9, 3]\n");
  const std::string text = print_graph(model.graph);
  CHECK_THAT(text, Contains("{after=[0, 0, 0], before=[0, 4, 0]}") &&
                       Contains("{after=[0, 4, 0], before=[0, 0, 0]}"));
}

TEST_CASE("outputs between recurrent layers are dropped in training only") {
  const std::string layers =
      "layers: [{type: rnn, hidden_size: 3, num_layers: 3, dropout: 0.25, nonlinearity: relu}, "
      "flatten]";
  const auto dropouts = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("dropout("); at != std::string::npos;
         at = text.find("dropout(", at + 1)) {
      ++count;
    }
    return count;
  };
  CHECK(dropouts(print_graph(emit_text(layers, {5, 4}).graph)) == 2);
  CHECK(dropouts(print_graph(emit_text(layers, {5, 4}, 2, false).graph)) == 0);
  CHECK_THAT(mistakes_in("layers: [{type: lstm, hidden_size: 3, dropout: 0.5}]"),
             Contains("num_layers is 1"));
  CHECK_THAT(refusal("layers: [lstm: 3]", {4}), Contains("expects tokens"));
}

EmittedModel emit_streams(const std::string& text, bool training) {
  ModelConfig model;
  const std::string errors = read_model(text, model);
  if (!errors.empty()) throw Error(ExitCode::usage, errors);
  const auto loss = make_kind(loss_table(), "cross_entropy");
  return emit_model({.model = model,
                     .loss = *loss,
                     .inputs = {{"x", {Shape{5, 4}, DType::f32}}},
                     .streams = {.rows = 6, .steps = 7},
                     .samples = 2,
                     .training = training});
}

TEST_CASE("state is carried for all rows of the global batch, in evaluation apart") {
  const std::string text =
      "layers: [{type: lstm, hidden_size: 3, num_layers: 2, carry_state: true}, linear: 4]";
  const EmittedModel training = emit_streams(text, true);
  std::string carried;
  for (ValueId id : training.graph.with_role(Role::carried)) {
    const GraphValue& value = training.graph.value(id);
    carried += value.name + " " + to_string(value.spec) + "\n";
  }
  CHECK(carried ==
        "layers.0.hidden_l0 f32[6, 3]\nlayers.0.cell_l0 f32[6, 3]\n"
        "layers.0.hidden_l1 f32[6, 3]\nlayers.0.cell_l1 f32[6, 3]\n");
  REQUIRE(training.updates.size() == 4);
  CHECK(training.updates[3].op == "carried_update");
  CHECK_THAT(print_graph(training.graph),
             Contains("{samples=2, steps=7} : f32[2, 3]") && Contains("{rows=6} : f32[6, 3]"));

  const EmittedModel evaluation = emit_streams(text, false);
  CHECK(evaluation.updates.empty());
  CHECK(evaluation.graph.with_role(Role::carried).empty());
  const auto pass = evaluation.graph.with_role(Role::pass);
  REQUIRE(pass.size() == 4);
  CHECK(evaluation.graph.value(pass[0]).name == "evaluation of layers.0.hidden_l0");
  verify_graph(evaluation.graph);

  const EmittedModel gru =
      emit_streams("layers: [{type: gru, hidden_size: 3, bias: false, carry_state: true}]", true);
  CHECK(gru.graph.with_role(Role::carried).size() == 1);
  CHECK_THAT(refusal("layers: [{type: gru, hidden_size: 3, carry_state: true}]", {5, 4}),
             Contains("sampling: streams"));
  CHECK_THAT(mistakes_in("layers: [{type: gru, hidden_size: 3, carry_state: true, bidirectional: "
                         "true}]"),
             Contains("no state can be carried"));
}

}  // namespace
}  // namespace dltrain
