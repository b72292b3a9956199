// dltrain plan: the run, the model, its layers, and what is promised.
#include <algorithm>
#include <map>

#include "base/memory.h"
#include "dltrain/plan_sections.h"
#include "run/advice.h"
#include "run/memory_fit.h"

namespace dltrain {

std::string human_count(double n) {
  if (n < 1e4) return fmt::format("{:.0f}", n);
  if (n < 1e6) return fmt::format("{:.1f} k", n / 1e3);
  if (n < 1e9) return fmt::format("{:.1f} M", n / 1e6);
  if (n < 1e12) return fmt::format("{:.1f} G", n / 1e9);
  return fmt::format("{:.1f} T", n / 1e12);
}

// "210 FLOP", "2.1 GFLOP"
std::string human_flop(double n) {
  return human_count(n) + (n < 1e4 ? " FLOP" : "FLOP");
}

int64_t parameter_elements(const Session& session) {
  int64_t sum = 0;
  for (const ParameterInfo& info : session.executor->training().parameters) {
    if (info.role == Role::parameter) sum += info.spec.shape.elements();
  }
  return sum;
}

namespace {

// The weights that model.lora.base keeps in codes.
void print_codes(const std::vector<ParameterInfo>& parameters) {
  int64_t weights = 0, elements = 0;
  size_t bytes = 0;
  for (const ParameterInfo& info : parameters) {
    if (info.codes.format == WeightFormat::wide) continue;
    ++weights;
    elements += info.spec.shape.elements();
    for (const CodedPart& part : coded_parts(info.codes, info.spec.shape[0], info.spec.shape[1])) {
      bytes += part.spec.bytes();
    }
  }
  if (weights == 0) return;
  fmt::print("  lora base: {} weights of {} elements in codes, {}, {:.3f} bits each\n", weights,
             elements, bytes_text(bytes),
             8 * static_cast<double>(bytes) / static_cast<double>(elements));
}

void print_layers(const PlanReport& r) {
  std::vector<LayerCost> rows = fold_equal_blocks(r.layers);
  LayerCost total{.layer = "total"};
  for (const LayerCost& row : rows) {
    total.parameters += row.parameters;
    total.activation_bytes += row.activation_bytes;
    total.forward_flops += row.forward_flops;
    total.backward_flops += row.backward_flops;
  }
  rows.push_back(total);
  std::vector<std::string> names;
  size_t width = 4;
  bool folded = false;
  for (const LayerCost& row : rows) {
    names.push_back(row.layer + (row.copies > 1 ? fmt::format(" (x{})", row.copies) : ""));
    width = std::max(width, names.back().size());
    folded = folded || row.copies > 1;
  }
  fmt::print("layers, for one micro-batch{}:\n", folded ? " (xN: sums over N equal blocks)" : "");
  fmt::print("  {:<{}}  {:>12}  {:>11}  {:>12}  {:>13}\n", "name", width, "parameters",
             "activations", "forward FLOP", "backward FLOP");
  for (size_t i = 0; i < rows.size(); ++i) {
    const LayerCost& row = rows[i];
    fmt::print("  {:<{}}  {:>12}  {:>11}  {:>12}  {:>13}\n", names[i], width, row.parameters,
               bytes_text(row.activation_bytes), human_count(row.forward_flops),
               human_count(row.backward_flops));
  }
}

// Returns whether layers share a parameter; stages of a pipeline add its gradients in another
// order.
bool has_tied_weights(const Graph& graph) {
  std::map<ValueId, std::string_view> layer_of;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const GraphValue& value = graph.value(id);
      const bool copy = value.role == Role::low_precision;
      if (!copy && value.role != Role::parameter) continue;
      const auto [first, is_new] = layer_of.try_emplace(copy ? value.of : id, node.layer);
      if (!is_new && first->second != node.layer) return true;
    }
  }
  return false;
}

void print_promises(const Session& session) {
  fmt::print("reproducibility (docs/equality.md):\n");
  fmt::print("  bit-identical: a second run, a resumed run (same machine and number of threads)\n");
  if (session.batch.micro_batches() == 1) return;
  const bool fixed = session.experiment->training.reduction == Reduction::fixed;
  const bool tied = fixed && has_tied_weights(session.executor->training().graph);
  const std::string matters = micro_batch_matters(session);
  fmt::print("  {}: another number of ranks or micro-steps for the same global batch{}{}{}{}\n",
             fixed ? "bit-identical" : "within tolerance",
             fixed || !matters.empty()
                 ? fmt::format(" and micro_batch_size {}", session.batch.micro_batch)
                 : "",
             fixed ? "" : ", every zero_stage",
             tied ? ", but not another number of pipeline stages (layers share a weight)" : "",
             matters.empty() ? "" : " (" + matters + ")");
}

// Compares with the same step without recomputation.
void print_recompute(const Session& session) {
  const StepGraph& graph = session.executor->training();
  const MemoryConfig& memory = session.experiment->memory;
  if (memory.recompute == Recompute::none && memory.recompute_layers.empty()) return;
  if (graph.recomputed_nodes == 0) {
    fmt::print("recompute: no forward call runs again\n");
    return;
  }
  SessionOptions options = session.options;
  options.log = {};
  options.evaluation = options.recompute = false;
  const PlanReport kept = open_session(*session.experiment, options).executor->report();
  const PlanReport r = session.executor->report();
  fmt::print("recompute: {} forward calls run again, {:+.1f} % FLOP; {} of memory instead of {}\n",
             graph.recomputed_nodes, 100 * (r.flops_per_step / kept.flops_per_step - 1),
             bytes_text(r.arena_bytes), bytes_text(kept.arena_bytes));
}

}  // namespace

void print_session(const Session& session, const PlanRequest& request, const MachineRates& rates) {
  const PlanReport r = session.executor->report();
  const StepGraph& graph = session.executor->training();
  fmt::print(
      "run: {} steps of {} samples ({:.2f} epochs of {}), {} rank{} × {} micro-step{} of {}\n",
      session.max_steps, session.batch.global_batch, session.epoch(session.max_steps),
      session.data.train->size(), session.options.ranks.world,
      session.options.ranks.world == 1 ? "" : "s", session.batch.micro_steps,
      session.batch.micro_steps == 1 ? "" : "s", session.batch.micro_batch);
  if (const SourceMix* mix = session.data.train->sources()) {
    const int64_t end = session.position_at(session.max_steps).cursor;
    const SourceMix::Counts draws = mix->counts(end);
    const std::vector<double> epochs = mix->epochs(end);
    for (size_t k = 0; k < epochs.size(); ++k) {
      fmt::print(
          "  source {}: {} of the samples ({:.4g} %), {:.4g} epochs of {}\n",
          mix->sources()[k].name, draws[k],
          100.0 * static_cast<double>(draws[k]) / static_cast<double>(std::max<int64_t>(end, 1)),
          epochs[k], mix->sources()[k].samples);
    }
  }
  const Optimizer& optimizer = *session.experiment->optimizer;
  if (const auto& scale = optimizer.scale_learning_rate) {
    fmt::print("learning rate: {:.6g}, that of a batch of {} times {:.6g} (scale_learning_rate)\n",
               optimizer.peak_learning_rate(session.batch.global_batch), scale->base_batch,
               scale->factor(session.batch.global_batch));
  }
  fmt::print("device: {}\n", session.executor->device().properties().name);
  std::string inputs;
  for (size_t i = 0; i + 1 < graph.slots.size(); ++i) {
    const GraphValue& value = graph.graph.value(graph.slots[i]);
    inputs += fmt::format("{}{} {}", i == 0 ? "" : ", ",
                          value.name.substr(value.name.find('.') + 1), to_string(value.spec));
  }
  fmt::print("model: {} parameters, {} → output {}\n", parameter_elements(session), inputs,
             to_string(graph.output_spec));
  for (const std::string& name : graph.unused) fmt::print("  unused: {} gets no gradient\n", name);
  if (const LoraConfig* lora = session.experiment->model.adapters()) {
    int64_t adapters = 0, learning = 0;
    for (const ParameterInfo& info : graph.parameters) {
      if (info.role != Role::parameter || info.adaptation == Adaptation::frozen) continue;
      adapters += info.name.ends_with(kLoraA) ? 1 : 0;
      learning += info.spec.shape.elements();
    }
    fmt::print(
        "  lora: {} adapters of rank {}; {} parameters learn, {:.2g} % of all\n", adapters,
        lora->rank, learning,
        100.0 * static_cast<double>(learning) / static_cast<double>(parameter_elements(session)));
    print_codes(graph.parameters);
  }
  if (!graph.frozen.empty()) {
    fmt::print("  frozen: {} tensors, {} to {}\n", graph.frozen.size(), graph.frozen.front(),
               graph.frozen.back());
  }
  if (!graph.gathered_tokens.empty()) {
    fmt::print("  gathered: {} op{} that run{} on all tokens of a sample on each rank: {}\n",
               graph.gathered_tokens.size(), graph.gathered_tokens.size() == 1 ? "" : "s",
               graph.gathered_tokens.size() == 1 ? "s" : "",
               fmt::join(graph.gathered_tokens, ", "));
  }
  if (!graph.gathered.empty()) {
    fmt::print("  gathered: {} op{} without a rule for the shards of the inputs: {}\n",
               graph.gathered.size(), graph.gathered.size() == 1 ? "" : "s",
               fmt::join(graph.gathered, ", "));
  }
  for (const std::string& sentence : advice(session)) fmt::print("warning: {}\n", sentence);
  print_stages(session);
  print_layers(r);
  print_memory(session, r);
  print_lengths(session, r);
  print_host_memory(session);
  print_recompute(session);
  fmt::print("step: {}, at least {} of memory traffic, {} kernel calls\n",
             human_flop(r.flops_per_step), bytes_text(static_cast<size_t>(r.bytes_per_step)),
             r.kernel_calls);
  if (session.options.ranks.world > 1) print_traffic(session, r, rates);
  print_checkpoint(session, request.storage, rates.link);
  if (rates.gpu) print_gpu_estimate(session, rates);
  if (!request.timeline.empty()) write_timeline(request.timeline, session, rates);
  print_promises(session);
}

}  // namespace dltrain
