// Llama (LlamaConfig), Mistral, Qwen 2 and Qwen 3, which are the architecture `llama` with other
// keys; Mixtral and Qwen 3 with experts, which are the architecture `mixtral`. Their files have a
// tensor for each expert.
#include <fmt/format.h>

#include "nn/huggingface/families.h"

namespace dltrain {
namespace {

constexpr std::string_view kLlamaPrefix = "model.";

constexpr NumberRange kTheta{"a number above 1", 1};
constexpr NumberRange kFactor{"a number of at least 1", -kNoBound, 1};
constexpr NumberRange kCoefficient{"a number of at least 0", -kNoBound, 0};
constexpr NumberRange kPositive{"a number above 0", 0};

// Reads rope_theta and rope_scaling, which transformers 5 writes as one map rope_parameters. A
// rope_scaling that is not empty replaces that map, including its theta.
void read_rope(ConfigJson& config, HuggingFaceModel& model) {
  const bool older_map = config.size("rope_scaling") > 0;
  const char* key =
      config.has("rope_parameters") && !older_map ? "rope_parameters" : "rope_scaling";
  double theta = config.number("rope_theta", 10000, kTheta);
  ConfigJson rope = config.map(key);
  if (older_map && config.has("rope_parameters")) {
    const double other = config.map("rope_parameters").number("rope_theta", theta, kTheta);
    if (!rope.has("rope_theta") && other != theta) {
      config.add_error(
          fmt::format("rope_parameters.rope_theta: {} has no effect, because rope_scaling is given "
                      "too; keep one of the two maps",
                      other));
    }
  }
  config.ignore({"rope_scaling", "rope_parameters"});
  theta = rope.number("rope_theta", theta, kTheta);
  const std::string older = rope.text("type", "default");
  const std::string kind = rope.text("rope_type", older);
  HuggingFaceModel scaling{.type = {}, .arguments = ConfigNode::make_map(model.arguments.location)};
  if (kind == "linear" || kind == "llama3") {
    scaling.set_text("type", kind);
    scaling.set_number("factor", rope.number("factor", 1, kFactor));
  } else if (kind == "default") {
    scaling.set_text("type", "none");
  } else {
    // The other keys belong to that type.
    return config.add_error(
        fmt::format("{}: the type '{}' is not supported (default, linear, llama3 are)", key, kind));
  }
  if (kind == "llama3") {
    scaling.set_number("low_freq_factor", rope.number("low_freq_factor", 1, kPositive));
    scaling.set_number("high_freq_factor", rope.number("high_freq_factor", 4, kPositive));
    scaling.set_integer("original_max_positions",
                        rope.required_integer("original_max_position_embeddings"));
  }
  rope.only("partial_rotary_factor", 1.0);
  config.adopt(std::move(rope));
  model.set_number("rope_theta", theta);
  model.set("rope_scaling", scaling.arguments);
}

// Reads Qwen's sliding window, used by layers from max_window_layers on or by those in layer_types.
// Only all layers or none are supported.
void read_window(ConfigJson& config, HuggingFaceModel& model, int64_t layers) {
  const bool used = config.boolean("use_sliding_window", false);
  const int64_t window = config.has("sliding_window") ? config.integer("sliding_window", 1) : 0;
  config.ignore({"sliding_window", "max_window_layers"});
  int64_t sliding = 0;
  const std::vector<std::string> types = config.texts("layer_types");
  if (!types.empty()) {
    for (const std::string& type : types) {
      if (type == "sliding_attention") ++sliding;
      if (type != "sliding_attention" && type != "full_attention") {
        config.add_error(fmt::format("layer_types: '{}' is not supported", type));
      }
    }
    if (static_cast<int64_t>(types.size()) != layers) {
      config.add_error(
          fmt::format("layer_types has {} entries, there are {} layers", types.size(), layers));
    }
  } else if (used && window > 0) {
    // 0 is a value of this key, so it is no `integer`.
    const double first = config.number("max_window_layers", 28);
    sliding = std::max<int64_t>(0, layers - static_cast<int64_t>(std::min(first, 1e9)));
  }
  if (sliding != 0 && sliding != layers) {
    config.add_error(
        fmt::format("{} of {} layers have a sliding window; only all or none of them are supported",
                    sliding, layers));
  }
  model.set_integer("sliding_window", sliding != 0 && used ? window : 0);
}

void read_common(ConfigJson& config, HuggingFaceModel& model) {
  if (model.type.empty()) model.type = "llama";
  model.vocab_size = config.required_integer("vocab_size");
  const int64_t hidden = config.required_integer("hidden_size");
  const int64_t layers = config.required_integer("num_hidden_layers", kMaxLayers);
  const int64_t heads = config.required_integer("num_attention_heads");
  model.set_integer("hidden_size", hidden);
  model.set_integer("num_layers", layers);
  model.set_integer("num_heads", heads);
  const int64_t kv_heads = config.integer("num_key_value_heads", heads);
  config.must_divide("num_key_value_heads", kv_heads, "num_attention_heads", heads);
  if (!config.has("head_dim")) {
    config.must_divide("num_attention_heads", heads, "hidden_size", hidden);
  }
  model.set_integer("num_kv_heads", kv_heads);
  model.set_integer("intermediate_size", config.required_integer("intermediate_size"));
  model.set_integer("max_positions", config.integer("max_position_embeddings", 2048));
  model.set_number("epsilon", config.number("rms_norm_eps", 1e-6, kEpsilon));
  model.set_number("attention_dropout", config.number("attention_dropout", 0, kDropout));
  model.set_activation(config, "hidden_act", "silu");
  model.set_boolean("tie_word_embeddings", config.boolean("tie_word_embeddings", false));
  read_rope(config, model);
  config.ignore({"pad_token_id"});
}

void set_head_dim(ConfigJson& config, HuggingFaceModel& model, int64_t absent) {
  if (config.has("head_dim") || absent > 0) {
    model.set_integer("head_dim", config.integer("head_dim", absent));
  }
  config.ignore({"head_dim"});
}

void read_llama(ConfigJson& config, HuggingFaceModel& model) {
  read_common(config, model);
  set_head_dim(config, model, 0);
  const bool bias = config.boolean("attention_bias", false);
  model.set_boolean("attention_bias", bias);
  model.set_boolean("attention_output_bias", bias);
  model.set_boolean("mlp_bias", config.boolean("mlp_bias", false));
  config.only("rope_interleaved", false);
  // pretraining_tp splits a product and does not change it.
  config.ignore({"pretraining_tp", "is_llama_config"});
}

// `absent` is the window of a file without the key; null: none.
void read_mistral_window(ConfigJson& config, HuggingFaceModel& model, int64_t absent) {
  const int64_t window =
      config.is_null("sliding_window") ? 0 : config.integer("sliding_window", absent);
  model.set_integer("sliding_window", window);
  config.ignore({"sliding_window"});
}

void read_mistral(ConfigJson& config, HuggingFaceModel& model) {
  read_common(config, model);
  set_head_dim(config, model, 0);
  read_mistral_window(config, model, 4096);
}

void read_qwen2(ConfigJson& config, HuggingFaceModel& model) {
  read_common(config, model);
  set_head_dim(config, model, 0);
  model.set_boolean("attention_bias", true);
  config.only("use_mrope", false);
  read_window(config, model, config.integer("num_hidden_layers", 1));
}

constexpr double kAuxiliaryLoss = 0.001;  // the default of transformers

// The keys of both families with experts.
void read_experts(ConfigJson& config, HuggingFaceModel& model, int64_t experts, int64_t choices) {
  if (model.type.empty()) model.type = "mixtral";
  read_common(config, model);
  // The attribute has two names in transformers.
  const int64_t count = config.integer("num_experts", config.integer("num_local_experts", experts));
  model.set_integer("num_experts", count);
  model.set_integer("experts_per_token", config.integer("num_experts_per_tok", choices, count));
  // Without output_router_logits training in transformers does not balance the experts.
  const double balance = config.number("router_aux_loss_coef", kAuxiliaryLoss, kCoefficient);
  model.set_number("balance_loss", config.boolean("output_router_logits", false) ? balance : 0);
}

void read_mixtral(ConfigJson& config, HuggingFaceModel& model) {
  read_experts(config, model, 8, 2);
  set_head_dim(config, model, 0);
  read_mistral_window(config, model, 0);
  config.only("router_jitter_noise", 0.0);
}

void read_qwen3(ConfigJson& config, HuggingFaceModel& model) {
  read_common(config, model);
  set_head_dim(config, model, 128);
  const bool bias = config.boolean("attention_bias", false);
  model.set_boolean("attention_bias", bias);
  model.set_boolean("attention_output_bias", bias);
  read_window(config, model, config.integer("num_hidden_layers", 1));
  HuggingFaceModel norm{.type = {}, .arguments = ConfigNode::make_map(model.arguments.location)};
  norm.set_text("type", "rms_norm");
  norm.set_number("epsilon", config.number("rms_norm_eps", 1e-6, kEpsilon));
  norm.set_text("name", ".");
  model.set("head_norm", norm.arguments);
}

void read_qwen3_moe(ConfigJson& config, HuggingFaceModel& model) {
  if (model.type.empty()) model.type = "mixtral";
  read_qwen3(config, model);
  read_experts(config, model, 128, 8);
  // intermediate_size is that of layers without experts, of which there are none.
  model.set_integer("intermediate_size", config.integer("moe_intermediate_size", 768));
  model.set_boolean("normalize_top_k", config.boolean("norm_topk_prob", false));
  config.only("decoder_sparse_step", 1);
  config.only("mlp_only_layers", nlohmann::json::array());
}

// Files of the model without head have no prefix.
TensorName tensor_llama(std::string_view name) {
  std::string out(name);
  for (const char* bare : {"layers.", "embed_tokens.", "norm."}) {
    if (name.starts_with(bare)) out = std::string(kLlamaPrefix) + out;
  }
  return {out, name == "lm_head.weight" || name.ends_with("rotary_emb.inv_freq")};
}

// The names of an expert's weights in memory and in files of Mixtral.
constexpr std::pair<std::string_view, std::string_view> kMixtralNames[] = {
    {"gate_proj", "w1"}, {"down_proj", "w2"}, {"up_proj", "w3"}};

// Replaces the first `from` by `to`; returns whether there is one.
bool replace_part(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return at != std::string::npos;
}

// "….experts.3.up_proj.weight" is the part 3 of a stacked tensor: "….experts.up_proj.weight[3]".
TensorName tensor_qwen3_moe(std::string_view name) {
  TensorName out = tensor_llama(name);
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = out.name.find(kExperts);
  if (at == std::string::npos) return out;
  const size_t begin = at + kExperts.size(), end = out.name.find('.', begin);
  const std::string number = out.name.substr(begin, end - begin);
  const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
  if (end == std::string::npos || number.empty() || !digits) return out;
  out.name.erase(begin, number.size() + 1);
  out.name += fmt::format("[{}]", number);
  return out;
}

TensorName tensor_mixtral(std::string_view name) {
  TensorName out = tensor_qwen3_moe(name);
  if (!replace_part(out.name, ".block_sparse_moe.", ".mlp.")) return out;
  for (const auto& [memory, file] : kMixtralNames) {
    if (replace_part(out.name, fmt::format(".experts.{}.", file),
                     fmt::format(".experts.{}.", memory))) {
      break;
    }
  }
  return out;
}

std::string exported_qwen3_moe(std::string_view name) {
  std::string out(name);
  const size_t part = out.find('[');
  if (part == std::string::npos) return out;
  const std::string number = out.substr(part + 1, out.size() - part - 2);
  out.resize(part);
  replace_part(out, ".experts.", fmt::format(".experts.{}.", number));
  return out;
}

std::string exported_mixtral(std::string_view name) {
  std::string out = exported_qwen3_moe(name);
  if (!replace_part(out, ".mlp.", ".block_sparse_moe.")) return out;
  for (const auto& [memory, file] : kMixtralNames) replace_part(out, memory, file);
  return out;
}

nlohmann::ordered_json rope_json(const ConfigNode* rotary) {
  const ConfigNode* scaling = rotary != nullptr ? rotary->find("scaling") : nullptr;
  const ConfigNode* type = scaling != nullptr ? scaling->find("type") : nullptr;
  if (type == nullptr || type->text == "none") return nullptr;
  nlohmann::ordered_json out{{"rope_type", type->text}, {"factor", number_of(scaling, "factor")}};
  if (type->text == "llama3") {
    out["low_freq_factor"] = number_of(scaling, "low_freq_factor");
    out["high_freq_factor"] = number_of(scaling, "high_freq_factor");
    out["original_max_position_embeddings"] = integer_of(scaling, "original_max_positions");
  }
  return out;
}

bool has_bias(const ConfigNode& layers, std::string_view name) {
  return find_layer(layers, {{"type", "linear"}, {"name", name}, {"bias", "true"}}) != nullptr;
}

// Proposes the common keys of the family; nothing for other layers.
std::optional<nlohmann::ordered_json> propose_common(const ConfigNode& layers, int64_t vocab_size) {
  const ConfigNode* tokens = find_layer(layers, {{"name", "model.embed_tokens"}});
  const ConfigNode* attention = find_layer(layers, {{"type", "attention"}});
  const ConfigNode* rotary = find_layer(layers, {{"type", "rotary_positions"}});
  if (tokens == nullptr || attention == nullptr || rotary == nullptr) return {};
  const int64_t heads = integer_of(attention, "num_heads");
  const int64_t width = integer_of(find_layer(layers, {{"name", "q_proj"}}), "out_features");
  nlohmann::ordered_json out{
      {"vocab_size", vocab_size},
      {"hidden_size", integer_of(tokens, "embedding_dim")},
      {"intermediate_size",
       integer_of(find_layer(layers, {{"name", "gate_proj"}}), "out_features")},
      {"num_hidden_layers", integer_of(find_layer(layers, {{"name", "model.layers"}}), "times")},
      {"num_attention_heads", heads},
      {"num_key_value_heads", integer_of(attention, "num_kv_heads")},
      {"head_dim", heads > 0 ? width / heads : 0},
      {"max_position_embeddings", integer_of(rotary, "max_positions")},
      {"rms_norm_eps", number_of(find_layer(layers, {{"name", "model.norm"}}), "epsilon")},
      {"rope_theta", number_of(rotary, "theta")},
      {"rope_scaling", rope_json(rotary)},
      {"attention_dropout", number_of(attention, "dropout")},
      {"tie_word_embeddings",
       find_layer(layers, {{"type", "lm_head"}, {"share", "model.embed_tokens"}}) != nullptr}};
  const ConfigNode* gate = layer_after(layers, "gate_proj");
  const ConfigNode* inside = gate != nullptr ? gate->find("layers") : nullptr;
  out["hidden_act"] =
      activation_name(inside != nullptr && !inside->items.empty() ? inside->items.data() : nullptr);
  return out;
}

std::optional<nlohmann::ordered_json> named(std::optional<nlohmann::ordered_json> json,
                                            const char* model_type, const char* architecture) {
  if (json) {
    (*json)["model_type"] = model_type;
    (*json)["architectures"] = nlohmann::ordered_json::array({architecture});
  }
  return json;
}

std::optional<nlohmann::ordered_json> propose_llama(const ConfigNode& layers, int64_t vocab_size) {
  auto out = named(propose_common(layers, vocab_size), "llama", "LlamaForCausalLM");
  if (!out) return {};
  (*out)["attention_bias"] = has_bias(layers, "q_proj");
  (*out)["mlp_bias"] = has_bias(layers, "gate_proj");
  return out;
}

void put_mistral_window(const ConfigNode& layers, nlohmann::ordered_json& out) {
  const int64_t window = integer_of(find_layer(layers, {{"type", "attention"}}), "sliding_window");
  out["sliding_window"] = window > 0 ? nlohmann::ordered_json(window) : nullptr;
}

std::optional<nlohmann::ordered_json> propose_mistral(const ConfigNode& layers,
                                                      int64_t vocab_size) {
  auto out = named(propose_common(layers, vocab_size), "mistral", "MistralForCausalLM");
  if (out) put_mistral_window(layers, *out);
  return out;
}

void put_window(const ConfigNode& layers, nlohmann::ordered_json& out) {
  const int64_t window = integer_of(find_layer(layers, {{"type", "attention"}}), "sliding_window");
  out["use_sliding_window"] = window > 0;
  if (window == 0) return;
  out["sliding_window"] = window;
  out["max_window_layers"] = 0;
}

std::optional<nlohmann::ordered_json> propose_qwen2(const ConfigNode& layers, int64_t vocab_size) {
  auto out = named(propose_common(layers, vocab_size), "qwen2", "Qwen2ForCausalLM");
  if (out) put_window(layers, *out);
  return out;
}

std::optional<nlohmann::ordered_json> propose_qwen3(const ConfigNode& layers, int64_t vocab_size) {
  auto out = named(propose_common(layers, vocab_size), "qwen3", "Qwen3ForCausalLM");
  if (!out) return {};
  put_window(layers, *out);
  (*out)["attention_bias"] = has_bias(layers, "q_proj");
  return out;
}

// Replaces the keys of the hidden layer by those of the experts; nothing for layers without
// experts.
std::optional<nlohmann::ordered_json> propose_experts(const ConfigNode& layers, int64_t vocab_size,
                                                      const char* model_type,
                                                      const char* architecture) {
  const ConfigNode* moe = find_layer(layers, {{"type", "moe"}});
  auto out = moe != nullptr ? named(propose_common(layers, vocab_size), model_type, architecture)
                            : std::nullopt;
  if (!out) return {};
  (*out)["intermediate_size"] = integer_of(moe, "intermediate_size");
  (*out)["hidden_act"] = activation_name(moe->find("activation"));
  (*out)["num_experts_per_tok"] = integer_of(moe, "experts_per_token");
  const double balance = number_of(moe, "balance_loss");
  (*out)["output_router_logits"] = balance > 0;
  (*out)["router_aux_loss_coef"] = balance > 0 ? balance : kAuxiliaryLoss;
  // Both names of one attribute: files of the hub have either.
  (*out)["num_local_experts"] = integer_of(moe, "num_experts");
  return out;
}

std::optional<nlohmann::ordered_json> propose_mixtral(const ConfigNode& layers,
                                                      int64_t vocab_size) {
  auto out = propose_experts(layers, vocab_size, "mixtral", "MixtralForCausalLM");
  if (!out) return {};
  (*out)["router_jitter_noise"] = 0.0;
  put_mistral_window(layers, *out);
  return out;
}

std::optional<nlohmann::ordered_json> propose_qwen3_moe(const ConfigNode& layers,
                                                        int64_t vocab_size) {
  auto out = propose_experts(layers, vocab_size, "qwen3_moe", "Qwen3MoeForCausalLM");
  if (!out) return {};
  (*out)["num_experts"] = (*out)["num_local_experts"];
  (*out)["decoder_sparse_step"] = 1;
  (*out)["mlp_only_layers"] = nlohmann::ordered_json::array();
  (*out)["moe_intermediate_size"] = (*out)["intermediate_size"];
  (*out)["norm_topk_prob"] =
      find_layer(layers, {{"type", "moe"}, {"normalize_top_k", "true"}}) != nullptr;
  (*out)["attention_bias"] = has_bias(layers, "q_proj");
  put_window(layers, *out);
  return out;
}

int64_t parts_of_experts(std::string_view name) {
  return name.find(".mlp.experts.") != std::string_view::npos ? kEachIndex : 1;
}

}  // namespace

HuggingFaceFamily llama_family() {
  return {"llama", read_llama, tensor_llama, propose_llama};
}
HuggingFaceFamily mistral_family() {
  return {"mistral", read_mistral, tensor_llama, propose_mistral};
}
HuggingFaceFamily qwen2_family() {
  return {"qwen2", read_qwen2, tensor_llama, propose_qwen2};
}
HuggingFaceFamily qwen3_family() {
  return {"qwen3", read_qwen3, tensor_llama, propose_qwen3};
}
HuggingFaceFamily mixtral_family() {
  return {.model_type = "mixtral",
          .read = read_mixtral,
          .tensor = tensor_mixtral,
          .propose = propose_mixtral,
          .exported = exported_mixtral,
          .parts = parts_of_experts};
}
HuggingFaceFamily qwen3_moe_family() {
  return {.model_type = "qwen3_moe",
          .read = read_qwen3_moe,
          .tensor = tensor_qwen3_moe,
          .propose = propose_qwen3_moe,
          .exported = exported_qwen3_moe,
          .parts = parts_of_experts};
}

}  // namespace dltrain
