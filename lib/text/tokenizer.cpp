#include "text/tokenizer.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/lfs_pointer.h"
#include "base/owned_files.h"
#include "base/utf8.h"
#include "text/formats.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxFile = 256 << 20;

std::string read(const fs::path& path) {
  return read_file(path, kMaxFile, ExitCode::data);
}

// Returns the main file of the tokenizer in a folder, or empty if there is none.
fs::path main_file(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  }
  return {};
}

std::shared_ptr<const Tokenizer> load_file(const fs::path& path) {
  if (path.filename() == "vocab.json") {
    return load_vocabulary(path, path.parent_path() / "merges.txt");
  }
  std::error_code ignored;
  if (path.filename() == "vocab.txt") {
    const fs::path config = path.parent_path() / "tokenizer_config.json";
    return word_piece_from_vocabulary(path.string(), read(path),
                                      fs::is_regular_file(config, ignored) ? read(config) : "");
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
  for (const TokenizerFile& file : files()) {
    add(file.name);
    add(file.content);
  }
  return hasher.hex();
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
  if (!fs::is_directory(path, ignored)) return load_file(path);
  const fs::path file = main_file(path);
  if (file.empty()) {
    throw Error(ExitCode::data,
                "has no tokenizer file (tokenizer.json, tokenizer.model, vocab.txt, or "
                "vocab.json with merges.txt)",
                path.string());
  }
  // Folders of SentencePiece models often also have a tokenizer.json that cannot be read.
  const fs::path model = path / "tokenizer.model";
  if (file.filename() != "tokenizer.json" || !fs::is_regular_file(model, ignored)) {
    return load_file(file);
  }
  try {
    return load_file(file);
  } catch (const Error&) {
    return load_file(model);
  }
}

std::shared_ptr<const Tokenizer> load_vocabulary(const fs::path& vocab, const fs::path& merges) {
  return bpe_from_vocabulary(vocab.string(), read(vocab), merges.string(), read(merges));
}

bool holds_tokenizer(const fs::path& folder) {
  return !main_file(folder).empty();
}

void save_tokenizer(const Tokenizer& tokenizer, const fs::path& folder) {
  std::vector<std::string> names;
  for (const TokenizerFile& file : tokenizer.files()) names.push_back(file.name);
  claim_files(folder, names);
  for (const TokenizerFile& file : tokenizer.files()) {
    write_file_atomically(folder / file.name, file.content);
  }
}

}  // namespace dltrain
