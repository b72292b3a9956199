#include "text/tokenizer.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/owned_files.h"
#include "base/utf8.h"
#include "text/formats.h"
#include "text/special_tokens.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxFile = 256 << 20;
// Files that declare special tokens; the last one wins.
constexpr const char* kDeclarations[] = {"special_tokens_map.json", "tokenizer_config.json"};

std::string read(const fs::path& path) {
  return read_file(path, kMaxFile, ExitCode::data);
}

// Returns the main file of the tokenizer in a folder, or empty if there is none.
fs::path main_file(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    if (is_file(folder / name)) return folder / name;
  }
  return {};
}

std::shared_ptr<Tokenizer> load_without_declarations(const fs::path& path) {
  if (path.filename() == "vocab.json") {
    return load_vocabulary(path, path.parent_path() / "merges.txt");
  }
  if (path.filename() == "vocab.txt") {
    const fs::path config = path.parent_path() / "tokenizer_config.json";
    return word_piece_from_vocabulary(path.string(), read(path),
                                      is_file(config) ? read(config) : "");
  }
  std::string content = read(path);
  if (is_lfs_pointer(content)) throw Error(ExitCode::data, kIsLfsPointer, path.string());
  // JSON begins with a brace, a SentencePiece model with the tag of its first piece.
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && content[first] == '{') {
    return tokenizer_from_json(path.string(), std::move(content));
  }
  if (!content.empty() && content[0] == '\n') {
    return sentence_piece_tokenizer(path.string(), std::move(content));
  }
  throw Error(ExitCode::data,
              "is not a known tokenizer file (tokenizer.json, a SentencePiece model)",
              path.string());
}

// Encodes both texts together. Offsets of errors are those in `text`.
std::vector<int32_t> encode_both(TextEncoder& encoder, std::string_view before,
                                 std::string_view text) {
  std::vector<int32_t> ids;
  try {
    encoder.encode(std::string(before).append(text), ids);
  } catch (const EncodeError& error) {
    throw EncodeError(error.reason(), error.offset() - std::min(error.offset(), before.size()));
  }
  return ids;
}

std::shared_ptr<const Tokenizer> load_file(const fs::path& path) {
  auto tokenizer = load_without_declarations(path);
  const std::string own = path.filename().string();
  if (own != "tokenizer.json" && own != "tokenizer.model" && !own.starts_with("vocab.")) {
    return tokenizer;
  }
  for (const char* name : kDeclarations) {
    const fs::path file = path.parent_path() / name;
    if (is_file(file)) tokenizer->declare(file.string(), {name, read(file)});
  }
  return tokenizer;
}

}  // namespace

void check_utf8(std::string_view text, size_t offset) {
  if (const auto bad = find_invalid_utf8(text)) {
    if (looks_like_utf16(text)) throw EncodeError("is UTF-16; save it as UTF-8", offset);
    throw EncodeError(fmt::format("is not UTF-8: the byte 0x{:02x} does not belong to a character",
                                  static_cast<unsigned char>(text[*bad])),
                      offset + *bad);
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<int32_t> ids;
  encoder(special)->encode(text, ids);
  return ids;
}

void Tokenizer::encode_rest(TextEncoder& encoder, std::string_view rest,
                            std::vector<int32_t>& ids) const {
  if (apart().empty()) return encoder.encode(rest, ids);
  const std::vector<int32_t> both = encode_both(encoder, apart(), rest);
  const size_t first = std::min(encode_both(encoder, {}, apart()).size(), both.size());
  ids.insert(ids.end(), both.begin() + static_cast<std::ptrdiff_t>(first), both.end());
}

std::vector<int32_t> Tokenizer::encode_after(TextEncoder& encoder, std::string_view before,
                                             std::span<const int32_t> before_ids,
                                             std::string_view text) const {
  std::vector<int32_t> ids = encode_both(encoder, before, text);
  const auto [end, rest] = std::ranges::mismatch(before_ids, ids);
  if (end == before_ids.end()) {
    ids.erase(ids.begin(), rest);
  } else {
    ids.clear();
    encode_rest(encoder, text, ids);
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  TextDecoder decoder(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.next(id);
  return text + decoder.finish();
}

std::string Tokenizer::identity() const {
  Hasher hasher;
  const auto add = [&](std::string_view text) {
    const uint64_t size = text.size();
    hasher.update(std::as_bytes(std::span(&size, 1)));
    hasher.update(std::as_bytes(std::span(text)));
  };
  add(kind());
  // Other declarations change no token.
  for (size_t i = 0; i + declarations_ < files_.size(); ++i) {
    add(files_[i].name);
    add(files_[i].content);
  }
  if (declared_end_) add(fmt::format("end of text {}", *declared_end_));
  return hasher.hex();
}

void Tokenizer::declare(const std::string& name, TokenizerFile file) {
  const nlohmann::json root = parse_json_object(name, file.content);
  const auto declared = [&](const char* key) -> std::optional<int32_t> {
    nlohmann::json value = root.value(key, nlohmann::json());
    if (value.is_object()) value = value.value("content", nlohmann::json());
    if (!value.is_string()) return {};
    const auto text = value.get<std::string>();
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (is_special(id) && name_of_token(*this, id) == text) return id;
    }
    return {};
  };
  if (const auto end = declared("eos_token"); end && end != special_.end_of_text) {
    special_.end_of_text = declared_end_ = end;
  }
  // GPT-2 declares one token for both: texts are separated by it and do not begin with it.
  if (const auto begin = declared("bos_token"); begin && begin != special_.end_of_text) {
    special_.begin_of_text = begin;
  }
  const bool kept = std::ranges::any_of(
      files_, [&](const TokenizerFile& other) { return other.name == file.name; });
  if (kept) return;  // WordPiece has it for other reasons
  files_.push_back(std::move(file));
  ++declarations_;
}

std::string text_of_token(const Tokenizer& tokenizer, int32_t id) {
  std::string_view bytes = tokenizer.bytes_of(id);
  std::string out;
  while (const auto bad = find_invalid_utf8(bytes)) {
    out += bytes.substr(0, *bad);
    out += fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes[*bad]));
    bytes.remove_prefix(*bad + 1);
  }
  return out.append(bytes);
}

std::string TextDecoder::next(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  std::string_view bytes = tokenizer_.bytes_of(id);
  if (first_ && !bytes.empty()) {
    first_ = false;
    if (tokenizer_.drops_first_space() && bytes.front() == ' ') bytes.remove_prefix(1);
  }
  pending_ += bytes;
  std::string out;
  pending_.erase(0, append_valid_utf8(pending_, /*all=*/false, out));
  return out;
}

std::string TextDecoder::finish() {
  std::string out;
  append_valid_utf8(pending_, /*all=*/true, out);
  pending_.clear();
  first_ = true;
  return out;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (!path.empty() && !fs::is_directory(path, ignored)) return load_file(path);
  const fs::path file = main_file(path);
  if (file.empty()) {
    throw Error(ExitCode::data,
                "has no tokenizer file (tokenizer.json, tokenizer.model, vocab.txt, or "
                "vocab.json with merges.txt)",
                path.string());
  }
  // Folders of SentencePiece models often also have a tokenizer.json that cannot be read.
  const fs::path model = path / "tokenizer.model";
  try {
    return load_file(file);
  } catch (const Error&) {
    if (file.filename() != "tokenizer.json" || !is_file(model)) throw;
    return load_file(model);
  }
}

std::shared_ptr<Tokenizer> load_vocabulary(const fs::path& vocab, const fs::path& merges) {
  return bpe_from_vocabulary(vocab.string(), read(vocab), merges.string(), read(merges));
}

bool holds_tokenizer(const fs::path& folder) {
  return !main_file(folder).empty();
}

std::string tokenizer_difference(const Tokenizer& there, const Tokenizer& here) {
  if (there.identity() == here.identity()) return {};
  const auto quoted = [](std::string_view bytes) { return json_text(nlohmann::json(bytes)); };
  const int64_t both = std::min(there.vocab_size(), here.vocab_size());
  for (int32_t id = 0; id < both; ++id) {
    if (there.bytes_of(id) == here.bytes_of(id)) continue;
    return fmt::format("id {} is {} there and {} here", id, quoted(there.bytes_of(id)),
                       quoted(here.bytes_of(id)));
  }
  if (there.vocab_size() == here.vocab_size()) return {};
  return fmt::format("the first {} ids are the same", both);
}

void save_tokenizer(const Tokenizer& tokenizer, const fs::path& folder) {
  std::vector<std::string> names;
  for (const TokenizerFile& file : tokenizer.files()) names.push_back(file.name);
  // The declarations of an earlier tokenizer would count for this one.
  for (const char* name : kDeclarations) {
    if (std::ranges::find(names, name) == names.end() && lists_file(folder, name)) {
      remove_recursively(folder / name);
    }
  }
  claim_files(folder, names);
  for (const TokenizerFile& file : tokenizer.files()) {
    write_file_atomically(folder / file.name, file.content);
  }
}

}  // namespace dltrain
