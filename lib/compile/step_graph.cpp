#include "compile/step_graph.h"

#include <algorithm>

#include "compile/cost_model.h"
#include "compile/model_flops.h"
#include "compile/step_rules.h"
#include "graph/builder.h"
#include "graph/forward_gradient.h"
#include "nn/metrics.h"
#include "passes/autocast.h"
#include "passes/chunk_loss.h"
#include "passes/context_cut.h"
#include "passes/cut_products.h"
#include "passes/data_parallel.h"
#include "passes/dead_code.h"
#include "passes/fp8.h"
#include "passes/frozen_base.h"
#include "passes/fuse.h"
#include "passes/fuse_copies.h"
#include "passes/gradient_squares.h"
#include "passes/narrow_parameters.h"
#include "passes/optimizer_in_backward.h"
#include "passes/overlap.h"
#include "passes/pack_updates.h"
#include "passes/partition.h"
#include "passes/remove_copies.h"
#include "passes/sequence_cut.h"
#include "passes/split_backward.h"
#include "passes/stage_cut.h"
#include "passes/tf32.h"
#include "passes/update.h"

namespace dltrain {
namespace {

ModelRequest model_request(const StepRequest& r, bool training) {
  return {.model = r.model,
          .loss = r.loss,
          .teachers = training ? r.teachers : std::vector<const ModelConfig*>(),
          .inputs = r.inputs,
          .targets = r.targets,
          .vocabulary = r.vocabulary,
          .outputs = r.outputs,
          .streams = r.streams,
          .samples = r.micro_batch,
          .training = training,
          .noise = r.noise,
          .compute = r.compute,
          .ghost_groups = r.micro_batches};
}

// Emits the forward and runs the passes in the order of step_graph.h.
class StepBuilder {
 public:
  StepBuilder(const StepRequest& request, bool is_training)
      : r(request), training(is_training), model(emit_model(model_request(request, is_training))) {}

  StepGraph build() {
    take_model();
    choose_formats();
    divide_layers();
    if (!training) mark_output();
    emit_metrics();
    if (training) emit_gradients_and_update();
    lower();
    fuse_and_recompute();
    divide_state();
    return std::move(out);  // its Program verifies the graph
  }

 private:
  void take_model();
  void choose_formats();
  void divide_layers();
  void mark_output();
  void emit_metrics();
  void emit_gradients_and_update();
  void lower();
  void fuse_and_recompute();
  void divide_state();

  void log(std::string_view pass) const {
    if (r.log) r.log(pass, out.graph);
  }
  // 0: a CPU.
  uint64_t gpu_memory() const { return r.gpu_memory ? r.gpu_memory() : 0; }
  bool divides_layers() const { return r.parallel.mesh.size(mesh_axes::kCut) > 1; }

  const StepRequest& r;
  const bool training;
  EmittedModel model;
  StepGraph out;
  std::vector<ValueId> learning;  // parameters
  const ContextOptions context{.mesh = r.parallel.mesh,
                               .rank = r.parallel.rank,
                               .compute = r.compute,
                               .ring = r.parallel.ring,
                               .key = r.parallel.context_key};
  const PartitionOptions tensor{
      .mesh = r.parallel.mesh,
      .rank = r.parallel.rank,
      .key = r.parallel.tensor_key,
      .sequence = r.parallel.sequence,
      .same_state = r.same_state != nullptr ? &r.same_state->graph : nullptr};
  bool shares_metrics = false;  // each rank of `context` computes the metrics of all tokens
};

void StepBuilder::take_model() {
  out.graph = std::move(model.graph);
  out.slots = std::move(model.inputs);
  out.output = model.output;
  out.parameters = std::move(model.parameters);
  out.constants = std::move(model.constants);
  out.asked_vocabulary = model.asked_vocabulary;
  if (model.sources != kNoValue) out.slots.push_back(model.sources);
  out.slots.push_back(model.targets);
  out.output_spec = out.graph.value(out.output).spec;
  log("emit");
  check_same_parameters(r, out.parameters);
  // Other graphs lack layers, such as dropout.
  if (training && r.noise) {
    check_layer_patterns(r, out.graph);
    r.precision.check_layers(out.graph);
  }
  out.stages = stages_of(r, out.graph);
  if (training || r.update.ema) learning = learning_parameters(r, out);
}

void StepBuilder::choose_formats() {
  // Must run before autocast, since low-precision copies are made from parameters, not averages.
  if (!training && r.update.ema) read_averages(out.graph, learning);
  if (r.precision.low() != DType::f32) {
    // In training only a probe and the loss read the output.
    std::vector<ValueId> keep;
    if (!training || r.probe) keep.push_back(out.output);
    out.graph = autocast(std::move(out.graph), r.precision, keep);
    log("autocast");
  }
  if (mark_tf32(out.graph, r.precision)) log("tf32");
  if (training && r.precision.fp8) mark_fp8(out.graph, *r.precision.fp8);
  if (training && !out.stages.empty()) out.equal_stages = equal_stages(r, out, learning);
  // Forward gradients have a rule for the parts of recurrent networks.
  const bool whole = r.fuse && r.update.gradient == GradientMode::reverse;
  out.graph = lower_recurrent(std::move(out.graph), whole ? r.kept_bytes : KeptBytes(), training);
}

void StepBuilder::divide_layers() {
  if (context.ranks() > 1) {
    std::vector<ValueId*> sums{&model.loss.loss_sum};
    for (auto& [label, sum] : model.loss.metrics) sums.push_back(&sum);
    for (EmittedRouter& router : model.routers)
      sums.insert(sums.end(), {&router.losses, &router.sums});
    std::vector<ValueId*> rows{&model.targets};
    if (model.sources != kNoValue) rows.push_back(&model.sources);
    ContextCutResult cut = cut_context(out.graph, context, sums, model.output, rows);
    shares_metrics = cut.whole_output;
    out.gathered_tokens = std::move(cut.gathered);
    log("context_cut");
  }
  if (tensor.ranks() > 1) {
    std::vector<ValueId*> kept{&model.loss.loss_sum};
    // The output stays sharded where only the loss reads it.
    if (r.probe || !r.metrics.empty()) kept.insert(kept.end(), {&out.output, &model.output});
    for (auto& [label, sum] : model.loss.metrics) kept.push_back(&sum);
    if (model.loss.row_losses != kNoValue) kept.push_back(&model.loss.row_losses);
    for (EmittedRouter& router : model.routers) kept.push_back(&router.sums);
    for (auto& update : model.updates) {
      for (ValueId& id : update.inputs) kept.push_back(&id);
    }
    out.gathered = partition(out.graph, tensor, kept);
    log("partition");
    if (r.parallel.sequence) {
      for (EmittedRouter& router : model.routers) kept.push_back(&router.losses);
      const bool sums = std::ranges::any_of(
          out.graph.nodes, [](const Node& node) { return node.op->name == "all_reduce"; });
      const int scattered = cut_sequence(out.graph, tensor, kept);
      if (sums && scattered == 0 && training) {
        fail_at(r.parallel.sequence_key,
                "sequence_parallel: no sum of partial results has samples or tokens that tensor {} "
                "divides; take a training.micro_batch_size that it divides",
                tensor.ranks());
      }
      log("sequence_cut");
    }
  }
  if (ExpertCutOptions experts = r.experts; experts.changes()) {
    if (!training) experts.capacity = experts.buffer = 0;  // padding is not balanced
    experts.compute = r.compute;
    expert_cut(out.graph, experts, model.routers);
    log("expert_cut");
  }
}

void StepBuilder::mark_output() {
  if (out.graph.value(out.output).producer < 0) {  // a model without layers: an input stays one
    GraphBuilder copying(out.graph);
    out.output = copying.emit1("identity", {out.output});
  }
  out.graph.value(out.output).role = Role::output;
}

void StepBuilder::emit_metrics() {
  // The sums that the host reads; copies, so that the loss itself can still be differentiated.
  GraphBuilder builder(out.graph);
  builder.set_layer("loss");
  const std::string prefix = training ? "metric." : "evaluation.";
  const auto add_metric = [&](const std::string& label, ValueId sum) {
    const ValueId copy = builder.emit1("identity", {sum});
    builder.accumulate(copy, prefix + label, Role::metric);
    out.metrics.push_back({label, prefix + label});
  };
  const auto share_of = [&](ValueId sum) {
    return shares_metrics ? emit_share(builder, sum, context) : sum;
  };
  add_metric("loss", model.loss.loss_sum);
  for (const auto& [label, sum] : model.loss.metrics) add_metric(label, sum);
  if (!training) {
    const TargetKind kind = r.loss.target_kind(r.targets);
    for (const MetricSum& sum :
         emit_metric_sums(builder, r.metrics, kind, model.output, model.targets)) {
      const ValueId total =
          builder.accumulate(share_of(sum.value), prefix + sum.label, Role::metric);
      out.metrics.push_back({sum.label, prefix + sum.label, builder.spec(total).shape.elements()});
    }
  }
  if (model.sources != kNoValue) {
    const std::string name = prefix + "sources";
    const ValueId sums =
        builder.emit1("source_sums", {model.loss.row_losses, model.targets, model.sources},
                      {{"sources", r.targets.sources}});
    builder.accumulate(share_of(sums), name, Role::metric);
    out.metrics.push_back(
        {.label = "sources", .name = name, .size = 2 * r.targets.sources, .of_sources = true});
  }
  for (const EmittedRouter& router : model.routers) {
    builder.set_layer(router.info.layer);
    const std::string name = prefix + "router." + router.info.layer;
    const ValueId total = builder.accumulate(router.sums, name, Role::metric);
    out.metrics.push_back({"router", name, builder.spec(total).shape.elements(), router.info});
  }
  builder.step_state();  // present in every plan, so that the host can always write it
  if (training && r.probe) r.probe(builder, out);
}

void StepBuilder::emit_gradients_and_update() {
  const bool estimates = r.update.gradient == GradientMode::forward;
  const std::vector<AddedLosses> added = added_losses(r, model.routers);
  auto gradients = estimates
                       ? forward_gradient(out.graph, model.loss.loss_sum, learning,
                                          static_cast<int>(r.update.directions.value_or(1)), added)
                       : reverse(out.graph, {model.loss.loss_sum}, learning, added);
  for (ValueId parameter : learning) {
    if (std::none_of(gradients.begin(), gradients.end(),
                     [&](const auto& g) { return g.parameter == parameter; })) {
      out.unused.push_back(out.graph.value(parameter).name);
    }
  }
  log(estimates ? "forward_gradient" : "reverse");
  if (r.fuse && !estimates) {
    LogitLimits limits = logit_limits(gpu_memory());
    const auto& pad = r.model.pad_vocab_to;
    if (pad) {
      limits.column_grain = limits.wide_column_grain = *pad;
      limits.least_padded = 0;
    }
    const bool done = chunk_loss(out.graph, gradients, limits);
    if (pad && !done && out.output_spec.shape[-1] % *pad != 0) {
      fail_at(r.model, "pad_vocab_to",
              "pads the last matrix product of a model whose logits only cross_entropy reads; "
              "here the output of {} is not one, or parallelism.tensor divides it",
              to_string(out.output_spec.shape));
    }
    log("chunk_loss");
  }
  if (r.precision.fp8) {
    const bool codes = r.has_fp8 && r.has_fp8(r.precision.fp8->block_size());
    Fp8State state = round_fp8(out.graph, *r.precision.fp8, r.parallel.mesh, codes);
    std::ranges::move(state.updates, std::back_inserter(model.updates));
    for (const std::string& name : state.metrics) {
      out.metrics.push_back({.label = "fp8", .name = name, .size = 3, .of_fp8 = true});
    }
    log("fp8");
  }
  if (r.gradient_squares) {
    const std::string name = "metric.gradient_squares";
    emit_gradient_squares(out.graph, gradients, name);
    out.metrics.push_back({.label = "gradient_squares", .name = name, .of_gradient = true});
  }
  emit_update(out.graph, {.optimizer = r.optimizer,
                          .config = r.update,
                          .gradients = gradients,
                          .updates = model.updates,
                          .learning = learning});
  if (r.update.optimizer_in_backward) check_optimizer_in_backward(r, out.graph);
  emit_low_precision_update(out.graph);
  log("update");
}

void StepBuilder::lower() {
  if (r.narrow_parameters) {
    out.graph = narrow_parameters(std::move(out.graph));
    log("narrow_parameters");
  }
  if (const LoraConfig* lora = r.model.adapters(); lora != nullptr && lora->changes_base()) {
    out.graph = keep_base(std::move(out.graph), out.parameters, *lora, r.precision.low());
    log("frozen_base");
  }
  if (training && r.parallel.sequence && divides_layers()) {
    const std::optional<Gpu> gpu = gpu_for_times(r, gpu_memory());
    const auto pieces = [&](const Node& product, double message, double copied, bool even) {
      return pieces_of_product(r, gpu, out.graph, product, message, copied, even);
    };
    if (cut_products(out.graph, pieces) > 0) log("cut_products");
  }
  if (divides_layers() || (r.precision.fp8 && context.ranks() > 1)) {
    ValueId* const kept[]{&out.output};
    lower_placements(out.graph, kept);
    log("lower_placements");
  }
  if (context.ranks() > 1 || (tensor.ranks() > 1 && tensor.sequence)) {
    lower_context(out.graph, context);
    log("lower_context");
  }
  mark_tf32(out.graph, r.precision);  // the backward, and the parts of recurrent networks
  out.graph = eliminate_dead_code(std::move(out.graph));
  log("dead_code");
  if (training) out.model_flops = model_flops(out.graph);
  if (!out.stages.empty()) {
    out.graph =
        stage_cut(std::move(out.graph),
                  {.rank = r.parallel.mesh.coordinate(r.parallel.rank, mesh_axes::kPipeline),
                   .begins = out.stages,
                   .sends_last = gpu_memory() != 0,
                   .chunks = r.virtual_stages});
    log("stage_cut");
  }
}

void StepBuilder::fuse_and_recompute() {
  if (training && !r.parallel.shards_state()) reduce_update_sums(out.graph, r.parallel.mesh);
  if (r.fuse) {
    out.graph = fuse(std::move(out.graph), {.join_norms = gpu_memory() != 0,
                                            .across_blocks = r.recompute.mode == Recompute::none,
                                            .recompute_gates = training && gpu_memory() != 0,
                                            .join_gelu = training && gpu_memory() != 0 &&
                                                         r.recompute.mode != Recompute::selective});
    // Units of ZeRO round their own copies.
    if ((r.keep_gradients || r.update.optimizer_in_backward ||
         copies_are_small(out.graph, gpu_memory())) &&
        !r.parallel.shards_state())
      out.graph = fuse_copies(std::move(out.graph));
    log("fuse");
  }
  if (training) {
    RecomputeOptions options = r.recompute;
    const std::optional<Gpu> gpu = gpu_for_times(r, gpu_memory());
    options.seconds = [&](const Graph& graph, const Node& node) {
      if (node.op->slot != SlotUse::none || node.inputs.empty()) return 0.0;  // a message
      return gpu ? call_cost(*gpu, graph, node, false).seconds : core_seconds(graph, node);
    };
    for (const Node& node : out.graph.nodes) {
      if (node.phase == Phase::forward) out.forward_seconds += options.seconds(out.graph, node);
    }
    Recomputed result = recompute(std::move(out.graph), options);
    out.graph = std::move(result.graph);
    out.recomputed_nodes = result.nodes;
    out.recomputed_seconds = result.seconds;
    if (result.nodes > 0) log("recompute");
  }
}

void StepBuilder::divide_state() {
  if (training && (divides_layers() || context.ranks() > 1)) {
    out.graph = overlap_messages(std::move(out.graph));
    log("overlap_messages");
  }
  if (r.parallel.shards_state()) {
    out.zero_units =
        r.same_state != nullptr ? r.same_state->zero_units : find_zero_units(out.graph, r.parallel);
    out.graph = zero(std::move(out.graph), out.zero_units, r.parallel);
    log("zero");
  } else if (training) {
    DataParallelOptions options = r.parallel;
    options.micro_steps = r.micro_batches / options.data_ranks();
    options.micro_batch = r.micro_batch;
    out.graph = data_parallel(std::move(out.graph), options);
    log("data_parallel");
  }
  if (training && r.fuse && r.micro_batches == r.parallel.data_ranks()) {
    out.graph = remove_copies(std::move(out.graph), r.parallel.ranks() == 1);
    log("remove_copies");
  }
  if (training && r.update.optimizer_in_backward) {
    out.graph = optimizer_in_backward(std::move(out.graph), r.update.max_grad_norm.has_value());
    log("optimizer_in_backward");
  }
  if (training) {
    out.graph = pack_updates(std::move(out.graph));
    log("pack_updates");
  }
  if (training && r.split_backward) {
    out.graph = split_backward(std::move(out.graph));
    log("split_backward");
  }
}

}  // namespace

int StepGraph::equal_rank(int rank, int ranks) const {
  const auto is_like = [&](int other) {
    for (size_t stage = 0; stage < equal_stages.size(); stage += static_cast<size_t>(ranks)) {
      if (equal_stages[stage + static_cast<size_t>(other)] !=
          equal_stages[stage + static_cast<size_t>(rank)]) {
        return false;
      }
    }
    return true;
  };
  int like = 0;
  while (like < rank && !is_like(like)) ++like;
  return like;
}

bool StepGraph::has_sources() const {
  return std::ranges::any_of(metrics, &StepMetric::of_sources);
}

StepGraph build_training_graph(const StepRequest& request) {
  return StepBuilder(request, true).build();
}
StepGraph build_evaluation_graph(const StepRequest& request) {
  return StepBuilder(request, false).build();
}

}  // namespace dltrain
