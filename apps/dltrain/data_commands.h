// The parts of `dltrain data`.
#pragma once

#include <string>

#include "dltrain/commands.h"

namespace dltrain {

CommandBody add_data_inspect(CLI::App& command);
CommandBody add_data_show(CLI::App& command);
CommandBody add_data_prepare(CLI::App& command);
CommandBody add_data_tokenizer(CLI::App& command);

// "3" or "3 (cat)".
inline std::string label_text(const Dataset& dataset, int64_t label) {
  const auto& names = dataset.class_names();
  if (label < 0 || label >= static_cast<int64_t>(names.size())) return std::to_string(label);
  return fmt::format("{} ({})", label, names[static_cast<size_t>(label)]);
}

}  // namespace dltrain
