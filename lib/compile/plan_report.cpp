#include "compile/plan_report.h"

#include <algorithm>

namespace dltrain {
namespace {

LayerCost& layer_row(PlanReport& report, const std::string& layer) {
  const auto at = std::find_if(report.layers.begin(), report.layers.end(),
                               [&](const LayerCost& row) { return row.layer == layer; });
  if (at != report.layers.end()) return *at;
  report.layers.push_back({.layer = layer});
  return report.layers.back();
}

// Gathered for its readers (passes/zero.h).
bool is_sharded_parameter(const Graph& graph, const GraphValue& value) {
  return value.role == Role::activation && !value.name.empty() &&
         std::any_of(graph.sharded.begin(), graph.sharded.end(), [&](const ShardedTensor& tensor) {
           return tensor.role == Role::parameter && tensor.name == value.name;
         });
}

void add_node(PlanReport& report, const Graph& graph, const Node& node, int64_t micro_steps) {
  const SpecList inputs = graph.input_specs(node), outputs = graph.output_specs(node);
  const Cost cost = op_cost(*node.op, inputs, outputs, node.attributes);
  const double runs =
      node.phase == Phase::update || node.once_a_step ? 1.0 : static_cast<double>(micro_steps);
  report.flops_per_step += runs * cost.flops;
  report.bytes_per_step += runs * cost.bytes;
  if (node.phase == Phase::update) return;
  LayerCost& row = layer_row(report, node.layer.empty() ? "model" : node.layer);
  if (node.phase == Phase::forward) {
    row.forward_flops += cost.flops;
    for (ValueId id : node.outputs) {
      const GraphValue& value = graph.value(id);
      if (value.role == Role::activation && value.storage_of == kNoValue) {
        row.activation_bytes += value.spec.bytes();
      }
    }
  } else {
    row.backward_flops += cost.flops;
  }
  for (ValueId id : node.inputs) {
    if (id == kNoValue || node.phase != Phase::forward) continue;
    const GraphValue& value = graph.value(id);
    const bool whole = value.role == Role::parameter && value.storage_of == kNoValue;
    if (whole || is_sharded_parameter(graph, value)) {
      row.parameters += value.spec.shape.elements();
    }
  }
}

}  // namespace

PlanReport make_plan_report(const Plan& plan, const StateLayout& layout, size_t work_bytes,
                            int64_t micro_steps, const RankPlaces& places) {
  PlanReport report;
  report.places = places;
  report.traffic = step_traffic(plan.graph(), micro_steps, places);
  for (const RoleRules& rules : role_table()) {
    if (const size_t bytes = layout.bytes(rules.role)) {
      report.state_bytes.emplace_back(rules.name, bytes);
    }
  }
  if (layout.bytes(Role::gradient) == 0) {
    for (ValueId id : plan.graph().with_role(Role::gradient)) {
      report.gradient_bytes += plan.graph().value(id).spec.bytes();
    }
  }
  report.state_total = layout.bytes();
  report.work_bytes = work_bytes;
  report.work_lower_bound = plan.work_lower_bound();
  report.workspace_bytes = plan.workspace_bytes();
  report.arena_bytes = report.state_total + report.work_bytes;
  for (const Node& node : plan.graph().nodes) add_node(report, plan.graph(), node, micro_steps);
  for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
    report.kernel_calls += plan.segment(phase, MicroStep::only).size();
  }
  return report;
}

}  // namespace dltrain
