// bpe_from_vocabulary: converts GPT-2's two files to one tokenizer.json.
#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/formats.h"

namespace dltrain {
namespace {

using nlohmann::ordered_json;

// Returns the pairs as "left right".
std::vector<std::string> read_merges(const std::string& name, std::string_view text) {
  if (const auto bad = find_invalid_utf8(text)) {
    throw Error(ExitCode::data, fmt::format("is not UTF-8 (byte {})", *bad), name);
  }
  std::vector<std::string> pairs;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw Error(ExitCode::data, "expected two tokens separated by a space",
                  fmt::format("{}:{}", name, line_number));
    }
    pairs.emplace_back(line);
  }
  return pairs;
}

}  // namespace

std::shared_ptr<const Tokenizer> bpe_from_vocabulary(const std::string& vocab_name,
                                                     const std::string& vocab,
                                                     const std::string& merges_name,
                                                     const std::string& merges) {
  const nlohmann::json tokens = parse_json_object(vocab_name, vocab);
  const std::vector<std::string> pairs = read_merges(merges_name, merges);
  std::unordered_set<std::string> merged;
  for (std::string pair : pairs) merged.insert(pair.erase(pair.find(' '), 1));
  // Sorted by id, as other programs write it.
  std::vector<std::pair<int64_t, std::string>> by_id;
  for (const auto& [written, id] : tokens.items()) {
    if (!id.is_number_integer()) {
      throw Error(ExitCode::data, fmt::format("the id of token '{}' is not an integer", written),
                  vocab_name);
    }
    by_id.emplace_back(id.get<int64_t>(), written);
  }
  std::sort(by_id.begin(), by_id.end());
  ordered_json vocabulary = ordered_json::object(), added = ordered_json::array();
  // Appends directly, because ordered_json's operator[] searches all keys.
  auto& rows = vocabulary.get_ref<ordered_json::object_t&>();
  for (const auto& [id, written] : by_id) {
    rows.emplace_back(written, id);
    const auto bytes = bytes_from_alphabet(written);
    if ((bytes && bytes->size() == 1) || merged.contains(written)) continue;
    added.push_back(special_token_json(id, written));
  }
  ordered_json file = bpe_json(added, byte_level_json(true, true), byte_level_json(false, true),
                               byte_level_json(true, true));
  file["model"]["merges"] = pairs;
  file["model"]["vocab"] = std::move(vocabulary);
  std::string content = file.dump() + "\n";
  const nlohmann::json parsed = nlohmann::json::parse(content);
  return bpe_from_json(vocab_name, std::move(content), parsed);
}

}  // namespace dltrain
