// Tokenizers: text to token ids and back.
//
// A Tokenizer does not change after it was made; any number of threads may use it. Encoding needs
// memory that is used again and again (and remembers words), so each thread takes an encoder of
// its own. Text is UTF-8; offsets count bytes.
//
// What a tokenizer knows lies in a few files (`files()`): load_tokenizer() makes an equal one of
// them, and Hugging Face's libraries read those of byte-level BPE and SentencePiece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dltrain {

// A text that cannot be encoded: Error(data) that knows where.
class EncodeError : public Error {
 public:
  EncodeError(const std::string& message, size_t offset)
      : Error(ExitCode::data, message, fmt::format("byte {}", offset)),
        reason_(message),
        offset_(offset) {}
  const std::string& reason() const { return reason_; }  // without the place
  size_t offset() const { return offset_; }              // in the text given to encode()

 private:
  std::string reason_;
  size_t offset_;
};

// Tokens with a meaning besides their text, where the vocabulary has them. They are told by the
// names that the usual vocabularies give them ("<|endoftext|>", "</s>", "[MASK]", …).
struct SpecialTokens {
  std::optional<int32_t> begin_of_text, end_of_text, padding, unknown, mask;
};

// What becomes of the names of special tokens within a text.
enum class SpecialText : uint8_t {
  as_text,    // they are text like any other: for data that anybody may have written
  as_tokens,  // they are those tokens: for prompts and chat templates
};

// One thread's means to encode.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the tokens of a text, and no others (none at its begin or end). Throws EncodeError for
  // broken UTF-8 and for characters that the vocabulary lacks; `ids` then has unspecified content.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) = 0;
};

struct TokenizerFile {
  std::string name;  // "tokenizer.json"
  std::string content;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;  // a name of tokenizer_table()
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual const SpecialTokens& special() const = 0;
  virtual std::unique_ptr<TextEncoder> encoder(SpecialText special) const = 0;

  // The bytes that a token stands for, the name of a special one, nothing for ids that stand for
  // nothing. A token may end within a character.
  virtual std::string_view bytes_of(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // Whether decoding leaves out a space at the very start of a text.
  virtual bool drops_first_space() const { return false; }
  // The id of the token whose bytes (or name) are `text`.
  virtual std::optional<int32_t> find(std::string_view text) const = 0;

  // Where a long text may be cut: the greatest position of (0, limit] at which encoding the two
  // parts gives the tokens of the whole; 0 where none was found. `limit` < text.size().
  virtual size_t cut(std::string_view text, size_t limit) const = 0;

  // What load_tokenizer() reads, each file to be written under its name.
  virtual const std::vector<TokenizerFile>& files() const = 0;

  std::vector<int32_t> encode(std::string_view text,
                              SpecialText special = SpecialText::as_text) const;
  // Bytes that are no characters become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // Hash of kind and files: equal for tokenizers that are equal.
  std::string identity() const;
};

// Text of tokens that come one at a time: gives out whole characters, and keeps the bytes of an
// unfinished one. All that it gives out, one behind another, is Tokenizer::decode() of all ids.
class TextDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit TextDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // What is certain after one more token; may be empty. Ids that the vocabulary lacks give nothing.
  std::string next(int32_t id);
  // What is left at the end.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string pending_;
};

// Reads a tokenizer from a file that `files()` gave, a Hugging Face tokenizer.json, a SentencePiece
// model, BERT's vocab.txt, or a folder that has one of these or vocab.json with merges.txt. Throws
// Error(data).
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);
// The same from GPT-2's two files, wherever they lie.
std::shared_ptr<const Tokenizer> load_vocabulary(const std::filesystem::path& vocab,
                                                 const std::filesystem::path& merges);
// Whether a folder has files of a tokenizer.
bool holds_tokenizer(const std::filesystem::path& folder);
// Writes files() into a folder.
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace dltrain
