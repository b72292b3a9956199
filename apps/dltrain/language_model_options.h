// The model of a command that computes texts, and its options: shared by `generate` and `score`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dltrain/commands.h"
#include "run/language_model.h"

namespace dltrain {

struct LanguageModelFlags {
  std::string model, device, precision, tokenizer;
  std::vector<std::string> sets;
};

// MODEL, --precision, --tokenizer, --device and --set.
void add_model_options(CLI::App& command, LanguageModelFlags& o);

// Opens a run folder, a checkpoint, a folder of Hugging Face or a configuration.
std::unique_ptr<LanguageModel> open_language_model(const LanguageModelFlags& o);

// The token that begins a text, or else the one that separates texts; null: an unknown tokenizer.
std::optional<int32_t> first_token(const Tokenizer* tokenizer);

}  // namespace dltrain
