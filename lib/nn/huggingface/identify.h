// From a model back to Hugging Face: which family its layers are of, and the config.json that says
// so.
#pragma once

#include <nlohmann/json.hpp>

#include "nn/huggingface/families.h"
#include "nn/model.h"

namespace dltrain {

struct IdentifiedModel {
  const HuggingFaceFamily* family = nullptr;
  nlohmann::ordered_json config;  // config.json
  // The model has no biases where transformers' has: its files need zeros.
  bool lacks_biases = false;
};

// A family proposes a config.json; it is right if reading it gives the very layers of the model, so
// architectures, blocks and layers written by hand are all the same. Throws Error(usage) for a
// model of no family.
IdentifiedModel identify_model(const ModelConfig& model);

}  // namespace dltrain
