// fused_elementwise: interprets the program one element at a time, every step in double.
#include "ops/fused.h"
#include "reference/call.h"
#include "reference/makers.h"
#include "shared/elementwise.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_fused_elementwise(const KernelRequest& request) {
  return make_naive_of<double>(request, [](const NaiveCall& c, double) {
    const std::vector<FusedStep> steps = parse_fused_program(c.attributes.text("program"));
    std::vector<double> values(c.inputs.size() + steps.size());  // inputs, then results of steps
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      for (size_t k = 0; k < c.inputs.size(); ++k) values[k] = c.element(k, i);
      for (size_t s = 0; s < steps.size(); ++s) {
        const double x = values[static_cast<size_t>(steps[s].operands[0])];
        const double second = values[static_cast<size_t>(steps[s].operands.back())];
        values[c.inputs.size() + s] =
            elementwise(elementwise_op(steps[s].op).value(), x, second, steps[s].p, steps[s].q);
      }
      c.put_element(0, i, values.back());
    }
  });
}

}  // namespace dltrain
