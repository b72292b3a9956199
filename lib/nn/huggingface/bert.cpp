// BERT (BertConfig): BertForMaskedLM is the architecture `bert`, BertForSequenceClassification is
// `bert_classifier`.
#include <fmt/format.h>

#include "nn/huggingface/families.h"

namespace dltrain {
namespace {

constexpr std::string_view kBertPrefix = "bert.";

// Returns the architecture of the model class in the file.
std::string architecture(ConfigJson& config) {
  const std::vector<std::string> names = config.texts("architectures");
  if (names.empty()) return "bert";
  for (const char* known : {"BertForMaskedLM", "BertForPreTraining", "BertModel"}) {
    if (names[0] == known) return "bert";
  }
  if (names[0] == "BertForSequenceClassification") return "bert_classifier";
  config.add_error(
      fmt::format("architectures: '{}' is not supported; with type: bert or type: "
                  "bert_classifier its encoder can be used",
                  names[0]));
  return "bert";
}

void read_bert(ConfigJson& config, HuggingFaceModel& model) {
  if (model.type.empty()) model.type = architecture(config);
  model.vocab_size = config.integer("vocab_size", 30522);
  const int64_t hidden = config.integer("hidden_size", 768);
  const int64_t heads = config.integer("num_attention_heads", 12);
  config.must_divide("num_attention_heads", heads, "hidden_size", hidden);
  model.set_integer("hidden_size", hidden);
  model.set_integer("num_layers", config.integer("num_hidden_layers", 12, kMaxLayers));
  model.set_integer("num_heads", heads);
  model.set_integer("intermediate_size", config.integer("intermediate_size", 3072));
  model.set_integer("max_positions", config.integer("max_position_embeddings", 512));
  model.set_integer("type_vocab_size", config.integer("type_vocab_size", 2, 1000000));
  const double dropout = config.number("hidden_dropout_prob", 0.1, kDropout);
  const double classifier = config.number("classifier_dropout", dropout, kDropout);
  model.set_number("dropout", dropout);
  model.set_number("attention_dropout",
                   config.number("attention_probs_dropout_prob", 0.1, kDropout));
  model.set_number("epsilon", config.number("layer_norm_eps", 1e-12, kEpsilon));
  model.set_activation(config, "hidden_act", "gelu");
  if (model.type == "bert_classifier") {
    model.set_number("classifier_dropout", classifier);
    model.set_classes(config);
  }
  const int64_t padding = config.integer("pad_token_id", 0, model.vocab_size - 1, 0);
  if (config.is_null("pad_token_id")) {
    model.set("pad_token_id", {});
  } else {
    model.set_integer("pad_token_id", padding);
  }
  config.only("position_embedding_type", "absolute");
  config.only("tie_word_embeddings", true);
  // These are keys of the original program's pooler, which has no options.
  config.ignore({"num_labels", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
                 "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});
}

// Early files have gamma and beta for norms, and no prefix without a head. The next-sentence head,
// the pooler without a classifier, tensors of positions, and the decoder tied to the embedding are
// ignored.
TensorName tensor_bert(std::string_view name) {
  std::string out(name);
  for (const char* bare : {"embeddings.", "encoder.", "pooler."}) {
    if (name.starts_with(bare)) out = std::string(kBertPrefix) + out;
  }
  const auto replace_end = [&](std::string_view from, std::string_view to) {
    if (out.ends_with(from)) out.replace(out.size() - from.size(), from.size(), to);
  };
  replace_end("LayerNorm.gamma", "LayerNorm.weight");
  replace_end("LayerNorm.beta", "LayerNorm.bias");
  bool spare = false;
  for (const char* prefix : {"bert.pooler.", "cls.seq_relationship.", "cls.predictions.decoder."}) {
    spare = spare || out.starts_with(prefix);
  }
  spare = spare || out == "bert.embeddings.position_ids" || out == "bert.embeddings.token_type_ids";
  return {out, spare};
}

std::optional<nlohmann::ordered_json> propose_bert(const ConfigNode& layers, int64_t vocab_size) {
  const ConfigNode* tokens = find_layer(layers, {{"name", "bert.embeddings.word_embeddings"}});
  const ConfigNode* heads = find_layer(layers, {{"type", "attention"}});
  if (tokens == nullptr || heads == nullptr) return {};
  const auto named = [&](std::string_view name) { return find_layer(layers, {{"name", name}}); };
  const ConfigNode* classifier = named("classifier");
  nlohmann::ordered_json out{
      {"architectures",
       {classifier != nullptr ? "BertForSequenceClassification" : "BertForMaskedLM"}},
      {"model_type", "bert"},
      {"vocab_size", vocab_size},
      {"hidden_size", integer_of(tokens, "embedding_dim")},
      {"num_hidden_layers", integer_of(named("bert.encoder.layer"), "times")},
      {"num_attention_heads", integer_of(heads, "num_heads")},
      {"intermediate_size", integer_of(named("intermediate.dense"), "out_features")},
      {"max_position_embeddings",
       integer_of(named("bert.embeddings.position_embeddings"), "max_positions")},
      {"type_vocab_size", integer_of(named("bert.embeddings.token_type_embeddings"), "num_types")},
      {"hidden_act", activation_name(layer_after(layers, "intermediate.dense"))},
      {"hidden_dropout_prob", number_of(layer_after(layers, "bert.embeddings.LayerNorm"), "rate")},
      {"attention_probs_dropout_prob", number_of(heads, "dropout")},
      {"layer_norm_eps", number_of(named("bert.embeddings.LayerNorm"), "epsilon")},
      {"pad_token_id", nullptr}};
  if (const ConfigNode* padding = tokens->find("padding_idx"); padding && padding->is_scalar()) {
    out["pad_token_id"] = integer_of(tokens, "padding_idx");
  }
  if (classifier != nullptr) {
    const ConfigNode* dropout =
        find_layer(layers, {{"type", "dropout"}, {"name", "classifier_dropout"}});
    out["classifier_dropout"] = number_of(dropout, "rate");
    add_labels(integer_of(classifier, "out_features"), out);
  }
  return out;
}

}  // namespace

HuggingFaceFamily bert_family() {
  return {"bert", read_bert, tensor_bert, propose_bert};
}

}  // namespace dltrain
