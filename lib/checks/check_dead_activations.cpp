// Units of ReLU layers that are zero for every sample (and place) of a batch learn nothing.
#include <algorithm>

#include "checks/checks_support.h"

namespace dltrain {
namespace {

constexpr double kMaxDead = 0.5;  // of the units of one layer, at the start
constexpr std::string_view kPrefix = "units.";

// Keeps the largest value of each unit (the innermost axis) over samples and places.
void watch_units(GraphBuilder& builder, const StepGraph& graph) {
  const size_t count = graph.graph.nodes.size();
  for (size_t i = 0; i < count; ++i) {
    const Node node = builder.graph().nodes[i];
    if (node.op->name != "relu" && node.op->name != "relu6") continue;
    if (node.layer == "loss") continue;  // metrics use it, too
    const ValueId y = node.outputs[0];
    std::vector<int64_t> axes;
    for (int axis = 0; axis + 1 < builder.spec(y).shape.rank(); ++axis) axes.push_back(axis);
    if (axes.empty()) continue;
    const ValueId largest =
        builder.emit1("reduce", {y}, {{"kind", std::string("max")}, {"axes", axes}});
    builder.accumulate(largest, fmt::format("{}{} {}", kPrefix, i, node.layer), Role::metric);
  }
}

}  // namespace

CheckResult check_dead_activations(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32, {.probe = watch_units});
  Executor& executor = *run->session.executor;
  run_batch(run->session, first_batch(run->session));
  double worst = -1;
  std::string where;
  int layers = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!tensor.name.starts_with(kPrefix)) continue;
    const auto largest = read_numbers(executor, tensor.name);
    const auto dead = std::ranges::count_if(largest, [](double x) { return x <= 0; });
    const double share = static_cast<double>(dead) / static_cast<double>(largest.size());
    ++layers;
    if (share <= worst) continue;
    worst = share;
    where = tensor.name.substr(tensor.name.find(' ') + 1);
  }
  if (layers == 0) return skipped("the model has no ReLU");
  return pass_if(worst <= kMaxDead,
                 "{} ReLU layers, at most {:.1f} % of the units of one are 0 on all {} samples "
                 "({}); limit {:.0f} %",
                 layers, 100 * worst, run->session.batch.micro_batch, where, 100 * kMaxDead);
}

}  // namespace dltrain
