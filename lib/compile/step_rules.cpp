#include "compile/step_rules.h"

#include <algorithm>
#include <set>

#include "compile/cost_model.h"
#include "config/name_patterns.h"
#include "graph/dependence.h"
#include "optim/galore.h"
#include "passes/frozen_base.h"
#include "passes/stage_cut.h"

namespace dltrain {

std::vector<ValueId> learning_parameters(const StepRequest& r, StepGraph& out) {
  const std::vector<ValueId> all = out.graph.with_role(Role::parameter);
  std::vector<std::string> names;
  for (ValueId id : all) names.push_back(out.graph.value(id).name);
  Diagnostics diagnostics;
  check_patterns(diagnostics, r.update, "freeze", r.update.freeze, names, "parameter");
  r.optimizer.check_groups(diagnostics, names);
  diagnostics.throw_if_any();
  const std::set<std::string> frozen = frozen_parameters(out.parameters);
  std::vector<ValueId> learning;
  for (ValueId id : all) {
    const GraphValue& p = out.graph.value(id);
    if (frozen.contains(p.name) || selects(r.update.freeze, p.name) ||
        r.optimizer.settings(p.name, p.spec.shape).frozen) {
      out.frozen.push_back(p.name);
    } else {
      learning.push_back(id);
    }
  }
  if (learning.empty() && !all.empty()) {
    diagnostics.add(r.update, "freeze", "every parameter is frozen: there is nothing to train");
    diagnostics.throw_if_any();
  }
  return learning;
}

double core_seconds(const Graph& graph, const Node& node) {
  const Cost cost = graph.cost(node);
  constexpr double kFlops = 1e11, kBytes = 1e10;
  return std::max(cost.flops / kFlops, cost.bytes / kBytes);
}

std::vector<AddedLosses> added_losses(const StepRequest& r,
                                      const std::vector<EmittedRouter>& routers) {
  std::vector<AddedLosses> out;
  const auto count = static_cast<double>(r.micro_batches);
  for (const EmittedRouter& router : routers) {
    const RouterInfo& info = router.info;
    if (info.balance_loss == 0 && info.router_z_loss == 0) continue;
    out.push_back({router.losses, {info.balance_loss / count, info.router_z_loss / count}});
  }
  return out;
}

void check_same_parameters(const StepRequest& r, const std::vector<ParameterInfo>& parameters) {
  if (r.same_state == nullptr) return;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Shape &a = r.same_state->parameters[i].spec.shape, &b = parameters[i].spec.shape;
    if (a == b) continue;
    fail_at(r.model.location,
            "the shape of {} is {} or {}, depending on the length of the samples; steps of several "
            "lengths need parameters that do not depend on it (position_embedding: max_positions)",
            parameters[i].name, to_string(a), to_string(b));
  }
}

std::vector<std::string> stages_of(const StepRequest& r, const Graph& forward) {
  const int stages = r.parallel.mesh.size(mesh_axes::kPipeline);
  if (stages == 1) return {};
  if (r.same_state != nullptr) return r.same_state->stages;
  const bool on_gpu = r.gpu_memory && r.gpu_memory() != 0;
  if (r.stages.empty()) return choose_stages(forward, stages * r.virtual_stages, on_gpu);
  return find_stages(forward, r.stages);
}

void check_layer_patterns(const StepRequest& r, const Graph& forward) {
  if (r.memory == nullptr) return;
  std::vector<std::string> layers;
  for (const Node& node : forward.nodes) {
    if (layers.empty() || layers.back() != node.layer) layers.push_back(node.layer);
  }
  Diagnostics diagnostics;
  check_patterns(diagnostics, *r.memory, "keep_layers", r.recompute.keep, layers, "layer");
  check_patterns(diagnostics, *r.memory, "recompute_layers", r.recompute.again, layers, "layer");
  diagnostics.throw_if_any();
}

std::vector<int> equal_stages(const StepRequest& r, const StepGraph& step,
                              const std::vector<ValueId>& learning) {
  const Graph& graph = step.graph;
  std::vector<ValueId> sources = learning;
  for (const ValueId copy : graph.with_role(Role::low_precision)) {
    if (std::ranges::find(learning, graph.value(copy).of) != learning.end()) {
      sources.push_back(copy);
    }
  }
  const std::vector<bool> learns = reachable_from(graph, sources);
  const Galore* galore = r.optimizer.projection();
  return find_equal_stages(graph, step.stages, [&](const Node& node) {
    std::string out = fmt::format("{} {}", selects(r.recompute.keep, node.layer),
                                  selects(r.recompute.again, node.layer));
    for (const ValueId id : node.inputs) {
      const bool has_gradient = id != kNoValue && learns[static_cast<size_t>(id)];
      out += has_gradient ? " learns" : " fixed";
      if (!has_gradient) continue;
      const GraphValue& read = graph.value(graph.storage(id));
      const GraphValue& p = read.of == kNoValue ? read : graph.value(read.of);
      if (p.role != Role::parameter) continue;
      out += fmt::format(" {} {}", r.optimizer.settings(p.name, p.spec.shape).eight_bit,
                         galore != nullptr && galore->projects(p.name, p.spec.shape));
    }
    return out;
  });
}

std::optional<Gpu> gpu_for_times(const StepRequest& r, size_t memory) {
  return r.gpu || memory == 0 ? r.gpu : std::optional(find_gpus("h100-80g").front());
}

int pieces_of_product(const StepRequest& r, const std::optional<Gpu>& gpu, const Graph& graph,
                      const Node& product, double message, double copied, bool even) {
  if (r.parallel.product_pieces) return static_cast<int>(*r.parallel.product_pieces);
  if (!gpu || !even) return 1;
  constexpr double kLink = 3e11;  // bytes per second, of NVLink
  const double computing = call_cost(*gpu, graph, product, false).seconds,
               sending = message / kLink;
  int best = 1;
  double least = 0.97 * (computing + sending);
  for (const int pieces : {2, 4}) {
    const double each = 2 * gpu->launch_seconds * pieces, copying = copied / gpu->bytes_per_second;
    const double seconds =
        std::max(computing, sending) + std::min(computing, sending) / pieces + each + copying;
    if (seconds < least) best = pieces, least = seconds;
  }
  return best;
}

void check_optimizer_in_backward(const StepRequest& r, const Graph& graph) {
  const auto refuse = [&](std::string_view why) {
    fail_at(r.update, "optimizer_in_backward", "{}", why);
  };
  if (r.parallel.mesh.size() > 1) {
    refuse(
        "works on one rank only; sums over ranks need all gradients; take one rank, or leave it "
        "out");
  }
  if (r.micro_batches > 1) {
    refuse(
        "needs one micro-batch a step; set training.micro_batch_size to the global batch, or "
        "leave it out");
  }
  if (r.precision.low() == DType::f16) {
    refuse("cannot skip a step whose gradients overflow, which fp16 needs; use bf16 or f32");
  }
  for (const Node& node : graph.nodes) {
    if (node.op->update == UpdateKind::sums) {
      refuse(
          "this optimizer needs sums over a whole tensor before it updates it; use one whose "
          "elements are independent, such as adamw");
    }
  }
}

bool copies_are_small(const Graph& graph, uint64_t gpu_memory) {
  uint64_t bytes = 0;
  for (const ValueId copy : graph.with_role(Role::low_precision)) {
    bytes += graph.value(copy).spec.bytes();
  }
  return 24 * bytes < gpu_memory;
}

}  // namespace dltrain
