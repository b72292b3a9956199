// Named architectures and Hugging Face's config.json, in both directions.
#include "catch.h"
#include "nn/huggingface/folder.h"
#include "nn/huggingface/identify.h"
#include "read_model.h"

namespace dltrain {
namespace {

IdentifiedModel identify_text(const std::string& text) {
  ModelConfig model;
  REQUIRE(read_model(text, model) == "");
  model.vocab_size = 100;  // as runs have it
  return identify_model(model);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::string mistakes_of(const std::string& config) {
  return joined(read_huggingface_config("config.json", config, "", {}).errors);
}

TEST_CASE("named architectures are recognised by their layers") {
  struct Row {
    const char* text;
    const char* family;
    const char* key;
    nlohmann::json value;
  };
  const Row rows[] = {
      {"{type: gpt2}", "gpt2", "vocab_size", 100},
      {"{type: gpt2_xl, dropout: 0.1, attention_dropout: 0.2}", "gpt2", "attn_pdrop", 0.2},
      {"{type: gpt2, activation: relu, tie_word_embeddings: false}", "gpt2", "activation_function",
       "relu"},
      {"{type: llama}", "llama", "num_key_value_heads", 8},
      {"{type: llama3_2_1b}", "llama", "rope_theta", 500000.0},
      {"{type: llama, attention_bias: true, attention_output_bias: true}", "llama",
       "attention_bias", true},
      {"{type: llama, sliding_window: 4096}", "mistral", "sliding_window", 4096},
      {"{type: qwen2_5_0_5b}", "qwen2", "use_sliding_window", false},
      {"{type: qwen2_5_1_5b, sliding_window: 100}", "qwen2", "sliding_window", 100},
      {"{type: qwen3_0_6b}", "qwen3", "head_dim", 128},
      {"{type: mixtral, num_layers: 2}", "mixtral", "num_local_experts", 8},
      {"{type: mixtral, num_layers: 2, balance_loss: 0.02}", "mixtral", "router_aux_loss_coef",
       0.02},
      {"{type: mixtral, num_layers: 2, sliding_window: 9}", "mixtral", "sliding_window", 9},
      {"{type: qwen3_moe, num_layers: 2}", "qwen3_moe", "moe_intermediate_size", 768},
      {"{type: qwen3_moe, num_layers: 2, normalize_top_k: false}", "qwen3_moe", "norm_topk_prob",
       false},
      {"{type: bert}", "bert", "layer_norm_eps", 1e-12},
      {"{type: bert_large, attention_mask: true}", "bert", "hidden_size", 1024},
      {"{type: resnet50, num_classes: 7}", "resnet", "layer_type", "bottleneck"},
      {"{type: resnet152, num_classes: 7}", "resnet", "depths", {3, 8, 36, 3}},
      {"{type: resnet18, num_classes: 7, width: 16}", "resnet", "embedding_size", 16},
      {"{type: vit_b_16, num_classes: 7, dropout: 0.1}", "vit", "hidden_dropout_prob", 0.1},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const IdentifiedModel model = identify_text(row.text);
    CHECK(model.family->model_type == row.family);
    CHECK(nlohmann::json(model.config[row.key]) == row.value);
    CHECK_FALSE(model.lacks_biases);
  }
  CHECK(identify_text("{type: gpt2, bias: false}").lacks_biases);
  CHECK(identify_text("{type: bert_classifier, num_classes: 4}").config["id2label"].size() == 4);
  CHECK(identify_text("{type: llama3_2_1b}").config["rope_scaling"]["rope_type"] == "llama3");
}

TEST_CASE("models of no family, and nearly of one, are refused with what differs") {
  CHECK_THROWS_WITH(
      identify_text("layers: [flatten, {linear: 3}]"),
      Catch::Contains("gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, bert"));
  CHECK_THROWS_WITH(identify_text("{type: mixtral, num_layers: 1, shared_experts: 1}"),
                    Catch::Contains("nearest is mixtral, which has no 'shared_experts: 1'"));
  CHECK_THROWS_WITH(identify_text("{type: llama, attention_bias: true, mlp_bias: true}"),
                    Catch::Contains("nearest is llama, which has no 'bias: false' in the layer "
                                    "'o_proj'"));
  CHECK(identify_text("{type: mixtral, num_layers: 1, router_z_loss: 0.001}").family->model_type ==
        std::string("mixtral"));
}

TEST_CASE("weights have other names in files, those of experts one for each") {
  const struct {
    const char *family, *file, *memory;
  } rows[] = {
      {"mixtral", "model.layers.2.block_sparse_moe.gate.weight", "model.layers.2.mlp.gate.weight"},
      {"mixtral", "model.layers.2.block_sparse_moe.experts.13.w1.weight",
       "model.layers.2.mlp.experts.gate_proj.weight[13]"},
      {"mixtral", "model.layers.2.block_sparse_moe.experts.0.w2.weight",
       "model.layers.2.mlp.experts.down_proj.weight[0]"},
      {"mixtral", "model.layers.2.block_sparse_moe.experts.0.w3.weight",
       "model.layers.2.mlp.experts.up_proj.weight[0]"},
      {"qwen3_moe", "model.layers.0.mlp.experts.7.gate_proj.weight",
       "model.layers.0.mlp.experts.gate_proj.weight[7]"},
      {"qwen3_moe", "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.gate.weight"},
      {"qwen3_moe", "model.norm.weight", "model.norm.weight"},
      {"vit", "vit.encoder.layer.11.attention.attention.value.bias",
       "encoder.layers.encoder_layer_11.self_attention.in_proj_bias[2]"},
      {"vit", "vit.encoder.layer.0.output.dense.weight",
       "encoder.layers.encoder_layer_0.mlp.3.weight"},
      {"vit", "classifier.bias", "heads.head.bias"},
      {"resnet", "resnet.encoder.stages.3.layers.0.shortcut.normalization.running_var",
       "layer4.0.downsample.1.running_var"},
      {"resnet", "resnet.embedder.embedder.convolution.weight", "conv1.weight"},
      {"timm", "blocks.3.attn.qkv.weight",
       "encoder.layers.encoder_layer_3.self_attention.in_proj_weight"},
      {"timm", "layer1.0.conv1.weight", "layer1.0.conv1.weight"},
  };
  for (const auto& row : rows) {
    INFO(row.file);
    const HuggingFaceFamily& family = *find_huggingface_family(row.family);
    CHECK(family.tensor(row.file).name == row.memory);
    CHECK(family.exported(row.memory) == row.file);
  }
  const HuggingFaceFamily& mixtral = *find_huggingface_family("mixtral");
  CHECK(mixtral.parts("model.layers.0.mlp.experts.up_proj.weight") == kEachIndex);
  CHECK(mixtral.parts("model.layers.0.mlp.gate.weight") == 1);
}

TEST_CASE("every error of a config.json is reported") {
  const std::string errors = mistakes_of(
      R"({"model_type": "gpt2", "n_embd": 1e40, "n_layer": 0, "n_head": true, "vocab_size": 1e3,
          "attn_pdrop": [], "new_feature": {"a": 1}, "_note": 1, "off": null})");
  for (const char* one : {"n_embd: expected an integer", "n_layer: expected an integer", "got 0",
                          "n_head: expected an integer", "vocab_size: expected an integer",
                          "attn_pdrop: expected a number from 0 to below 1, got []",
                          "new_feature: {\"a\":1} is not"}) {
    CHECK_THAT(errors, Catch::Contains(one));
  }
  CHECK_THAT(errors, !Catch::Contains("_note") && !Catch::Contains("off"));
  CHECK_THAT(mistakes_of(R"({"model_type": 3})"), Catch::Contains("has no model_type"));
  CHECK_THROWS_WITH(mistakes_of("[1]"), Catch::Contains("is not a JSON object"));
  CHECK_THROWS_WITH(
      mistakes_of("{\n\"a\": 1,}"),
      Catch::StartsWith("config.json: is not JSON: line 2, column 8: unexpected '}'"));
}

constexpr const char* kLlama =
    R"("model_type": "llama", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
       "intermediate_size": 8, )";

std::string llama_mistakes(const std::string& keys) {
  return mistakes_of(fmt::format("{{{}{}}}", kLlama, keys));
}

TEST_CASE("values that no layer takes are told by their key, once") {
  const std::string gpt2 = R"({"model_type": "gpt2", "n_embd": 32, "n_head": 4, )";
  const struct {
    const char *keys, *says;
  } rows[] = {
      {R"("layer_norm_epsilon": -1)",
       "layer_norm_epsilon: expected a number above 0 and below 1, got -1\n"},
      {R"("attn_pdrop": 1.5)", "attn_pdrop: expected a number from 0 to below 1, got 1.5\n"},
      {R"("n_layer": 1000000000)",
       "n_layer: expected an integer from 1 to 10000, got 1000000000\n"},
  };
  for (const auto& row : rows)
    CHECK(mistakes_of(fmt::format("{}{}}}", gpt2, row.keys)) == row.says);
  CHECK(mistakes_of(R"({"model_type": "gpt2", "n_embd": 32, "n_head": 5})") ==
        "n_head: 5 does not divide n_embd, which is 32\n");
  CHECK(mistakes_of(R"({"model_type": "bert", "num_attention_heads": 5})") ==
        "num_attention_heads: 5 does not divide hidden_size, which is 768\n");
  CHECK(llama_mistakes(R"("num_attention_heads": 4, "num_key_value_heads": 3)") ==
        "num_key_value_heads: 3 does not divide num_attention_heads, which is 4\n");
  CHECK(llama_mistakes(R"("num_attention_heads": 2, "rope_theta": 1.0)") ==
        "rope_theta: expected a number above 1, got 1.0\n");
  CHECK(llama_mistakes(R"("num_attention_heads": 2, "rope_parameters": {"rope_theta": 0.5})") ==
        "rope_parameters.rope_theta: expected a number above 1, got 0.5\n");
  // One of a type that is not known, whatever its other keys are.
  CHECK(llama_mistakes(
            R"("num_attention_heads": 2,
               "rope_scaling": {"type": "yarn", "factor": 0.5, "beta_fast": 3})") ==
        "rope_scaling: the type 'yarn' is not supported (default, linear, llama3 are)\n");
}

TEST_CASE("keys without effect are ignored if they have their default values") {
  const std::string notes =
      R"("num_attention_heads": 2, "auto_map": {"AutoModel": "modeling.Model"},
         "unsloth_fixed": true, "temperature": 0.7, )";
  CHECK(llama_mistakes(notes + R"("pruned_heads": {}, "is_decoder": false)") == "");
  CHECK_THAT(llama_mistakes(notes + R"("pruned_heads": {"0": [1]})"),
             Catch::Contains(R"(pruned_heads: {"0":[1]} is not supported, only {})"));
  CHECK_THAT(llama_mistakes(notes + R"("is_encoder_decoder": true)"),
             Catch::Contains("is_encoder_decoder: true is not supported, only false"));
}

TEST_CASE("keys of other programs change nothing, and those of another model are refused") {
  const std::string sizes =
      R"("vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 8, "transformers.js_config": {"dtype": "q4"}, )";
  const auto with = [&](const char* keys) { return mistakes_of("{" + sizes + keys + "}"); };
  CHECK(with(R"("model_type": "llama", "is_llama_config": true, "rope_interleaved": false)") == "");
  CHECK(with(R"("model_type": "qwen2", "use_mrope": false)") == "");
  CHECK_THAT(with(R"("model_type": "llama", "rope_interleaved": true)"),
             Catch::Contains("rope_interleaved: true is not supported, only false"));
  CHECK_THAT(with(R"("model_type": "qwen2", "use_mrope": true)"),
             Catch::Contains("use_mrope: true is not supported, only false"));
}

TEST_CASE("Mistral has a window of 4096 tokens unless its file says another or null") {
  const std::string sizes =
      R"({"model_type": "mistral", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "intermediate_size": 8)";
  const auto window = [&](const std::string& key) {
    const HuggingFaceConfig read =
        read_huggingface_config("config.json", sizes + key + "}", "", {});
    CHECK(joined(read.errors) == "");
    return read.model.arguments.find("sliding_window")->text;
  };
  CHECK(window("") == "4096");
  CHECK(window(R"(, "sliding_window": 64)") == "64");
  CHECK(window(R"(, "sliding_window": null)") == "0");
}

TEST_CASE("older forms of rope_scaling mean the same") {
  const auto scaling = [](const std::string& keys) {
    const HuggingFaceConfig reading = read_huggingface_config(
        "config.json",
        R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 8, )" +
            keys + "}",
        "", {});
    REQUIRE(joined(reading.errors) == "");
    std::string out = reading.model.arguments.find("rope_theta")->text;
    for (const ConfigNode& item : reading.model.arguments.find("rope_scaling")->items) {
      out += " " + item.text;
    }
    return out;
  };
  CHECK(scaling(R"("rope_theta": 500.0)") == "500.0 none");
  CHECK(scaling(R"("rope_scaling": {"type": "linear", "factor": 2})") == "10000.0 linear 2.0");
  CHECK(scaling(R"("rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 7})") ==
        "7.0 linear 2.0");
  // A rope_scaling beside rope_parameters takes its place, as in transformers 5.
  const std::string parameters =
      R"("rope_parameters": {"rope_type": "default", "rope_theta": 7}, )";
  const std::string linear = R"("rope_scaling": {"type": "linear", "factor": 2)";
  CHECK(scaling(parameters + linear + R"(, "rope_theta": 5})") == "5.0 linear 2.0");
  CHECK(scaling(parameters + linear + R"(}, "rope_theta": 7)") == "7.0 linear 2.0");
  CHECK(scaling(parameters + R"("rope_scaling": {})") == "7.0 none");
  CHECK(scaling(parameters + R"("rope_scaling": null)") == "7.0 none");
  CHECK_THAT(llama_mistakes(fmt::format(R"("num_attention_heads": 2, {}{}}})", parameters, linear)),
             Catch::Contains("rope_parameters.rope_theta: 7 has no effect"));
}

TEST_CASE("names of tensors in files, with and without the prefix of the head") {
  const auto name = [](const char* family, const char* in_file) {
    const TensorName found = find_huggingface_family(family)->tensor(in_file);
    return found.name + (found.spare ? " spare" : "");
  };
  CHECK(name("gpt2", "transformer.h.0.ln_1.weight") == "h.0.ln_1.weight");
  CHECK(name("gpt2", "h.0.attn.c_attn.bias") == "h.0.attn.c_attn.bias");
  CHECK(name("gpt2", "h.11.attn.bias") == "h.11.attn.bias spare");
  CHECK(name("llama", "layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.up_proj.weight");
  CHECK(name("qwen3", "lm_head.weight") == "lm_head.weight spare");
  CHECK(name("bert", "embeddings.LayerNorm.gamma") == "bert.embeddings.LayerNorm.weight");
  CHECK(name("bert", "cls.predictions.decoder.weight") == "cls.predictions.decoder.weight spare");
  CHECK(name("bert", "classifier.bias") == "classifier.bias");
}

}  // namespace
}  // namespace dltrain
