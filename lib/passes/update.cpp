#include "passes/update.h"

#include "base/error.h"
#include "graph/builder.h"

namespace dltrain {

void emit_update(Graph& graph, const Optimizer& optimizer,
                 const std::vector<ParameterGradient>& gradients,
                 const std::vector<LayerContext::DeferredUpdate>& updates) {
  if (gradients.empty()) fail(ExitCode::usage, "the loss depends on no parameter");
  GraphBuilder builder(graph);
  builder.set_phase(Phase::update);
  builder.set_layer("optimizer");
  std::vector<ValueId> norm_inputs{builder.step_state()};
  for (const auto& [parameter, gradient] : gradients) norm_inputs.push_back(gradient);
  const ValueId state = builder.emit1("gradient_norm", norm_inputs);
  optimizer.emit(builder, state, gradients);
  for (const LayerContext::DeferredUpdate& update : updates) {
    builder.set_layer(update.layer);
    std::vector<ValueId> inputs{state};
    inputs.insert(inputs.end(), update.inputs.begin(), update.inputs.end());
    builder.emit(update.op, std::move(inputs), update.attributes);
  }
}

}  // namespace dltrain
