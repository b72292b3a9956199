// bpe_from_vocabulary: GPT-2's two files, made into a tokenizer.json, which is one file and says
// more.
#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "config/utf8.h"
#include "text/byte_level.h"
#include "text/formats.h"

namespace dltrain {
namespace {

using nlohmann::ordered_json;

// The pairs, each "left right".
std::vector<std::string> read_merges(const std::string& name, std::string_view text) {
  if (const auto bad = find_invalid_utf8(text)) {
    throw Error(ExitCode::data, fmt::format("is no UTF-8 (byte {})", *bad), name);
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
      throw Error(ExitCode::data, "expected two tokens and a space between",
                  fmt::format("{}:{}", name, line_number));
    }
    pairs.emplace_back(line);
  }
  return pairs;
}

ordered_json byte_level(bool trim_offsets) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", trim_offsets},
          {"use_regex", true}};
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
  // In the order of ids, as other programs write it.
  std::vector<std::pair<int64_t, std::string>> by_id;
  for (const auto& [written, id] : tokens.items()) {
    if (!id.is_number_integer()) {
      throw Error(ExitCode::data, fmt::format("the id of token '{}' is no integer", written),
                  vocab_name);
    }
    by_id.emplace_back(id.get<int64_t>(), written);
  }
  std::sort(by_id.begin(), by_id.end());
  // Written by hand: an ordered JSON object looks through all its keys for each new one.
  std::string vocabulary;
  ordered_json added = ordered_json::array();
  for (const auto& [id, written] : by_id) {
    vocabulary +=
        fmt::format("{}{}:{}", vocabulary.empty() ? "" : ",", ordered_json(written).dump(), id);
    const auto bytes = bytes_from_alphabet(written);
    if ((bytes && bytes->size() == 1) || merged.contains(written)) continue;
    added.push_back(special_token_json(id, written));
  }
  const ordered_json head{{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level(true)},
                          {"post_processor", byte_level(false)},
                          {"decoder", byte_level(true)}};
  const ordered_json model{{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"merges", pairs}};
  const auto open = [](const ordered_json& object) {
    std::string text = object.dump();
    text.pop_back();
    return text;
  };
  std::string content =
      fmt::format("{},\"model\":{},\"vocab\":{{{}}}}}}}\n", open(head), open(model), vocabulary);
  const nlohmann::json parsed = nlohmann::json::parse(content);
  return bpe_from_json(vocab_name, std::move(content), parsed);
}

}  // namespace dltrain
