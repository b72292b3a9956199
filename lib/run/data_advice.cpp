#include "run/data_advice.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "checkpoint/image_export.h"
#include "config/suggest.h"
#include "data/classes.h"
#include "data/scaling.h"
#include "nn/huggingface/folder.h"
#include "ops/conv2d.h"
#include "run/resume.h"
#include "run/session_data.h"

namespace dltrain {
namespace {

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

// Warns of outputs for classes that the data does not have, except for tokens.
std::string idle_outputs(const Session& session) {
  const auto& target = session.data.train->fields().back().sample;
  if (target.dtype != DType::i32 || target.shape.elements() != 1 ||
      session.experiment->data.train->has_tokens()) {
    return {};
  }
  const int64_t classes = outputs_for(session.data);
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
          "channels are first (PyTorch's order), begin the model with transpose: [0, 2, 3, 1] (and "
          "where the targets are images, end it with transpose: [0, 3, 1, 2])",
          node.layer, to_string(image), image[2]);
    }
  }
  return {};
}

// The first f32 input in the first samples.
struct InputRange {
  double largest = 0;  // absolute value
  std::string column;  // of a table that has it
  double mean = 0, deviation = 0;
};

InputRange input_range(const Dataset& data, int64_t samples) {
  const FieldSpec& field = data.fields()[0];
  InputRange out;
  if (field.sample.dtype != DType::f32) return out;
  std::vector<float> values(static_cast<size_t>(field.sample.shape.elements()));
  double sum = 0, squares = 0;
  const int64_t count = std::min(data.size(), samples);
  for (int64_t sample = 0; sample < count; ++sample) {
    data.gather(0, {&sample, 1}, reinterpret_cast<std::byte*>(values.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      squares += double{values[i]} * values[i];
      if (std::abs(values[i]) <= out.largest) continue;
      out.largest = std::abs(values[i]);
      const auto schema = data.schema();
      const auto columns = schema ? schema->number_columns() : std::vector<int>();
      const int column = i < columns.size() ? columns[i] : -1;
      out.column = column < 0 ? "" : schema->columns[static_cast<size_t>(column)].name;
    }
  }
  const double n = static_cast<double>(count) * static_cast<double>(values.size());
  out.mean = sum / n;
  out.deviation = std::sqrt(std::max(0.0, squares / n - out.mean * out.mean));
  return out;
}

// Warns of patches (the first layer of a vision transformer) that do not cover the image.
std::string unseen_border(const Session& session) {
  const Graph& graph = session.executor->training().graph;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "conv2d") continue;
    const Shape& x = graph.value(node.inputs[0]).spec.shape;
    const Shape& w = graph.value(node.inputs[1]).spec.shape;
    const Conv2dAttributes a(node.attributes);
    for (const int axis : {1, 2}) {
      const int64_t stride = a.stride[axis - 1], rest = x[axis] % stride;
      if (rest == 0 || w[axis] != stride || a.padding[axis - 1] != 0) continue;
      return fmt::format(
          "{} cuts {} of {} pixels into patches of {}: the last {} are never seen; let "
          "data.transforms give a multiple of {}, or choose another patch_size",
          node.layer, axis == 1 ? "a height" : "a width", x[axis], stride, rest, stride);
    }
  }
  return {};
}

// Warns of inputs that hardly differ after a given normalization.
std::string shifted_inputs(const Session& session) {
  const FieldSpec& input = session.data.train->fields()[0];
  if (!session.experiment->data.train->fit().given || input.sample.dtype != DType::f32) return {};
  constexpr double kFarMean = 20, kLargeMean = 10, kSmallDeviation = 0.02;
  const InputRange range = input_range(*session.data.train, 16);
  const bool far = std::abs(range.mean) > kFarMean * range.deviation;
  if ((!far && range.deviation > kSmallDeviation) || std::abs(range.mean) > kLargeMean) return {};
  return fmt::format(
      "inputs have mean {:.3g} and standard deviation {:.2g}, so samples hardly differ: mean and "
      "std "
      "of data.normalize are in the units of the values after data.scale (pixels: 0 to 1)",
      range.mean, range.deviation);
}

// Warns of an evaluation on the training samples.
std::string equal_splits(const DataSplit& data) {
  if (!data.eval || data.eval->size() != data.train->size()) return {};
  const DataFingerprint train = fingerprint(*data.train), eval = fingerprint(*data.eval);
  if (train.inputs != eval.inputs || train.targets != eval.targets) return {};
  return "data.eval has the samples of data.train: evaluations measure what the model has "
         "memorised";
}

}  // namespace

std::string large_inputs(const Session& session) {
  constexpr double kLarge = 10;
  const InputRange range = input_range(*session.data.train, 512);
  if (range.largest < kLarge) return {};
  return fmt::format(
      "inputs reach {:.4g}{}; `normalize: auto` in data brings them to mean 0 and standard "
      "deviation 1",
      range.largest, range.column.empty() ? "" : fmt::format(" (column '{}')", range.column));
}

std::vector<std::string> data_advice(const Session& session) {
  const DataSplit& data = session.data;
  std::vector<std::string> out;
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) out.push_back(std::move(sentence));
  };
  add(other_normalization(*session.experiment));
  add(other_classes(session));
  add(shifted_inputs(session));
  add(equal_splits(data));
  const std::vector<int64_t> counts = count_classes(*data.train);
  const auto& names = data.train->class_names();
  if (session.has_evaluation()) {
    const int64_t count = session.experiment->evaluation.samples.value_or(data.eval->size());
    const DatasetSubset first(data.eval, std::min(count, data.eval->size()),
                              [](int64_t i) { return i; });
    const std::string uneven = imbalanced_classes(counts, count_classes(first), names);
    if (!uneven.empty()) {
      const bool random = session.experiment->data.splits_randomly();
      out.push_back(uneven + (random ? "" : "; are the samples sorted by class?"));
    }
  }
  if (names.empty() && !session.experiment->data.train->has_tokens()) add(unused_labels(counts));
  add(idle_outputs(session));
  add(channels_first(session));
  add(unseen_border(session));
  return out;
}

}  // namespace dltrain
