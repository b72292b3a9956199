// The recurrent language models of tests/golden/recurrent, whose losses PyTorch has recorded.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"

namespace dltrain {

inline nlohmann::json recurrent_golden() {
  std::ifstream file(std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/recurrent/losses.json");
  return nlohmann::json::parse(file);
}

// Writes the experiment `name`, cell or cell_carried (lstm_carried), into `folder`.
inline std::filesystem::path write_recurrent_model(const TemporaryFolder& folder,
                                                   const std::string& name) {
  constexpr const char* kConfig = R"(
name: recurrent
model: {{type: char_lstm, cell: {cell}, hidden_size: 24, carry_state: {carried}, vocab_size: 29,
         init_from: {place}/{cell}.safetensors}}
data: {{type: tokens, path: {place}/tokens.bin, sequence_length: {tokens}, random_offset: false,
        {order}, train: {{}}}}
optimizer: {{type: adamw, learning_rate: {learning_rate}, weight_decay: {weight_decay}}}
training: {{global_batch_size: {batch}, max_steps: {steps}, max_grad_norm: {clip}}}
logging: {{logging_steps: 1}}
)";
  const auto golden = recurrent_golden();
  const bool carried = name.ends_with("_carried");
  const auto number = [&](const char* key) { return golden[key].dump(); };
  return folder.write(
      name + ".yaml",
      fmt::format(
          kConfig, fmt::arg("cell", name.substr(0, name.find('_'))), fmt::arg("carried", carried),
          fmt::arg("place", std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/recurrent"),
          fmt::arg("order", carried ? "sampling: streams" : "shuffle: false"),
          fmt::arg("tokens", number("tokens")), fmt::arg("learning_rate", number("learning_rate")),
          fmt::arg("weight_decay", number("weight_decay")), fmt::arg("batch", number("batch")),
          fmt::arg("steps", number("steps")), fmt::arg("clip", number("clip"))));
}

}  // namespace dltrain
