#include "run/advice.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "config/suggest.h"
#include "run/data_advice.h"
#include "run/memory_fit.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

// Returns whether the trust ratio of lars or lamb is never applied, because no tensor decays.
bool scales_no_step(const Session& session) {
  const Optimizer& optimizer = *session.experiment->optimizer;
  if (!optimizer.adapts_decayed_only()) return false;
  const StepGraph& graph = session.executor->training();
  return std::ranges::none_of(graph.parameters, [&](const ParameterInfo& info) {
    return info.role == Role::parameter && !contains(graph.frozen, info.name) &&
           optimizer.settings(info.name, info.spec.shape).weight_decay != 0;
  });
}

// Returns the folder of the tokenizer of these weights, or an empty path. Checkpoints lie in
// <run>/checkpoints; links to them are followed.
std::filesystem::path folder_of_tokenizer(const std::filesystem::path& weights) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(weights, error);
  if (error) return {};
  for (std::filesystem::path folder = real; folder.has_relative_path();
       folder = folder.parent_path()) {
    if (std::filesystem::is_directory(folder, error) && holds_tokenizer(folder)) return folder;
    const std::string parent = folder.parent_path().filename().string();
    const bool within_run = parent == "checkpoints" || folder.filename() == "checkpoints";
    if (!within_run && !std::filesystem::is_regular_file(folder, error)) break;
  }
  return {};
}

std::string name_of_other_tokenizer(const Tokenizer& tokenizer) {
  return fmt::format("{}, {} tokens", tokenizer.kind(), tokenizer.vocab_size());
}

// Weights are trained for the ids of one tokenizer. If model.init_from has a tokenizer beside it (a
// Hugging Face folder, a run or a checkpoint), describes how the data's tokenizer differs from it;
// empty if it does not.
std::string other_tokenizer(const ModelConfig& model, const Dataset& data) {
  const auto used = data.tokenizer();
  const std::filesystem::path folder = folder_of_tokenizer(model.init_from.value_or(""));
  if (!used || folder.empty()) return {};
  try {
    const auto own = load_tokenizer(folder);
    const std::string difference = tokenizer_difference(*own, *used);
    if (difference.empty()) return {};
    return fmt::format(
        "the weights of {} were trained with the tokenizer beside them ({}), but "
        "the data is read with another ({}): {}; use data.tokenizer: {{type: file, "
        "path: {}}}",
        *model.init_from, name_of_other_tokenizer(*own), name_of_other_tokenizer(*used), difference,
        folder.string());
  } catch (const Error&) {
    return {};  // of a kind that is not read here
  }
}

constexpr double kManyEpochs = 300;

// Adds warnings about lengths that are valid but often unintended.
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

// Warns of a last layer that the loss has already.
std::string doubled_activation(const Session& session) {
  const std::string& loss = session.experiment->loss->kind;
  const auto& layers = session.experiment->model.layers;
  const std::string last = layers.empty() ? "" : layers.back()->kind;
  if (!(loss == "cross_entropy" && last == "softmax") &&
      !(loss == "binary_cross_entropy" && last == "sigmoid")) {
    return {};
  }
  return fmt::format("the last layer is a {}, which {} has already: leave it out", last, loss);
}

// The loss of a constant answer, estimated from the first samples where it depends on the targets;
// 0 if it is unknown.
double guessed_loss(const Session& session) {
  const TargetKind kind = session.experiment->loss->target_kind(session.target_info);
  if (kind == TargetKind::binary) return std::log(2.0);
  if (session.classes >= 2) return std::log(static_cast<double>(session.classes));
  if (kind != TargetKind::numbers || session.experiment->loss->kind != "mse") return 0;
  const Dataset& data = *session.data.train;
  const auto field = static_cast<size_t>(data.target_field());
  std::vector<float> values(static_cast<size_t>(data.fields()[field].sample.shape.elements()));
  const int64_t count = std::min<int64_t>(data.size(), 512);
  double sum = 0, squares = 0;
  for (int64_t sample = 0; sample < count; ++sample) {
    data.gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(values.data()));
    for (const double x : values) sum += x, squares += x * x;
  }
  const double n = static_cast<double>(count) * static_cast<double>(values.size());
  return squares / n - sum / n * (sum / n);
}

// Warns of targets that outputs near 0 reach late: the step of an optimizer such as Adam is as
// large as the learning rate, whatever the loss.
std::string large_targets(const Session& session) {
  constexpr double kLargeDeviation = 100;
  const Experiment& experiment = *session.experiment;
  if (experiment.loss->kind != "mse" || !experiment.training.freeze.empty()) return {};
  const double deviation = std::sqrt(guessed_loss(session));
  if (!(deviation > kLargeDeviation)) return {};
  return fmt::format(
      "the targets have a standard deviation of {:.3g}, so the model learns slowly or not at all: "
      "divide them, or add a frozen last layer that scales the outputs (`dltrain init mlp --data "
      "FILE --target NAME` writes one)",
      deviation);
}

// Warns of a pipeline that cannot be kept full.
std::string waiting_stages(const Session& session) {
  const int64_t stages = session.coordinates.pipeline.count, steps = session.batch.micro_steps;
  if (steps >= stages) return {};
  // The first micro-batch passes all stages; each later one is behind it by one stage of a rank.
  const auto chunks = static_cast<double>(session.experiment->parallelism.virtual_stages);
  double all = static_cast<double>(stages) + static_cast<double>(steps - 1) / chunks;
  if (session.experiment->parallelism.pipeline_schedule == PipelineSchedule::zero_bubble) {
    all = static_cast<double>(steps) + static_cast<double>(stages - 1) / 3;
  }
  return fmt::format(
      "parallelism.pipeline {} with {} micro-batch{} a step: each stage waits for {:.0f} % of the "
      "time; a smaller training.micro_batch_size gives more micro-batches",
      stages, steps, steps == 1 ? "" : "es", 100 * (1 - static_cast<double>(steps) / all));
}

// Warns where the number of ranks changes the results.
std::string micro_batch_of_layout(const Session& session) {
  const int64_t ranks = session.batch.micro_batches() / session.batch.micro_steps;
  if (ranks == 1 || session.experiment->training.micro_batch_size) return {};
  const std::string why = micro_batch_matters(session);
  if (why.empty()) return {};
  return fmt::format(
      "{0}, here of {1} samples on each of {2} ranks: another number of ranks has other results; "
      "training.micro_batch_size: {1} gives the same ones",
      why, session.batch.micro_batch, ranks);
}

}  // namespace

std::string kernels_of_step(const Session& session) {
  const Engine& engine = session.executor->engine();
  const DeviceProperties& properties = session.executor->device().properties();
  std::string text;
  if (properties.on_host) return text;
  for (const auto& [kernel, calls] : session.executor->training_program().variants()) {
    const std::string_view op = kernel.first, variant = kernel.second;
    const auto known = std::ranges::count_if(kernel_rows(engine, op), [](const KernelRow* row) {
      return row->variant != "through f32";
    });
    if (known < 2 && variant != "through f32") continue;
    text += fmt::format("{}{}: {} {}", text.empty() ? "" : ", ", op, calls, variant);
  }
  return fmt::format("kernels of a step on {} ({}): {}", properties.name, properties.architecture,
                     text.empty() ? "own" : text);
}

std::string first_loss_advice(const Session& session, double loss) {
  constexpr double kManyGuesses = 4;
  const double guess = guessed_loss(session);
  if (guess == 0 || !(loss > kManyGuesses * guess)) return {};
  const std::string inputs = large_inputs(session);
  if (inputs.empty()) return {};
  return fmt::format("the first loss is {:.3g}, where a guess has {:.3g}: {}", loss, guess, inputs);
}

std::vector<std::string> advice(const Session& session) {
  std::vector<std::string> out = session.experiment->parallelism.idle_keys();
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) out.push_back(std::move(sentence));
  };
  add(waiting_stages(session));
  add(micro_batch_of_layout(session));
  const std::vector<Node>& nodes = session.executor->training().graph.nodes;
  const auto rounds = [](const Node& node) { return node.op->name == "fp8_round"; };
  if (!session.executor->device().properties().on_host && std::ranges::any_of(nodes, rounds)) {
    out.emplace_back(
        "precision.fp8 rounds to FP8 and multiplies in bf16 here: losses are those of FP8, the "
        "speed is not (docs/training.md)");
  }
  add(other_tokenizer(session.experiment->model, *session.data.train));
  std::ranges::move(data_advice(session), std::back_inserter(out));
  const auto misfits = session.experiment->lr_scheduler->misfits(session.max_steps);
  out.insert(out.end(), misfits.begin(), misfits.end());
  add_lengths(session, out);
  add(doubled_activation(session));
  add(large_targets(session));
  if (session.experiment->data.train->sampling == Sampling::balanced &&
      session.experiment->loss->wants_label_counts()) {
    out.emplace_back(
        "data.sampling: balanced and loss.balanced_class_weights both make up for rare classes, "
        "together twice: keep one");
  }
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
