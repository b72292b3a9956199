#include "nn/huggingface/image_input.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "config/scalar.h"
#include "nn/huggingface/folder.h"

namespace dltrain {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSide = 16384;

// A file with other values than expected is not understood.
struct NotUnderstood {};

void require(bool fits) {
  if (!fits) throw NotUnderstood();
}

int64_t side(const json& map, const char* key) {
  const auto value = map.at(key).get<int64_t>();
  require(value > 0 && value <= kMaxSide);
  return value;
}

std::vector<double> channel_numbers(const json& map, const char* key) {
  auto out = map.at(key).get<std::vector<double>>();
  const bool fits = std::ranges::all_of(out, [](double x) { return std::isfinite(x) && x >= 0; });
  require(fits && out.size() == 3);
  return out;
}

void set_shorter_side(ImageInput& input, int64_t length, double share) {
  require(share > 0.1 && share <= 1);
  input.resize = static_cast<int64_t>(static_cast<double>(length) / share);
}

ImageInput read_timm_input(const json& config) {
  ImageInput out;
  const json& size = config.at("input_size");  // [channels, height, width]
  out.height = size.at(1).get<int64_t>();
  out.width = size.at(2).get<int64_t>();
  require(std::min(out.height, out.width) > 0 && std::max(out.height, out.width) <= kMaxSide);
  out.mean = channel_numbers(config, "mean");
  out.std = channel_numbers(config, "std");
  set_shorter_side(out, std::min(out.height, out.width), config.value("crop_pct", 0.875));
  return out;
}

ImageInput read_transformers_input(const json& config) {
  ImageInput out;
  if (config.value("do_normalize", true)) {
    out.mean = channel_numbers(config, "image_mean");
    out.std = channel_numbers(config, "image_std");
  }
  out.scale = config.value("do_rescale", true) ? config.value("rescale_factor", out.scale) : 1.0;
  const json& size = config.at("size");
  if (size.is_number()) {
    out.height = out.width = side(config, "size");
  } else if (size.contains("shortest_edge")) {
    out.height = out.width = side(size, "shortest_edge");
    // A model of 384 pixels or more has no margin.
    const double share = out.height < 384 ? config.value("crop_pct", 1.0) : 1.0;
    set_shorter_side(out, out.height, share);
  } else {
    out.height = side(size, "height");
    out.width = side(size, "width");
  }
  if (config.value("do_center_crop", false)) {
    if (out.resize == 0) out.resize = std::min(out.height, out.width);
    const json& crop = config.at("crop_size");
    out.height = crop.is_number() ? side(config, "crop_size") : side(crop, "height");
    out.width = crop.is_number() ? out.height : side(crop, "width");
  }
  return out;
}

}  // namespace

std::string ImageInput::keys(bool transforms) const {
  std::string out = fmt::format("scale: {}\n", number_text(scale));
  const auto texts = [](const std::vector<double>& numbers) {
    std::vector<std::string> list;
    for (double number : numbers) list.push_back(number_text(number));
    return fmt::format("[{}]", fmt::join(list, ", "));
  };
  if (!mean.empty())
    out += fmt::format("normalize: {{mean: {}, std: {}}}\n", texts(mean), texts(std));
  if (transforms && resize > 0) {
    out += fmt::format("transforms: [{{resize: {}}}, {{center_crop: [{}, {}]}}]\n", resize, height,
                       width);
  } else if (transforms) {
    out += fmt::format("transforms: [{{resize: [{}, {}]}}]\n", height, width);
  }
  return out;
}

std::optional<ImageInput> read_image_input(const std::filesystem::path& folder) {
  const json config = read_json_file(folder / "config.json");
  const json processor = read_json_file(folder / "preprocessor_config.json");
  try {
    if (processor.is_object()) return read_transformers_input(processor);
    if (config.contains("pretrained_cfg")) return read_timm_input(config["pretrained_cfg"]);
  } catch (const json::exception&) {  // a key is missing or has another type
  } catch (const NotUnderstood&) {
  }
  return {};
}

ImageInput default_image_input(const std::filesystem::path& folder) {
  ImageInput out;
  const json config = read_config_json(folder);
  const json size = config.is_object() ? config.value("image_size", json()) : json();
  if (size.is_number_integer() && size > 0 && size <= kMaxSide) out.height = out.width = size;
  return out;
}

std::string no_image_input(const std::filesystem::path& folder) {
  const ImageInput none = default_image_input(folder);
  return fmt::format(
      "{} does not say how images are normalized (no preprocessor_config.json that is understood): "
      "they are resized to {} x {} and scaled to 0 to 1",
      folder.string(), none.height, none.width);
}

}  // namespace dltrain
