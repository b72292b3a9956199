// The conversion of a model to Hugging Face: the family of its layers and its config.json.
#pragma once

#include <nlohmann/json.hpp>

#include "nn/huggingface/families.h"
#include "nn/model.h"

namespace dltrain {

struct IdentifiedModel {
  const HuggingFaceFamily* family = nullptr;
  nlohmann::ordered_json config;  // config.json
  // The model has no biases, but transformers' model has, so its files need zeros.
  bool lacks_biases = false;
  std::string tied = {};  // the embedding whose weight is the head's too; "": none
};

// Each family proposes a config.json, which is correct if reading it gives the layers of the model.
// So it does not matter whether the layers come from architectures, blocks or a list. Throws
// Error(usage) for a model of no family. `timm`: in the form of timm instead of transformers'.
IdentifiedModel identify_model(const ModelConfig& model, bool timm = false);

}  // namespace dltrain
