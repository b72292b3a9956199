// ResNet and ViT of transformers (ResNetForImageClassification, ViTForImageClassification) and of
// timm. In memory they have torchvision's names; a ViT keeps queries, keys and values in one
// tensor, as timm does, where transformers has three.
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/parse_number.h"
#include "nn/huggingface/families.h"

namespace dltrain {
namespace {

// The beginnings of names in files and in memory.
struct VisionNames {
  std::string_view file, memory;
};
using NameSide = std::string_view VisionNames::*;

// Replaces the beginning of `name` by that of the other side; empty if no row has it.
std::string replaced(std::string_view name, std::span<const VisionNames> rows, NameSide from,
                     NameSide to) {
  for (const VisionNames& row : rows) {
    if (!name.starts_with(row.*from)) continue;
    return std::string(row.*to) + std::string(name.substr((row.*from).size()));
  }
  return "";
}

// The names of a model: those outside of its blocks, the blocks, and those within a block after its
// number.
struct VisionTable {
  std::span<const VisionNames> outside, blocks, within;

  std::string renamed(std::string_view name, NameSide from, NameSide to) const {
    for (const VisionNames& block : blocks) {
      if (!name.starts_with(block.*from)) continue;
      const size_t dot = name.find('.', (block.*from).size());
      if (dot == std::string_view::npos) break;
      const std::string rest = replaced(name.substr(dot + 1), within, from, to);
      const std::string_view number = name.substr(0, dot + 1).substr((block.*from).size());
      if (!rest.empty()) return fmt::format("{}{}{}", block.*to, number, rest);
    }
    const std::string out = replaced(name, outside, from, to);
    return out.empty() ? std::string(name) : out;
  }
  std::string in_memory(std::string_view name) const {
    return renamed(name, &VisionNames::file, &VisionNames::memory);
  }
  std::string in_file(std::string_view name) const {
    return renamed(name, &VisionNames::memory, &VisionNames::file);
  }
};

constexpr VisionNames kResNetOutside[] = {{"resnet.embedder.embedder.convolution.", "conv1."},
                                          {"resnet.embedder.embedder.normalization.", "bn1."},
                                          {"classifier.1.", "fc."}};
constexpr VisionNames kResNetStages[] = {{"resnet.encoder.stages.0.layers.", "layer1."},
                                         {"resnet.encoder.stages.1.layers.", "layer2."},
                                         {"resnet.encoder.stages.2.layers.", "layer3."},
                                         {"resnet.encoder.stages.3.layers.", "layer4."}};
constexpr VisionNames kResNetWithin[] = {
    {"shortcut.convolution.", "downsample.0."}, {"shortcut.normalization.", "downsample.1."},
    {"layer.0.convolution.", "conv1."},         {"layer.0.normalization.", "bn1."},
    {"layer.1.convolution.", "conv2."},         {"layer.1.normalization.", "bn2."},
    {"layer.2.convolution.", "conv3."},         {"layer.2.normalization.", "bn3."}};
constexpr VisionTable kResNetTable{kResNetOutside, kResNetStages, kResNetWithin};

constexpr std::string_view kViTBlock = "encoder.layers.encoder_layer_";
constexpr VisionNames kViTOutside[] = {
    {"vit.embeddings.cls_token", "class_token"},
    {"vit.embeddings.position_embeddings", "encoder.pos_embedding"},
    {"vit.embeddings.patch_embeddings.projection.", "conv_proj."},
    {"vit.layernorm.", "encoder.ln."},
    {"classifier.", "heads.head."}};
constexpr VisionNames kViTBlocks[] = {{"vit.encoder.layer.", kViTBlock}};
constexpr VisionNames kViTWithin[] = {
    {"layernorm_before.", "ln_1."},
    {"layernorm_after.", "ln_2."},
    {"attention.attention.query.weight", "self_attention.in_proj_weight[0]"},
    {"attention.attention.key.weight", "self_attention.in_proj_weight[1]"},
    {"attention.attention.value.weight", "self_attention.in_proj_weight[2]"},
    {"attention.attention.query.bias", "self_attention.in_proj_bias[0]"},
    {"attention.attention.key.bias", "self_attention.in_proj_bias[1]"},
    {"attention.attention.value.bias", "self_attention.in_proj_bias[2]"},
    {"attention.output.dense.", "self_attention.out_proj."},
    {"intermediate.dense.", "mlp.0."},
    {"output.dense.", "mlp.3."}};
constexpr VisionTable kViTTable{kViTOutside, kViTBlocks, kViTWithin};

// timm's ResNets have torchvision's names.
constexpr VisionNames kTimmOutside[] = {{"cls_token", "class_token"},
                                        {"pos_embed", "encoder.pos_embedding"},
                                        {"patch_embed.proj.", "conv_proj."},
                                        {"norm.", "encoder.ln."},
                                        {"head.", "heads.head."}};
constexpr VisionNames kTimmBlocks[] = {{"blocks.", kViTBlock}};
constexpr VisionNames kTimmWithin[] = {{"norm1.", "ln_1."},
                                       {"norm2.", "ln_2."},
                                       {"attn.qkv.weight", "self_attention.in_proj_weight"},
                                       {"attn.qkv.bias", "self_attention.in_proj_bias"},
                                       {"attn.proj.", "self_attention.out_proj."},
                                       {"mlp.fc1.", "mlp.0."},
                                       {"mlp.fc2.", "mlp.3."}};
constexpr VisionTable kTimmTable{kTimmOutside, kTimmBlocks, kTimmWithin};

// The ResNets with an architecture here, whose names are those of timm too.
struct ResNetKind {
  std::string_view type;
  bool bottleneck;
  std::vector<int64_t> depths;
};
const std::vector<ResNetKind>& resnet_kinds() {
  static const std::vector<ResNetKind> kinds{{"resnet18", false, {2, 2, 2, 2}},
                                             {"resnet34", false, {3, 4, 6, 3}},
                                             {"resnet50", true, {3, 4, 6, 3}},
                                             {"resnet101", true, {3, 4, 23, 3}},
                                             {"resnet152", true, {3, 8, 36, 3}}};
  return kinds;
}

// Returns the widths of the stages' outputs.
std::vector<int64_t> resnet_widths(int64_t width, bool bottleneck) {
  const int64_t first = bottleneck ? 4 * width : width;
  return {first, 2 * first, 4 * first, 8 * first};
}

void read_resnet(ConfigJson& config, HuggingFaceModel& model) {
  const std::string layer = config.text("layer_type", "bottleneck");
  const std::vector<int64_t> depths = config.integers("depths", {3, 4, 6, 3});
  for (const ResNetKind& kind : resnet_kinds()) {
    const bool fits = kind.depths == depths && layer == (kind.bottleneck ? "bottleneck" : "basic");
    if (fits && model.type.empty()) model.type = kind.type;
  }
  if (model.type.empty()) {
    config.add_error(fmt::format(
        "a ResNet of {} blocks with depths [{}] is not supported; those of ResNet-18, 34, 50, 101 "
        "and 152 are",
        layer, fmt::join(depths, ", ")));
  }
  // The bound, which is more than any width in use, keeps the products from overflow.
  const int64_t width = config.integer("embedding_size", 64, 1 << 20);
  model.set_integer("width", width);
  const std::vector<int64_t> expected = resnet_widths(width, layer == "bottleneck");
  if (config.integers("hidden_sizes", {256, 512, 1024, 2048}) != expected) {
    config.add_error(fmt::format("hidden_sizes: only [{}] is supported with embedding_size {}",
                                 fmt::join(expected, ", "), width));
  }
  // Another one would be that of the sums only: transformers has ReLU within the blocks.
  config.only("hidden_act", "relu");
  model.set_classes(config);
  config.only("downsample_in_first_stage", false);
  config.only("downsample_in_bottleneck", false);
  // The number of channels follows from the data. The others belong to feature extractors.
  config.ignore({"num_channels", "out_features", "out_indices", "stage_names"});
}

TensorName tensor_resnet(std::string_view name) {
  std::string out(name);
  for (const char* bare : {"embedder.", "encoder."}) {  // a file of the model without head
    if (name.starts_with(bare)) out = "resnet." + out;
  }
  return {kResNetTable.in_memory(out)};
}

// The kind and size of a ResNet by its layers; null without such layers.
const ResNetKind* resnet_kind(const ConfigNode& layers) {
  const bool bottleneck = find_layer(layers, {{"type", "conv2d"}, {"name", "conv3"}}) != nullptr;
  std::vector<int64_t> depths;
  for (const char* stage : {"layer1", "layer2", "layer3", "layer4"}) {
    const ConfigNode* found = find_layer(layers, {{"name", stage}});
    if (found == nullptr) return nullptr;
    // The first block of a stage, which has a shortcut with a convolution, stands before the
    // others.
    const bool shortcut = bottleneck || !depths.empty();
    depths.push_back(integer_of(find_layer(*found, {{"type", "repeat"}}), "times") + shortcut);
  }
  for (const ResNetKind& kind : resnet_kinds()) {
    if (kind.bottleneck == bottleneck && kind.depths == depths) return &kind;
  }
  return nullptr;
}

std::optional<nlohmann::ordered_json> propose_resnet(const ConfigNode& layers, int64_t) {
  const ResNetKind* kind = resnet_kind(layers);
  const ConfigNode* stem = find_layer(layers, {{"type", "conv2d"}, {"name", "conv1"}});
  if (kind == nullptr || stem == nullptr) return {};
  const int64_t width = integer_of(stem, "out_channels");
  nlohmann::ordered_json out{{"architectures", {"ResNetForImageClassification"}},
                             {"model_type", "resnet"},
                             {"embedding_size", width},
                             {"hidden_sizes", resnet_widths(width, kind->bottleneck)},
                             {"depths", kind->depths},
                             {"layer_type", kind->bottleneck ? "bottleneck" : "basic"},
                             {"hidden_act", "relu"},
                             {"downsample_in_first_stage", false},
                             {"downsample_in_bottleneck", false}};
  add_labels(integer_of(find_layer(layers, {{"name", "fc"}}), "out_features"), out);
  return out;
}

void read_vit(ConfigJson& config, HuggingFaceModel& model) {
  if (model.type.empty()) model.type = "vit_b_16";
  const int64_t hidden = config.integer("hidden_size", 768);
  const int64_t heads = config.integer("num_attention_heads", 12);
  config.must_divide("num_attention_heads", heads, "hidden_size", hidden);
  model.set_integer("patch_size", config.integer("patch_size", 16));
  model.set_integer("hidden_size", hidden);
  model.set_integer("num_layers", config.integer("num_hidden_layers", 12, kMaxLayers));
  model.set_integer("num_heads", heads);
  model.set_integer("intermediate_size", config.integer("intermediate_size", 3072));
  model.set_number("epsilon", config.number("layer_norm_eps", 1e-12, kEpsilon));
  // In training the hidden values of the MLP are dropped too, as torchvision does.
  model.set_number("dropout", config.number("hidden_dropout_prob", 0, kDropout));
  model.set_number("attention_dropout", config.number("attention_probs_dropout_prob", 0, kDropout));
  model.set_activation(config, "hidden_act", "gelu");
  model.set_classes(config);
  config.only("qkv_bias", true);
  // Size and channels follow from the data; the stride belongs to masked image modelling, and the
  // pooler to the model without head.
  config.ignore(
      {"image_size", "num_channels", "encoder_stride", "pooler_output_size", "pooler_act"});
}

TensorName tensor_vit(std::string_view name) {
  std::string out(name);
  for (const char* bare : {"embeddings.", "encoder.", "layernorm.", "pooler."}) {
    if (name.starts_with(bare)) out = "vit." + out;
  }
  return {kViTTable.in_memory(out), out.starts_with("vit.pooler.")};
}

int64_t vit_parts(std::string_view name) {
  return name.ends_with(".in_proj_weight") || name.ends_with(".in_proj_bias") ? 3 : 1;
}

std::optional<nlohmann::ordered_json> propose_vit(const ConfigNode& layers, int64_t) {
  const auto named = [&](std::string_view name) { return find_layer(layers, {{"name", name}}); };
  const ConfigNode* patches = named("conv_proj");
  const ConfigNode* heads = find_layer(layers, {{"type", "multi_head_attention"}});
  const ConfigNode* mlp = named("mlp");
  if (patches == nullptr || heads == nullptr || mlp == nullptr) return {};
  const ConfigNode* inner = find_layer(*mlp, {{"type", "linear"}});
  const ConfigNode* inside = mlp->find("layers");
  nlohmann::ordered_json out{
      {"architectures", {"ViTForImageClassification"}},
      {"model_type", "vit"},
      {"patch_size", integer_of(patches, "kernel_size")},
      {"hidden_size", integer_of(patches, "out_channels")},
      {"num_hidden_layers", integer_of(find_layer(layers, {{"type", "repeat"}}), "times")},
      {"num_attention_heads", integer_of(heads, "num_heads")},
      {"intermediate_size", integer_of(inner, "out_features")},
      {"hidden_act",
       activation_name(inside != nullptr && inside->is_list() && inside->items.size() > 1
                           ? &inside->items[1]
                           : nullptr)},
      {"hidden_dropout_prob", number_of(layer_after(layers, "self_attention"), "rate")},
      {"attention_probs_dropout_prob", number_of(heads, "dropout")},
      {"layer_norm_eps", number_of(named("ln"), "epsilon")},
      {"qkv_bias", true}};
  add_labels(integer_of(named("heads.head"), "out_features"), out);
  return out;
}

// timm's name of a ViT has its size, its patches and the size of its images, such as
// vit_tiny_patch16_224.
struct TimmViT {
  std::string_view size;
  int64_t hidden, layers, heads;
};
constexpr TimmViT kTimmViTs[] = {
    {"tiny", 192, 12, 3}, {"small", 384, 12, 6}, {"base", 768, 12, 12}, {"large", 1024, 24, 16}};

// Reads the sizes of a ViT; false for another architecture.
bool read_timm_vit(std::string_view name, ConfigJson& arguments, HuggingFaceModel& model) {
  for (const TimmViT& row : kTimmViTs) {
    const std::string prefix = fmt::format("vit_{}_patch", row.size);
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    const size_t line = rest.find('_');
    if (line == std::string_view::npos) return false;
    const auto patch = parse_number<int64_t>(rest.substr(0, line));
    const auto image = parse_number<int64_t>(rest.substr(line + 1));
    if (patch < 1 || image < 1) return false;
    if (model.type.empty()) model.type = "vit_b_16";
    const int64_t hidden = arguments.integer("embed_dim", row.hidden, 1 << 24);
    const int64_t heads = arguments.integer("num_heads", row.heads);
    arguments.must_divide("num_heads", heads, "embed_dim", hidden);
    model.set_integer("patch_size", arguments.integer("patch_size", *patch));
    model.set_integer("hidden_size", hidden);
    model.set_integer("num_layers", arguments.integer("depth", row.layers, kMaxLayers));
    model.set_integer("num_heads", heads);
    const double ratio =
        arguments.number("mlp_ratio", 4, {"a number from 0.01 to 100", 0, 0.01, 101});
    model.set_integer(
        "intermediate_size",
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(hidden) * ratio)));
    model.set_number("epsilon", 1e-6);
    model.set_text("activation", "gelu");
    arguments.ignore({"img_size"});
    return true;
  }
  return false;
}

void read_timm(ConfigJson& config, HuggingFaceModel& model) {
  const std::string name = config.text("architecture", "");
  ConfigJson arguments = config.map("model_args");
  bool known = read_timm_vit(name, arguments, model);
  for (ConfigJson* keys : {&config, &arguments}) keys->only("global_pool", known ? "token" : "avg");
  arguments.ignore({"num_classes", "in_chans"});  // in the other map; as the data has
  for (const ResNetKind& kind : resnet_kinds()) {
    if (name != kind.type) continue;
    if (model.type.empty()) model.type = name;
    known = true;
  }
  if (!known) {
    config.add_error(fmt::format(
        "the architecture '{}' is not supported; of timm's, resnet18, 34, 50, 101 and 152 are, and "
        "vit_tiny, small, base and large such as vit_tiny_patch16_224",
        name));
  }
  config.adopt(std::move(arguments));
  model.set_integer("num_classes", config.integer("num_classes", 1000));
  model.class_names = config.texts("label_names");
  config.ignore({"num_features", "pretrained_cfg", "label_descriptions", "license"});
}

std::optional<nlohmann::ordered_json> propose_timm(const ConfigNode& layers, int64_t) {
  if (const ResNetKind* kind = resnet_kind(layers)) {
    const int64_t features = resnet_widths(64, kind->bottleneck).back();
    return nlohmann::ordered_json{
        {"architecture", kind->type},
        {"num_classes", integer_of(find_layer(layers, {{"name", "fc"}}), "out_features")},
        {"num_features", features},
        {"global_pool", "avg"}};
  }
  const auto vit = propose_vit(layers, 0);
  if (!vit) return {};
  const int64_t hidden = (*vit)["hidden_size"], depth = (*vit)["num_hidden_layers"];
  const int64_t heads = (*vit)["num_attention_heads"], patch = (*vit)["patch_size"];
  const int64_t inner = (*vit)["intermediate_size"];
  const auto width = static_cast<double>(std::max<int64_t>(1, hidden));
  double ratio = static_cast<double>(inner) / width;
  // timm rounds the product down.
  if (static_cast<int64_t>(width * ratio) < inner) ratio = std::nextafter(ratio, 1e9);
  // The arguments replace what the name says.
  std::string_view size = "base";
  for (const TimmViT& row : kTimmViTs) {
    if (row.hidden == hidden && row.layers == depth) size = row.size;
  }
  return nlohmann::ordered_json{
      {"architecture", fmt::format("vit_{}_patch16_224", size)},
      {"num_classes", integer_of(find_layer(layers, {{"name", "heads.head"}}), "out_features")},
      {"num_features", hidden},
      {"global_pool", "token"},
      {"model_args",
       {{"patch_size", patch},
        {"embed_dim", hidden},
        {"depth", depth},
        {"num_heads", heads},
        {"mlp_ratio", ratio}}}};
}

}  // namespace

HuggingFaceFamily resnet_family() {
  return {.model_type = "resnet",
          .read = read_resnet,
          .tensor = tensor_resnet,
          .propose = propose_resnet,
          .exported = [](std::string_view name) { return kResNetTable.in_file(name); },
          .images = true};
}

HuggingFaceFamily vit_family() {
  return {.model_type = "vit",
          .read = read_vit,
          .tensor = tensor_vit,
          .propose = propose_vit,
          .exported = [](std::string_view name) { return kViTTable.in_file(name); },
          .images = true,
          .parts = vit_parts};
}

HuggingFaceFamily timm_family() {
  return {.model_type = kTimm,
          .read = read_timm,
          .tensor = [](std::string_view name) { return TensorName{kTimmTable.in_memory(name)}; },
          .propose = propose_timm,
          .exported = [](std::string_view name) { return kTimmTable.in_file(name); },
          .images = true};
}

}  // namespace dltrain
