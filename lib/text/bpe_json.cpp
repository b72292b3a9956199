// bpe_from_json: Hugging Face's tokenizer.json of byte-level BPE. What this program does not do is
// refused by name. The post-processor is left out: encode() adds no tokens of its own.
#include <nlohmann/json.hpp>

#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/formats.h"

namespace dltrain {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(const std::string& name, const json& about) : name_(name), about_(about) {}

  BpeParts read() {
    const json& model = object(about_, "model", "the file");
    const std::string type = text(model, "type", "BPE");
    if (type != "BPE") {
      refuse("has a model of type {}; byte-level BPE is read, and of SentencePiece the .model file",
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
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ExitCode::data, fmt::format(format, std::forward<Args>(args)...), name_);
  }

  const json& object(const json& owner, const char* key, const char* where) const {
    const auto found = owner.find(key);
    if (found == owner.end() || !found->is_object()) refuse("{} has no {}", where, key);
    return *found;
  }
  std::string text(const json& owner, const char* key, const char* otherwise) const {
    const auto found = owner.find(key);
    if (found == owner.end() || found->is_null()) return otherwise;
    if (!found->is_string()) refuse("{} is no text", key);
    return found->get<std::string>();
  }
  bool flag(const json& owner, const char* key, bool otherwise) const {
    const auto found = owner.find(key);
    if (found == owner.end() || found->is_null()) return otherwise;
    if (!found->is_boolean()) refuse("{} is neither true nor false", key);
    return found->get<bool>();
  }
  void off(const json& owner, const char* key, const char* where) const {
    if (flag(owner, key, false)) refuse("{} has {}: true, which is not supported", where, key);
  }
  static bool is_null(const json& owner, const char* key) {
    const auto found = owner.find(key);
    return found == owner.end() || found->is_null();
  }

  void read_normalizer() {
    if (is_null(about_, "normalizer")) return;
    const std::string type = text(object(about_, "normalizer", "the file"), "type", "");
    if (type != "NFC") refuse("has a normalizer of type {}; NFC is supported", type);
    parts_.normalize = true;
  }

  void read_pre_tokenizer() {
    const json& first = object(about_, "pre_tokenizer", "the file");
    bool byte_level = false;
    if (text(first, "type", "") != "Sequence") {
      add_pre_tokenizer(first, byte_level);
    } else {
      const auto list = first.find("pretokenizers");
      if (list == first.end() || !list->is_array()) refuse("the pre_tokenizer has no list");
      for (const json& one : *list) {
        if (byte_level) refuse("has a pre_tokenizer behind ByteLevel, which is not supported");
        if (!one.is_object()) refuse("a pre_tokenizer is no object");
        add_pre_tokenizer(one, byte_level);
      }
    }
    if (!byte_level) refuse("has no pre_tokenizer of type ByteLevel; no other BPE is read");
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
      // Matches are pieces, and so is what lies between them (which the patterns of the usual
      // tokenizers leave nothing of).
      if (!(behavior == "Isolated" && !inverted) && !(behavior == "Removed" && inverted)) {
        refuse("has a Split of behavior {}; Isolated is supported", behavior);
      }
      parts_.patterns.push_back(regex);
    } else {
      refuse("has a pre_tokenizer of type {}; ByteLevel, Split and Digits are supported", type);
    }
  }

  void put(int64_t id, std::string bytes) {
    constexpr int64_t kMost = 1 << 21;
    if (id < 0 || id >= kMost) refuse("has a token of id {}", id);
    const auto at = static_cast<size_t>(id);
    if (at >= parts_.tokens.size()) parts_.tokens.resize(at + 1);
    if (!parts_.tokens[at].empty()) refuse("has two tokens of id {}", id);
    parts_.tokens[at] = std::move(bytes);
  }

  void read_vocabulary(const json& vocab) {
    for (const auto& [written, id] : vocab.items()) {
      if (!id.is_number_integer()) refuse("the id of token '{}' is no integer", written);
      if (written.empty()) refuse("has a token without text");
      // Added tokens may be written as they are.
      auto bytes = bytes_from_alphabet(written);
      const int64_t number =
          id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX ? -1 : id.get<int64_t>();
      put(number, bytes ? std::move(*bytes) : written);
      ids_.emplace(written, static_cast<int32_t>(number));
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
          refuse("merge {} ('{}') is no pair", parts_.merges.size(), both);
        }
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else {
        refuse("merge {} is no pair", parts_.merges.size());
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
    if (is_null(about_, "added_tokens")) return;
    const json& list = about_["added_tokens"];
    if (!list.is_array()) refuse("added_tokens is no list");
    for (const json& one : list) {
      const auto id = one.is_object() ? one.find("id") : one.end();
      if (!one.is_object() || id == one.end() || !id->is_number_integer()) {
        refuse("has an added token without an id");
      }
      off(one, "single_word", "an added token");
      const auto number = id->get<int64_t>();
      if (number < 0 || number > INT32_MAX) refuse("has an added token of id {}", number);
      parts_.added.push_back({.name = text(one, "content", ""),
                              .id = static_cast<int32_t>(number),
                              .special = flag(one, "special", false),
                              .strip_left = flag(one, "lstrip", false),
                              .strip_right = flag(one, "rstrip", false)});
    }
  }

  const std::string& name_;
  const json& about_;
  BpeParts parts_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

std::shared_ptr<const Tokenizer> bpe_from_json(const std::string& name, std::string content,
                                               const json& about) {
  BpeParts parts = Reader(name, about).read();
  parts.files = {{"tokenizer.json", std::move(content)}};
  return bpe_tokenizer(name, std::move(parts));
}

}  // namespace dltrain
