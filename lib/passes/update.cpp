#include "passes/update.h"

#include "base/error.h"
#include "graph/builder.h"
#include "graph/state_name.h"

namespace dltrain {
namespace {

// Returns the output of the last in-place writer of the memory of `root`.
ValueId newest(const Graph& graph, ValueId root) {
  ValueId out = root;
  for (const Node& node : graph.nodes) {
    if (!node.op->has_effect) continue;
    for (ValueId id : node.outputs) {
      if (graph.storage(id) == root) out = id;
    }
  }
  return out;
}

void emit_averages(GraphBuilder& builder, ValueId state, const EmaConfig& ema,
                   std::vector<ValueId> averaged) {
  for (ValueId id : builder.graph().with_role(Role::buffer)) averaged.push_back(id);
  std::vector<ValueId> inputs{state};
  for (ValueId id : averaged) inputs.push_back(newest(builder.graph(), id));
  for (ValueId id : averaged) {
    const GraphValue& value = builder.graph().value(id);
    inputs.push_back(builder.add_value(average_name(value.name), value.spec, Role::ema));
  }
  builder.set_layer("ema");
  builder.emit("ema_update", std::move(inputs),
               {{"count", static_cast<int64_t>(averaged.size())},
                {"decay", ema.decay},
                {"start", ema.start_step},
                {"warmup", ema.warmup}});
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

std::string average_name(std::string_view state) {
  return state_name("ema", state);
}

void read_averages(Graph& graph, const std::vector<ValueId>& learning) {
  std::vector<ValueId> averaged = learning;
  for (ValueId id : graph.with_role(Role::buffer)) averaged.push_back(id);
  for (ValueId id : averaged) {
    GraphValue& value = graph.value(id);
    value.name = average_name(value.name);
    value.role = Role::ema;
  }
}

}  // namespace dltrain
