// GPT-2 (GPT2Config, GPT2LMHeadModel). Names in files of the language model begin with
// "transformer."; those of the model without head, of OpenAI's files and of dltrain do not.
#include "nn/huggingface/families.h"

namespace dltrain {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";

void read_gpt2(ConfigJson& config, HuggingFaceModel& model) {
  if (model.type.empty()) model.type = "gpt2";
  model.vocab_size = config.integer("vocab_size", 50257);
  const int64_t hidden = config.integer("n_embd", 768);
  model.set_integer("hidden_size", hidden);
  model.set_integer("num_layers", config.integer("n_layer", 12, kMaxLayers));
  const int64_t heads = config.integer("n_head", 12);
  config.must_divide("n_head", heads, "n_embd", hidden);
  model.set_integer("num_heads", heads);
  model.set_integer("intermediate_size", config.integer("n_inner", 4 * hidden));
  model.set_integer("max_positions", config.integer("n_positions", 1024));
  model.set_number("dropout", config.number("resid_pdrop", 0.1, kDropout));
  model.set_number("embedding_dropout", config.number("embd_pdrop", 0.1, kDropout));
  model.set_number("attention_dropout", config.number("attn_pdrop", 0.1, kDropout));
  model.set_number("epsilon", config.number("layer_norm_epsilon", 1e-5, kEpsilon));
  model.set_activation(config, "activation_function", "gelu_new");
  model.set_boolean("tie_word_embeddings", config.boolean("tie_word_embeddings", true));
  config.only("scale_attn_weights", true);
  config.only("scale_attn_by_inverse_layer_idx", false);
  // reorder_and_upcast_attn affects 16-bit attention only, and attention here uses f32; summary_*
  // belong to the model with two heads; n_ctx is an old name of n_positions.
  config.ignore({"reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj", "n_ctx",
                 "pad_token_id"});
}

TensorName tensor_gpt2(std::string_view name) {
  if (name.starts_with(kGpt2Prefix)) name.remove_prefix(kGpt2Prefix.size());
  const bool mask =
      name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".masked_bias"));
  return {std::string(name), mask || name == "lm_head.weight"};
}

std::optional<nlohmann::ordered_json> propose_gpt2(const ConfigNode& layers, int64_t vocab_size) {
  const ConfigNode* tokens = find_layer(layers, {{"type", "embedding"}, {"name", "wte"}});
  const ConfigNode* positions = find_layer(layers, {{"name", "wpe"}});
  if (tokens == nullptr || positions == nullptr) return {};
  const ConfigNode* inner = find_layer(layers, {{"type", "linear"}, {"name", "c_fc"}});
  const ConfigNode* heads = find_layer(layers, {{"type", "attention"}});
  const bool tied = find_layer(layers, {{"type", "lm_head"}, {"share", "wte"}}) != nullptr;
  return nlohmann::ordered_json{
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", vocab_size},
      {"n_positions", integer_of(positions, "max_positions")},
      {"n_embd", integer_of(tokens, "embedding_dim")},
      {"n_layer", integer_of(find_layer(layers, {{"type", "repeat"}, {"name", "h"}}), "times")},
      {"n_head", integer_of(heads, "num_heads")},
      {"n_inner", integer_of(inner, "out_features")},
      {"activation_function", activation_name(layer_after(layers, "c_fc"))},
      {"resid_pdrop", number_of(layer_after(layers, "mlp"), "rate")},
      {"embd_pdrop", number_of(layer_after(layers, "wpe"), "rate")},
      {"attn_pdrop", number_of(heads, "dropout")},
      {"layer_norm_epsilon", number_of(find_layer(layers, {{"name", "ln_f"}}), "epsilon")},
      {"tie_word_embeddings", tied}};
}

std::string exported_gpt2(std::string_view name) {
  return name == "lm_head.weight" ? std::string(name)
                                  : std::string(kGpt2Prefix) + std::string(name);
}

}  // namespace

HuggingFaceFamily gpt2_family() {
  return {"gpt2", read_gpt2, tensor_gpt2, propose_gpt2, exported_gpt2, {"bias", "false"}};
}

}  // namespace dltrain
