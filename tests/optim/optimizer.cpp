#include "optim/optimizer.h"

#include "catch.h"
#include "config/bind.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

struct Section {
  std::unique_ptr<Optimizer> optimizer;
  void describe(Fields& f) {
    f.one_of("optimizer", optimizer, optimizer_table(), {.doc = "The optimizer", .required = true});
  }
};

std::string read(const std::string& text, Section& section) {
  Problems problems;
  const auto source =
      std::make_shared<Source>(Source{"exp.yaml", fmt::format("optimizer: {}", text)});
  if (const auto tree = read_yaml(source, 0, problems)) bind(section, *tree, problems);
  return problems.describe();
}

std::string mistakes_in(const std::string& text) {
  Section section;
  return read(text, section);
}

// The update of two parameters by the optimizer of `text`.
std::string update_of(const std::string& text) {
  Section section;
  const std::string mistakes = read(text, section);
  if (!mistakes.empty()) return mistakes;
  Graph graph;
  GraphBuilder b(graph);
  b.set_phase(Phase::update);
  std::vector<ParameterGradient> gradients;
  for (const char* name : {"w", "b"}) {
    const TensorSpec spec{Shape{gradients.empty() ? 6 : 3}, DType::f32};
    const ValueId p = b.add_value(name, spec, Role::parameter);
    gradients.push_back({p, b.add_value(fmt::format("gradient.{}", name), spec, Role::gradient)});
  }
  const ValueId state =
      b.emit1("gradient_norm", {b.step_state(), gradients[0].gradient, gradients[1].gradient});
  section.optimizer->emit(b, state, gradients);
  verify_graph(graph);
  for (ValueId id : graph.with_role(Role::moment)) {
    const std::string& name = graph.value(id).name;
    const ValueId parameter = graph.find(name.substr(name.find('.') + 1));
    CHECK(graph.value(id).spec == graph.value(parameter).spec);
  }
  const std::string printed = print_graph(graph);
  return printed.substr(printed.find("= ", printed.rfind("\n  ") + 1));
}

TEST_CASE("sgd is one update of all parameters, with a velocity each where there is momentum") {
  CHECK(update_of("{type: sgd, learning_rate: 0.1, weight_decay: 0.5}") ==
        "= sgd_update(%5, w, b, gradient.w, gradient.b) {count=2, momentum=0, nesterov=false, "
        "weight_decay=0.5} : f32[6], f32[3]\n");
  CHECK(update_of("{type: sgd, learning_rate: 0.1, momentum: 0.9, nesterov: true}") ==
        "= sgd_update(%5, w, b, gradient.w, gradient.b, momentum.w, momentum.b) {count=2, "
        "momentum=0.9, nesterov=true, weight_decay=0} : f32[6], f32[3], f32[6], f32[3]\n");
}

TEST_CASE("adamw has two moments a parameter and decays by default") {
  CHECK(update_of("{type: adamw, learning_rate: 0.1, betas: [0.8, 0.95], epsilon: 1.0e-6}") ==
        "= adamw_update(%5, w, b, gradient.w, gradient.b, first_moment.w, first_moment.b, "
        "second_moment.w, second_moment.b) {beta1=0.8, beta2=0.95, count=2, epsilon=1e-06, "
        "weight_decay=0.01} : f32[6], f32[3], f32[6], f32[3], f32[6], f32[3]\n");
}

TEST_CASE("keys of optimizers that people know by other names are suggested") {
  CHECK_THAT(mistakes_in("{type: sgd, lr: 0.1}"), Contains("did you mean 'learning_rate'?"));
  CHECK_THAT(mistakes_in("{type: adamw, learning_rate: 1, eps: 1.0}"),
             Contains("did you mean 'epsilon'?"));
  CHECK_THAT(mistakes_in("{type: sgd}"), Contains("learning_rate"));
  CHECK_THAT(mistakes_in("{type: sgd, learning_rate: -1}"), Contains("exp.yaml:1:39: error:"));
  CHECK_THAT(mistakes_in("{type: adamw, learning_rate: 1, betas: [0.9, 1.0]}"), Contains("error:"));
  CHECK_THAT(mistakes_in("{type: adam, learning_rate: 1}"), Contains("did you mean 'adamw'?"));
}

// A new row fails here until its update has been looked at above.
TEST_CASE("the optimizers are those tested here") {
  std::string names;
  for (const KindRow<Optimizer>& row : optimizer_table().rows) {
    names += fmt::format("{} ", row.name);
    CHECK_FALSE(row.doc.empty());
  }
  CHECK(names == "sgd adamw ");
}

TEST_CASE("nesterov without momentum is refused") {
  CHECK_THAT(mistakes_in("{type: sgd, learning_rate: 1, nesterov: true}"),
             Contains("nesterov needs a momentum"));
}

}  // namespace
}  // namespace dltrain
