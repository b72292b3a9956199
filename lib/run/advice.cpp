#include "run/advice.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/image_export.h"
#include "config/suggest.h"
#include "data/classes.h"
#include "data/scaling.h"
#include "nn/huggingface/folder.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

// Returns whether the trust ratio of lars or lamb is never applied, because no tensor decays.
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

// Describes how images are normalized otherwise than those on which the weights of a folder of
// Hugging Face or timm were trained; empty if they are not, or if it is unknown.
std::string other_normalization(const Experiment& experiment) {
  const std::filesystem::path folder = experiment.model.init_from.value_or("");
  const HuggingFaceFamily* family = folder.empty() ? nullptr : huggingface_family_of(folder);
  if (family == nullptr || !family->images) return {};
  const std::optional<ImageInput> own = read_image_input(folder);
  const std::optional<ImageInput> used = image_input_of(experiment.data, {});
  if (!own || !used || experiment.data.train->fit().normalize) return {};
  constexpr int64_t kColors = 3;
  const Scaler there({own->scale, own->mean, own->std}, kColors);
  const Scaler here({used->scale, used->mean, used->std}, kColors);
  constexpr float kTolerance = 0.05F;
  bool differs = false;
  for (int64_t channel = 0; channel < kColors; ++channel) {
    for (const double pixel : {0.0, 255.0}) {
      differs = differs || std::abs(there(pixel, channel) - here(pixel, channel)) > kTolerance;
    }
  }
  if (!differs) return {};
  std::string keys;
  std::istringstream lines(own->keys(/*transforms=*/false));
  for (std::string line; std::getline(lines, line);) keys += (keys.empty() ? "" : ", ") + line;
  return fmt::format(
      "the weights of {} were trained on images that were normalized in another way; use data: "
      "{{{}}}",
      folder.string(), keys);
}

// Describes how the classes of the head that a folder of Hugging Face brings differ from those of
// the data; empty if they do not, or if the head is a new one.
std::string other_classes(const Session& session) {
  const std::filesystem::path weights = session.experiment->model.init_from.value_or("");
  const HuggingFaceFamily* family = weights.empty() ? nullptr : huggingface_family_of(weights);
  if (family == nullptr) return {};
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(weights, ignored);
  const auto there = class_names_of(folder ? weights : weights.parent_path());
  const auto here = session.data_schema().class_names;
  if (there.size() != here.size() || there == here) return {};
  return fmt::format(
      "the weights of {} know the classes {}, and the data has {}: outputs keep their places, so "
      "the head has to learn the classes of the data",
      weights.string(), some_names(there), some_names(here));
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

// Warns of outputs for classes that the data does not have, except for tokens.
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

// Warns of images with the channels first, which layers read as [height, width, channels].
std::string channels_first(const Session& session) {
  const Graph& graph = session.executor->training().graph;
  for (const FieldSpec& field : session.data.train->fields()) {
    const Shape& image = field.sample.shape;
    if (image.rank() != 3 || image[0] == 2 || image[0] > 4 || image[1] != image[2] ||
        image[2] <= 4) {
      continue;
    }
    for (const Node& node : graph.nodes) {
      if (node.op->name.find("2d") == std::string_view::npos) continue;  // conv2d, max_pool2d
      const Shape& x = graph.value(node.inputs[0]).spec.shape;
      if (x.rank() != 4 || !std::ranges::equal(x.dims().subspan(1), image)) continue;
      return fmt::format(
          "{} reads samples of shape {} as [height, width, channels], with {} channels; if the "
          "channels are first (PyTorch's order), begin the model with transpose: [0, 2, 3, 1]",
          node.layer, to_string(image), image[2]);
    }
  }
  return {};
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

struct LargestInput {
  double value = 0;
  std::string column;
};

// The largest absolute value of the first f32 input in the first samples.
LargestInput largest_input(const Dataset& data) {
  constexpr int64_t kInspected = 512;
  const FieldSpec& field = data.fields()[0];
  LargestInput out;
  if (field.sample.dtype != DType::f32) return out;
  std::vector<float> values(static_cast<size_t>(field.sample.shape.elements()));
  for (int64_t sample = 0; sample < std::min(data.size(), kInspected); ++sample) {
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

std::string large_inputs(const Session& session) {
  constexpr double kLarge = 10;
  const LargestInput largest = largest_input(*session.data.train);
  if (largest.value < kLarge) return {};
  return fmt::format(
      "inputs reach {:.4g}{}; `normalize: auto` in data brings them to mean 0 and standard "
      "deviation 1",
      largest.value, largest.column.empty() ? "" : fmt::format(" (column '{}')", largest.column));
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
  const std::vector<Node>& nodes = session.executor->training().graph.nodes;
  const auto rounds = [](const Node& node) { return node.op->name == "fp8_round"; };
  if (!session.executor->device().properties().on_host && std::ranges::any_of(nodes, rounds)) {
    out.emplace_back(
        "precision.fp8 rounds to FP8 and multiplies in bf16 here: losses are those of FP8, the "
        "speed is not (docs/training.md)");
  }
  const DataSplit& data = session.data;
  add(other_tokenizer(session.experiment->model, *data.train));
  add(other_normalization(*session.experiment));
  add(other_classes(session));
  if (session.has_evaluation()) {
    const int64_t count = session.experiment->evaluation.samples.value_or(data.eval->size());
    const DatasetSubset first(data.eval, std::min(count, data.eval->size()),
                              [](int64_t i) { return i; });
    const std::string uneven = imbalanced_classes(*data.train, first);
    if (!uneven.empty()) out.push_back(uneven + "; are the samples sorted by class?");
  }
  if (!session.experiment->data.train->has_tokens()) add(unused_labels(*data.train));
  const auto misfits = session.experiment->lr_scheduler->misfits(session.max_steps);
  out.insert(out.end(), misfits.begin(), misfits.end());
  add_lengths(session, out);
  add(idle_outputs(session));
  add(channels_first(session));
  add(doubled_activation(session));
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
