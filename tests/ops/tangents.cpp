// Forward-mode rules against the reverse rules, in f64 on the reference engine: ⟨w, J·v⟩ = ⟨Jᵀ·w,
// v⟩ for random w and v, within 1e-10 of the terms' sizes.
#include "ops/tangents.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "catch.h"
#include "ops/eager.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

struct Products {
  double forward = 0, reverse = 0, size = 0;
};

void add_products(double& sum, double& size, const HostTensor& a, const HostTensor& b) {
  double squares = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    sum += a.get(i) * b.get(i);
    squares += a.get(i) * a.get(i) * b.get(i) * b.get(i);
  }
  size += std::sqrt(squares);
}

// Returns both sides of the equation; nullopt: the op has no rule. `moved`: the inputs that v
// moves.
std::optional<Products> products(const OpCase& c, OpRunner& runner,
                                 const std::vector<bool>& moved) {
  EagerEmitter e(runner);
  const Attributes attributes = case_attributes(c, DType::f64);
  const std::vector<HostTensor> contents = case_inputs(c, DType::f64);
  std::vector<ValueId> inputs, tangents;
  std::vector<HostTensor> directions;
  for (size_t i = 0; i < contents.size(); ++i) {
    inputs.push_back(e.add(contents[i], c.inputs[i].fill == Fill::state));
    directions.push_back(random_tensor(contents[i].spec, c.name + " direction"));
    tangents.push_back(moved[i] ? e.add(directions[i]) : kNoValue);
  }
  const OpDef& op = *find_op(c.op);
  const std::vector<ValueId> outputs = e.emit(c.op, inputs, attributes);
  HostTensor cotangent = random_tensor(e.spec(outputs[0]), c.name + " cotangent");
  const ValueId weight = e.add(cotangent);
  const auto found = tangent({.emitter = e,
                              .op = op,
                              .inputs = inputs,
                              .outputs = outputs,
                              .tangents = tangents,
                              .attributes = attributes},
                             is_loss(op) ? weight : kNoValue);
  if (!found) return std::nullopt;
  Products out;
  double ignored = 0;
  if (is_loss(op)) {
    out.forward = e.value(*found).get(0);
  } else {
    REQUIRE(e.spec(*found) == e.spec(outputs[0]));
    add_products(out.forward, ignored, cotangent, e.value(*found));
  }
  std::vector<ValueId> output_gradients(outputs.size(), kNoValue);
  output_gradients[0] = weight;
  const auto gradients = op.gradient({.emitter = e,
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .output_gradients = output_gradients,
                                      .wanted = moved,
                                      .attributes = attributes});
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (moved[i]) add_products(out.reverse, out.size, e.value(gradients[i]), directions[i]);
  }
  return out;
}

}  // namespace

TEST_CASE("forward-mode rules agree with the reverse rules") {
  OpRunner runner(reference_engine());
  std::set<std::string> without;
  int checked = 0;
  for (const OpCase& c : op_cases()) {
    if (!differentiable(c)) continue;
    std::vector<bool> all;
    for (const CaseInput& input : c.inputs) all.push_back(wants_gradient(input));
    if (std::ranges::count(all, true) == 0) continue;
    // All inputs at once, then each alone: the others' tangents are zero.
    std::vector<std::vector<bool>> choices{all};
    for (size_t i = 0; i < all.size() && std::ranges::count(all, true) > 1; ++i) {
      if (!all[i]) continue;
      choices.emplace_back(all.size(), false);
      choices.back()[i] = true;
    }
    for (const std::vector<bool>& moved : choices) {
      const auto found = products(c, runner, moved);
      if (!found) {
        without.insert(c.op);
        continue;
      }
      INFO(c.name << ", inputs moved: " << std::ranges::count(moved, true));
      CHECK(std::abs(found->forward - found->reverse) <= 1e-10 * (found->size + 1e-12));
      ++checked;
    }
  }
  CHECK(checked > 200);
  // Its parts have rules: passes/lower_recurrent.h replaces it.
  CHECK(without == std::set<std::string>{"recurrent_network"});
}
