// Gradient rules against central differences, both in float64 on the reference engine: 1e-6 of the
// greatest gradient (tolerances.md).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "catch.h"
#include "ops/eager.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

constexpr double kStep = 1e-5;
constexpr double kGradientTolerance = 1e-6;
constexpr int64_t kSamples = 24;  // elements of each input that are checked one by one

// One case: the scalar sum(cotangent · output 0) as a function of the inputs.
class GradientCase {
 public:
  GradientCase(const OpCase& c, OpRunner& runner)
      : case_(c),
        runner_(runner),
        attributes_(case_attributes(c, DType::f64)),
        inputs_(case_inputs(c, DType::f64)) {
    const SpecList outputs = find_op(c.op)->output_specs(specs_of(inputs_), attributes_);
    cotangent_ = random_tensor(outputs[0], c.name + " cotangent");
  }

  // The gradients of the inputs in `wanted` by the op's rule; absent ones are empty.
  std::vector<HostTensor> by_rule(const std::vector<bool>& wanted) const {
    EagerEmitter e(runner_);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(e.add(inputs_[i], case_.inputs[i].fill == Fill::state));
    }
    const std::vector<ValueId> outputs = e.emit(case_.op, inputs, attributes_);
    std::vector<ValueId> output_gradients(outputs.size(), kNoValue);
    output_gradients[0] = e.add(cotangent_);
    const auto gradients = find_op(case_.op)->gradient({.emitter = e,
                                                        .inputs = inputs,
                                                        .outputs = outputs,
                                                        .output_gradients = output_gradients,
                                                        .wanted = wanted,
                                                        .attributes = attributes_});
    std::vector<HostTensor> out(inputs.size());
    for (size_t i = 0; i < std::min(inputs.size(), gradients.size()); ++i) {
      if (wanted[i] && gradients[i] != kNoValue) out[i] = e.value(gradients[i]);
    }
    return out;
  }

  // d/ds of the scalar at inputs[i] + s·direction.
  double difference(size_t i, const HostTensor& direction) const {
    const HostTensor up = forward(i, direction, kStep), down = forward(i, direction, -kStep);
    double sum = 0;
    for (int64_t k = 0; k < up.elements(); ++k) {
      sum += cotangent_.get(k) * (up.get(k) - down.get(k));
    }
    return sum / (2 * kStep);
  }

  const std::vector<HostTensor>& inputs() const { return inputs_; }

 private:
  HostTensor forward(size_t i, const HostTensor& direction, double step) const {
    OpRun run{.op = case_.op, .attributes = attributes_, .inputs = inputs_};
    for (int64_t k = 0; k < direction.elements(); ++k) {
      if (const double d = direction.get(k); d != 0) {
        run.inputs[i].set(k, inputs_[i].get(k) + step * d);
      }
    }
    return runner_.run(run).outputs[0];
  }

  const OpCase& case_;
  OpRunner& runner_;
  Attributes attributes_;
  std::vector<HostTensor> inputs_;
  HostTensor cotangent_;
};

void check_elements(const GradientCase& g, size_t i, const HostTensor& gradient) {
  double greatest = 1e-12;
  for (int64_t k = 0; k < gradient.elements(); ++k) {
    greatest = std::max(greatest, std::abs(gradient.get(k)));
  }
  const int64_t n = gradient.elements(), stride = std::max<int64_t>(1, n / kSamples) | 1;
  for (int64_t k = 0; k < n; k += stride) {
    HostTensor unit(g.inputs()[i].spec);
    unit.set(k, 1);
    INFO("element " << k << " of " << n);
    CHECK(std::abs(g.difference(i, unit) - gradient.get(k)) <= kGradientTolerance * greatest);
  }
}

// All elements at once, along a random direction.
void check_direction(const GradientCase& g, size_t i, const HostTensor& gradient,
                     const std::string& name) {
  const HostTensor direction = random_tensor(g.inputs()[i].spec, name + " direction");
  double sum = 0, squares = 1e-24;
  for (int64_t k = 0; k < gradient.elements(); ++k) {
    const double term = gradient.get(k) * direction.get(k);
    sum += term;
    squares += term * term;
  }
  CHECK(std::abs(g.difference(i, direction) - sum) <= kGradientTolerance * std::sqrt(squares));
}

}  // namespace

TEST_CASE("the gradient of every differentiable op agrees with central differences") {
  OpRunner runner(reference_engine());
  for (const OpCase& c : op_cases()) {
    if (!differentiable(c)) continue;
    const GradientCase g(c, runner);
    std::vector<bool> wanted;
    for (const CaseInput& input : c.inputs) wanted.push_back(wants_gradient(input));
    const std::vector<HostTensor> gradients = g.by_rule(wanted);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (!wanted[i]) continue;
      INFO(c.name << ", input " << i);
      REQUIRE(gradients[i].spec == g.inputs()[i].spec);
      check_direction(g, i, gradients[i], c.name);
      if (gradients[i].elements() <= 4096) check_elements(g, i, gradients[i]);
    }
  }
}

TEST_CASE("a gradient rule gives the same gradient when it is the only one wanted") {
  OpRunner runner(reference_engine());
  for (const OpCase& c : op_cases()) {
    if (!differentiable(c) || c.inputs.size() < 2) continue;
    const GradientCase g(c, runner);
    std::vector<bool> all;
    for (const CaseInput& input : c.inputs) all.push_back(wants_gradient(input));
    const std::vector<HostTensor> together = g.by_rule(all);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (!all[i]) continue;
      std::vector<bool> one(all.size(), false);
      one[i] = true;
      INFO(c.name << ", input " << i);
      CHECK(g.by_rule(one)[i].data == together[i].data);
    }
  }
}

TEST_CASE("an op that was fused or that has no gradient refuses to be differentiated") {
  OpRunner runner(reference_engine());
  int refused = 0;
  for (const OpCase& c : op_cases()) {
    const bool rounds = c.attributes.has("math");  // its gradient is that of f32
    if (differentiable(c) || rounds || find_op(c.op)->gradient == nullptr) continue;
    INFO(c.name);
    const GradientCase g(c, runner);
    CHECK_THROWS_AS(g.by_rule(std::vector<bool>(c.inputs.size(), true)), Error);
    ++refused;
  }
  CHECK(refused > 10);
}
