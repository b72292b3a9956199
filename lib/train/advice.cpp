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

constexpr double kManyEpochs = 300;

// Lengths that are possible, and mostly a slip.
void add_lengths(const Session& session, std::vector<std::string>& out) {
  const int64_t samples = session.data.train->size(), batch = session.batch.global_batch;
  const double epochs = session.epoch(session.max_steps);
  if (batch > samples) {
    out.push_back(fmt::format(
        "training.global_batch_size {} is more than the {} training samples: a step sees some of "
        "them several times",
        batch, samples));
  } else if (session.experiment->training.max_steps && epochs >= kManyEpochs) {
    out.push_back(fmt::format(
        "training.max_steps {} with batches of {} means {:.0f} epochs of {} samples; for N epochs "
        "give training.num_epochs: N instead",
        session.max_steps, batch, epochs, samples));
  }
}

}  // namespace

std::vector<std::string> advice(const Session& session) {
  std::vector<std::string> out = session.experiment->lr_scheduler->misfits(session.max_steps);
  add_lengths(session, out);
  if (scales_no_step(session)) {
    const std::string& kind = session.experiment->optimizer->kind;
    out.push_back(
        fmt::format("optimizer {}: only parameters with weight_decay get steps in proportion "
                    "to their norm, and none has it: this is {}; always_adapt: true scales all",
                    kind, kind == "lars" ? "SGD" : "Adam"));
  }
  return out;
}

}  // namespace dltrain
