#include "train/advice.h"

#include <algorithm>
#include <cmath>

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

// Outputs for classes that the data does not have; tokens of a vocabulary may be rare.
std::string idle_outputs(const Session& session) {
  const Dataset& data = *session.data.train;
  const auto& target = data.fields().back().sample;
  if (target.dtype != DType::i32 || target.shape.elements() != 1 ||
      session.experiment->data.train->has_tokens()) {
    return {};
  }
  int64_t classes = static_cast<int64_t>(data.class_names().size());
  for (const auto& split : {session.data.train, session.data.eval}) {
    if (split) classes = std::max(classes, split->label_bound());
  }
  if (classes < 1 || session.classes <= classes) return {};
  return fmt::format(
      "the model has {} outputs, the data {} classes; `linear: auto`, or `num_classes: auto` of a "
      "named model, gives as many as the data has",
      session.classes, classes);
}

struct Largest {
  double value = 0;
  std::string column;
};

// Of the first f32 input, in the first samples.
Largest largest_input(const Dataset& data) {
  constexpr int64_t kLooks = 512;
  const FieldSpec& field = data.fields()[0];
  Largest out;
  if (field.sample.dtype != DType::f32) return out;
  std::vector<float> values(static_cast<size_t>(field.sample.shape.elements()));
  for (int64_t sample = 0; sample < std::min(data.size(), kLooks); ++sample) {
    data.gather(0, {&sample, 1}, reinterpret_cast<std::byte*>(values.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::abs(values[i]) <= out.value) continue;
      out.value = std::abs(values[i]);
      const auto schema = data.schema();
      const auto columns = schema ? schema->number_columns() : std::vector<int>();
      const int column = i < columns.size() ? columns[i] : -1;
      out.column = column < 0 ? "" : schema->columns[static_cast<size_t>(column)].name;
    }
  }
  return out;
}

}  // namespace

std::string first_loss_advice(const Session& session, double loss) {
  constexpr double kManyGuesses = 4, kLarge = 10;
  const double choices =
      session.experiment->loss->target_kind(session.target_info) == TargetKind::binary
          ? 2
          : static_cast<double>(session.classes);
  if (choices < 2 || !(loss > kManyGuesses * std::log(choices))) return {};
  const Largest largest = largest_input(*session.data.train);
  if (largest.value < kLarge) return {};
  return fmt::format(
      "the first loss is {:.3g}, where a guess has {:.3g}: inputs reach {:.4g}{}; `normalize: "
      "auto` "
      "in data brings them to mean 0 and standard deviation 1",
      loss, std::log(choices), largest.value,
      largest.column.empty() ? "" : fmt::format(" (column '{}')", largest.column));
}

std::vector<std::string> advice(const Session& session) {
  std::vector<std::string> out = session.experiment->lr_scheduler->misfits(session.max_steps);
  add_lengths(session, out);
  if (std::string idle = idle_outputs(session); !idle.empty()) out.push_back(std::move(idle));
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
