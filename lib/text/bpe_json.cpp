// bpe_from_json: Hugging Face's tokenizer.json of byte-level BPE. Unsupported features are refused
// by name. The post-processor is ignored, because encode() adds no tokens. bpe_from_vocabulary
// converts GPT-2's two files to such a file.
#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/formats.h"
#include "text/json_fields.h"

namespace dltrain {
namespace {

using nlohmann::json;

class BpeReader : JsonFields {
 public:
  BpeReader(const std::string& name, const json& root) : JsonFields(name), root_(root) {}

  BpeParts read() {
    const json& model = object(root_, "model", "the file");
    const std::string type = text(model, "type", "BPE");
    if (type != "BPE") {
      refuse(
          "has a model of type {}; byte-level BPE is supported, and SentencePiece as a .model file",
          type);
    }
    off(model, "byte_fallback", "the model");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text(model, key, "").empty()) refuse("has a model with {}, which is not supported", key);
    }
    parts_.whole_words = flag(model, "ignore_merges", false);
    read_normalizer();
    read_pre_tokenizer();
    read_vocabulary(object(model, "vocab", "the model"));
    read_merges(model);
    read_added();
    return std::move(parts_);
  }

 private:
  void off(const json& owner, const char* key, const char* where) const {
    if (flag(owner, key, false)) refuse("{} has {}: true, which is not supported", where, key);
  }

  void read_normalizer() {
    if (is_null(root_, "normalizer")) return;
    const std::string type = text(object(root_, "normalizer", "the file"), "type", "");
    if (type != "NFC") refuse("has a normalizer of type {}; NFC is supported", type);
    parts_.normalize = true;
  }

  void read_pre_tokenizer() {
    const json& first = object(root_, "pre_tokenizer", "the file");
    bool byte_level = false;
    if (text(first, "type", "") != "Sequence") {
      add_pre_tokenizer(first, byte_level);
    } else {
      const auto list = first.find("pretokenizers");
      if (list == first.end() || !list->is_array()) refuse("the pre_tokenizer has no list");
      for (const json& one : *list) {
        if (byte_level) refuse("has a pre_tokenizer after ByteLevel, which is not supported");
        if (!one.is_object()) refuse("a pre_tokenizer is not an object");
        add_pre_tokenizer(one, byte_level);
      }
    }
    if (!byte_level) refuse("has no pre_tokenizer of type ByteLevel; other BPE is not supported");
  }

  void add_pre_tokenizer(const json& one, bool& byte_level) {
    const std::string type = text(one, "type", "");
    if (type == "ByteLevel") {
      off(one, "add_prefix_space", "the pre_tokenizer");
      if (flag(one, "use_regex", true)) parts_.patterns.emplace_back(kGpt2Pattern);
      byte_level = true;
    } else if (type == "Digits") {
      parts_.patterns.emplace_back(flag(one, "individual_digits", false) ? R"(\p{N})"
                                                                         : R"(\p{N}+)");
    } else if (type == "Split") {
      const std::string regex = text(object(one, "pattern", "the pre_tokenizer"), "Regex", "");
      if (regex.empty()) refuse("has a Split without a Regex, which is not supported");
      const std::string behavior = text(one, "behavior", "");
      const bool inverted = flag(one, "invert", false);
      // Matches are pieces, and so is the text between them (common patterns match everything).
      if (!(behavior == "Isolated" && !inverted) && !(behavior == "Removed" && inverted)) {
        refuse("has a Split of behavior {}; Isolated is supported", behavior);
      }
      parts_.patterns.push_back(regex);
    } else {
      refuse("has a pre_tokenizer of type {}; ByteLevel, Split and Digits are supported", type);
    }
  }

  void read_vocabulary(const json& vocab) {
    for (const auto& [written, value] : vocab.items()) {
      const int32_t number = id(value, written);
      if (written.empty()) refuse("has a token without text");
      const auto at = static_cast<size_t>(number);
      if (at >= parts_.tokens.size()) parts_.tokens.resize(at + 1);
      if (!parts_.tokens[at].empty()) refuse("has two tokens of id {}", number);
      // The vocabulary may have added tokens as plain text.
      parts_.tokens[at] = bytes_from_alphabet(written).value_or(written);
      ids_.emplace(written, number);
    }
  }

  void read_merges(const json& model) {
    const auto list = model.find("merges");
    if (list == model.end() || !list->is_array()) refuse("the model has no merges");
    parts_.merges.reserve(list->size());
    for (const json& merge : *list) {
      std::string left, right;
      if (merge.is_string()) {
        const auto& both = merge.get_ref<const std::string&>();
        const size_t space = both.find(' ');
        if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
          refuse("merge {} ('{}') is not a pair", parts_.merges.size(), both);
        }
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else {
        refuse("merge {} is not a pair", parts_.merges.size());
      }
      parts_.merges.emplace_back(id_of(left), id_of(right));
    }
  }

  int32_t id_of(const std::string& written) const {
    const auto found = ids_.find(written);
    if (found == ids_.end()) {
      refuse("merge {} has '{}', which is not in the vocabulary", parts_.merges.size(), written);
    }
    return found->second;
  }

  void read_added() {
    if (is_null(root_, "added_tokens")) return;
    const json& list = root_["added_tokens"];
    if (!list.is_array()) refuse("added_tokens is not a list");
    for (const json& one : list) {
      if (!one.is_object() || !one.contains("id")) refuse("has an added token without an id");
      off(one, "single_word", "an added token");
      std::string token = text(one, "content", "");
      const int32_t number = id(one["id"], token);
      parts_.added.push_back({.name = std::move(token),
                              .id = number,
                              .special = flag(one, "special", false),
                              .strip_left = flag(one, "lstrip", false),
                              .strip_right = flag(one, "rstrip", false)});
    }
  }

  const json& root_;
  BpeParts parts_;
  std::unordered_map<std::string, int32_t> ids_;
};

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

std::shared_ptr<Tokenizer> bpe_from_json(const std::string& name, std::string content,
                                         const json& root) {
  BpeParts parts = BpeReader(name, root).read();
  parts.files = {{"tokenizer.json", std::move(content)}};
  return bpe_tokenizer(name, std::move(parts));
}

std::shared_ptr<Tokenizer> bpe_from_vocabulary(const std::string& vocab_name,
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
  std::string content = json_text(file) + "\n";
  const nlohmann::json parsed = parse_json(content);
  return bpe_from_json(vocab_name, std::move(content), parsed);
}

}  // namespace dltrain
