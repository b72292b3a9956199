#include "passes/update.h"

#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

ValueId add_average(GraphBuilder& builder, ValueId id) {
  return builder.add_state_of(id, "ema", builder.spec(id), Role::ema);
}

void emit_averages(GraphBuilder& builder, ValueId state, const EmaConfig& ema,
                   std::vector<ValueId> averaged) {
  for (ValueId id : builder.graph().with_role(Role::buffer)) averaged.push_back(id);
  builder.set_layer("ema");
  for (ValueId id : averaged) {
    builder.emit("ema_update", {state, builder.graph().newest(id), add_average(builder, id)},
                 {{"decay", ema.decay}, {"start", ema.start_step}, {"warmup", ema.warmup}});
  }
}

}  // namespace

void emit_update(Graph& graph, const UpdateRequest& r) {
  if (r.gradients.empty()) fail(ExitCode::usage, "the loss depends on no parameter");
  GraphBuilder builder(graph);
  builder.set_phase(Phase::update);
  builder.set_layer("optimizer");
  std::vector<ValueId> norm_inputs{builder.step_state()};
  for (const auto& [parameter, gradient] : r.gradients) norm_inputs.push_back(gradient);
  ValueId state = builder.emit1("gradient_norm", norm_inputs);
  if (r.config.clip_percentile) {
    const ClipPercentile& clip = *r.config.clip_percentile;
    const ValueId norms =
        builder.add_value("clip_percentile.norms", {Shape{clip.window}, DType::f32}, Role::moment);
    state = builder.emit1("clip_percentile", {state, norms},
                          {{"percentile", clip.percentile},
                           {"factor", clip.factor},
                           {"min_history", clip.min_history}});
  }
  r.optimizer.emit(builder, state, r.gradients);
  for (const LayerContext::DeferredUpdate& update : r.updates) {
    builder.set_layer(update.layer);
    std::vector<ValueId> inputs{state};
    inputs.insert(inputs.end(), update.inputs.begin(), update.inputs.end());
    builder.emit(update.op, std::move(inputs), update.attributes);
  }
  if (r.config.ema) emit_averages(builder, state, *r.config.ema, r.learning);
}

void read_averages(Graph& graph, const std::vector<ValueId>& learning) {
  std::vector<ValueId> averaged = learning;
  for (ValueId id : graph.with_role(Role::buffer)) averaged.push_back(id);
  GraphBuilder builder(graph);
  for (ValueId id : averaged) {
    const ValueId average = add_average(builder, id);
    for (Node& node : graph.nodes) std::ranges::replace(node.inputs, id, average);
    for (GraphValue& view : graph.values) {
      if (view.storage_of == id) view.storage_of = average;
    }
  }
}

}  // namespace dltrain
