// fused_elementwise: interprets the program one element at a time, every step in double.
#include "ops/fused.h"
#include "reference/arithmetic.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct Fused {
  explicit Fused(const NaiveCall& c)
      : steps(parse_fused_program(c.attributes.text("program"))),
        results(c.attributes.integers("results")) {}

  void run(const NaiveCall& c) const {
    std::vector<double> values(c.inputs.size() + steps.size());  // inputs, then results of steps
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      // All inputs are read before any output is written: they may share memory.
      for (size_t k = 0; k < c.inputs.size(); ++k) values[k] = c.element(k, i);
      for (size_t s = 0; s < steps.size(); ++s) {
        values[c.inputs.size() + s] = step(steps[s], values);
      }
      for (size_t r = 0; r < results.size(); ++r) {
        c.put_element(r, i, values[static_cast<size_t>(results[r])]);
      }
    }
  }

  static double step(const FusedStep& s, const std::vector<double>& values) {
    const double x = values[static_cast<size_t>(s.operands[0])];
    const double second = values[static_cast<size_t>(s.operands.back())];
    if (const auto f = reference_parametrised(s.op)) return f(x, second, s.p, s.q);
    if (s.operands.size() == 1) return reference_unary(s.op)(x);
    return reference_binary(s.op)(x, second);
  }

  std::vector<FusedStep> steps;
  std::vector<int64_t> results;
};

}  // namespace

KernelPointer reference_fused_elementwise(const KernelRequest& request) {
  return std::make_unique<NaiveKernel<Fused>>(request);
}

}  // namespace dltrain
