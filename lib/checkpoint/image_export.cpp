#include "checkpoint/image_export.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "data/image_config.h"
#include "nn/huggingface/folder.h"

namespace dltrain {
namespace {

constexpr std::string_view kImagePositions = "encoder.pos_embedding";

// Returns the side of the images of a ViT with these positions, one more than it has patches.
int64_t side_of(const Shape& positions, int64_t patch) {
  const int64_t patches = positions.rank() == 3 ? positions[1] - 1 : 0;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(patches))));
  if (side < 1 || side * side != patches) {
    fail(ExitCode::usage, "the model has {} patches, which are not those of a square image",
         patches);
  }
  return side * patch;
}

// Returns the map of config.json with the arguments of the model.
const nlohmann::ordered_json& arguments_of(const nlohmann::ordered_json& config) {
  return config.contains("model_args") ? config.at("model_args") : config;
}

nlohmann::ordered_json timm_input(const ImageInput& input, const nlohmann::ordered_json& config) {
  const bool vit = config.contains("model_args");
  const auto shorter = static_cast<double>(std::min(input.height, input.width));
  const auto numbers = [](const std::vector<double>& given, double none) {
    return given.empty() ? std::vector<double>{none, none, none} : given;
  };
  return {{"input_size", {3, input.height, input.width}},
          {"fixed_input_size", vit},
          {"interpolation", "bilinear"},
          {"crop_pct", input.resize > 0 ? shorter / static_cast<double>(input.resize) : 1.0},
          {"mean", numbers(input.mean, 0)},
          {"std", numbers(input.std, 1)},
          {"num_classes", config.at("num_classes")},
          {"first_conv", vit ? "patch_embed.proj" : "conv1"},
          {"classifier", vit ? "head" : "fc"}};
}

nlohmann::ordered_json transformers_input(const ImageInput& input) {
  constexpr int kBilinear = 2;
  nlohmann::ordered_json out{{"image_processor_type", "ViTImageProcessor"},
                             {"do_resize", true},
                             {"size", {{"height", input.height}, {"width", input.width}}},
                             {"resample", kBilinear},
                             {"do_rescale", true},
                             {"rescale_factor", input.scale},
                             {"do_normalize", !input.mean.empty()}};
  if (input.resize > 0) {
    out["image_processor_type"] = "CLIPImageProcessor";
    out["size"] = {{"shortest_edge", input.resize}};
    out["do_center_crop"] = true;
    out["crop_size"] = {{"height", input.height}, {"width", input.width}};
  }
  if (!input.mean.empty()) {
    out["image_mean"] = input.mean;
    out["image_std"] = input.std;
  }
  return out;
}

}  // namespace

std::optional<Shape> image_positions(const std::filesystem::path& folder,
                                     const SafetensorsSet& files) {
  const HuggingFaceFamily* family = huggingface_family_of(folder);
  for (const SafetensorsSet::Tensor& tensor : files.tensors()) {
    const std::string& name = tensor.entry->name;
    if ((family != nullptr ? family->tensor(name).name : name) == kImagePositions) {
      return tensor.entry->spec.shape;
    }
  }
  return {};
}

TensorSpec sample_of(const IdentifiedModel& model, const std::optional<Shape>& positions) {
  constexpr int64_t kTokens = 1, kSide = 224, kColors = 3;
  if (!model.family->images) return {{kTokens}, DType::i32};
  const int64_t side =
      positions ? side_of(*positions, arguments_of(model.config).at("patch_size")) : kSide;
  return {{side, side, kColors}, DType::f32};
}

std::optional<ImageInput> image_input_of(const DataConfig& data, const DataSchema& schema) {
  const bool has_eval = data.eval != nullptr;
  const auto* images =
      dynamic_cast<const ImageConfig*>(has_eval ? data.eval.get() : data.train.get());
  if (images == nullptr) return {};
  const Scaling scaling = images->scaling.options();
  ImageInput out{
      .height = 0, .width = 0, .scale = scaling.scale, .mean = scaling.mean, .std = scaling.std};
  if (images->scaling.fitted()) {
    for (const auto& [input, channels] : schema.channels) {
      for (const Statistics& channel : channels) {
        out.mean.push_back(channel.mean);
        out.std.push_back(channel.std);
      }
    }
  }
  std::vector<std::shared_ptr<const Transform>> transforms;
  for (const auto& transform : images->transforms) transform->add_for_evaluation(transforms);
  // The size that a large image gets shows which length the first transform gives the shorter side.
  ImageSize size{}, large{4096, 8192, 3};
  for (const auto& transform : transforms) {
    size = transform->output(size);
    large = transform->output(large);
    if (!size.fixed() && out.resize == 0) out.resize = std::min(large.height, large.width);
  }
  if (size.fixed()) {
    out.height = size.height;
    out.width = size.width;
  }
  return out;
}

void add_images(const std::optional<ImageInput>& input, const std::vector<OutputTensor>& tensors,
                IdentifiedModel& model, HuggingFaceFolder& out) {
  nlohmann::ordered_json& config = model.config;
  const bool timm = model.family->model_type == kTimm,
             vit = config.contains("model_args") || config.contains("patch_size");
  ImageInput images = input.value_or(ImageInput());
  for (const OutputTensor& tensor : tensors) {
    if (tensor.name == kImagePositions) {
      images.height = images.width = side_of(tensor.shape, arguments_of(config).at("patch_size"));
    } else if (tensor.name == "conv1.weight" || tensor.name == "conv_proj.weight") {
      const int64_t channels = tensor.shape[1];
      if (!timm) config["num_channels"] = channels;
      if (timm && channels != 3) config["model_args"]["in_chans"] = channels;
    }
  }
  if (vit && timm) config["model_args"]["img_size"] = images.height;
  if (vit && !timm) config["image_size"] = images.height;
  if (images.height == 0) images.height = images.width = ImageInput().height;
  if (timm) {
    config["pretrained_cfg"] = timm_input(images, config);
  } else if (input) {
    out.files.push_back(
        {"preprocessor_config.json", json_text(transformers_input(images), 2) + "\n"});
  }
}

}  // namespace dltrain
