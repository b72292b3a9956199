#include "train/advice.h"

#include <algorithm>

#include <fmt/format.h>

namespace dltrain {
namespace {

// lars and lamb scale the steps of tensors that decay; where none does, they are SGD and Adam.
bool scales_no_step(const Session& session) {
  const Optimizer& optimizer = *session.experiment->optimizer;
  if (!optimizer.adapts_decayed_only()) return false;
  const StepGraph& graph = session.executor->training();
  return std::none_of(graph.parameters.begin(), graph.parameters.end(),
                      [&](const ParameterInfo& info) {
                        if (info.role != Role::parameter) return false;
                        if (std::ranges::find(graph.frozen, info.name) != graph.frozen.end())
                          return false;
                        return optimizer.settings(info.name, info.spec.shape).weight_decay != 0;
                      });
}

}  // namespace

std::vector<std::string> advice(const Session& session) {
  std::vector<std::string> out = session.experiment->lr_scheduler->misfits(session.max_steps);
  if (scales_no_step(session)) {
    const std::string& kind = session.experiment->optimizer->kind;
    out.push_back(
        fmt::format("optimizer {}: no parameter has weight_decay, and only those that "
                    "have take steps in proportion to their norm: this is {}; "
                    "always_adapt: true scales all",
                    kind, kind == "lars" ? "SGD" : "Adam"));
  }
  return out;
}

}  // namespace dltrain
