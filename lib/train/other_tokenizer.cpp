#include "train/other_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

// The folder of the tokenizer of these weights; empty: there is none. Checkpoints lie in
// <run>/checkpoints, a link to one is followed first.
fs::path folder_of_tokenizer(const fs::path& weights) {
  std::error_code error;
  const fs::path real = fs::canonical(weights, error);
  if (error) return {};
  for (fs::path folder = real; folder.has_relative_path(); folder = folder.parent_path()) {
    if (fs::is_directory(folder, error) && holds_tokenizer(folder)) return folder;
    const std::string parent = folder.parent_path().filename().string();
    const bool within_run = parent == "checkpoints" || folder.filename() == "checkpoints";
    if (!within_run && !fs::is_regular_file(folder, error)) break;
  }
  return {};
}

std::string name_of_other_tokenizer(const Tokenizer& tokenizer) {
  return fmt::format("{}, {} tokens", tokenizer.kind(), tokenizer.vocab_size());
}

std::string quoted(std::string_view bytes) {
  using nlohmann::json;
  return json(bytes).dump(-1, ' ', false, json::error_handler_t::replace);
}

// The files of one vocabulary may differ (vocab.json with merges.txt, tokenizer.json), so what the
// ids stand for is compared. "": the same.
std::string first_difference(const Tokenizer& own, const Tokenizer& used) {
  if (own.identity() == used.identity()) return {};
  for (int32_t id = 0; id < std::min(own.vocab_size(), used.vocab_size()); ++id) {
    if (own.bytes_of(id) == used.bytes_of(id)) continue;
    return fmt::format("id {} is {} there and {} here", id, quoted(own.bytes_of(id)),
                       quoted(used.bytes_of(id)));
  }
  if (own.vocab_size() == used.vocab_size()) return {};
  return fmt::format("the first {} ids are the same",
                     std::min(own.vocab_size(), used.vocab_size()));
}

}  // namespace

std::string other_tokenizer(const ModelConfig& model, const Dataset& data) {
  const auto used = data.tokenizer();
  const fs::path folder = folder_of_tokenizer(model.init_from.value_or(""));
  if (!used || folder.empty()) return {};
  try {
    const auto own = load_tokenizer(folder);
    const std::string difference = first_difference(*own, *used);
    if (difference.empty()) return {};
    return fmt::format(
        "the weights of {} were trained with the tokenizer beside them ({}), but "
        "the data is read with another ({}): {}; use data.tokenizer: {{type: file, "
        "path: {}}}",
        *model.init_from, name_of_other_tokenizer(*own), name_of_other_tokenizer(*used), difference,
        folder.string());
  } catch (const Error&) {
    return {};  // of a kind that is not read here
  }
}

}  // namespace dltrain
