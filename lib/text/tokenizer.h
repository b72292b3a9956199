// Tokenizers convert text to token ids and back.
//
// A Tokenizer is immutable, so any number of threads may use it. Encoding needs scratch memory and
// a cache of words, so each thread creates its own encoder. Text is UTF-8; offsets count bytes.
//
// A tokenizer is stored in a few files (`files()`): load_tokenizer() makes an equal one from them.
// Hugging Face's libraries read the files of byte-level BPE and SentencePiece.
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

// The largest vocabulary that is read from tokenizer files.
inline constexpr int64_t kMaxTokens = 1 << 21;

// Error(data) for a text that cannot be encoded, with the offset of the cause.
class EncodeError : public Error {
 public:
  EncodeError(const std::string& message, size_t offset)
      : Error(ExitCode::data, message, fmt::format("byte {}", offset)),
        reason_(message),
        offset_(offset) {}
  const std::string& reason() const { return reason_; }  // the message without the place
  size_t offset() const { return offset_; }              // in the text given to encode()

 private:
  std::string reason_;
  size_t offset_;
};

// Throws EncodeError at the first byte that does not belong to a valid character. `offset` is the
// position of `text` within the text that the error refers to.
void check_utf8(std::string_view text, size_t offset = 0);

// Tokens with a special meaning, if the vocabulary has them. The begin and the end of a text are
// those that tokenizer_config.json or special_tokens_map.json beside the tokenizer declare; the
// others are recognised by their common names ("<|endoftext|>", "</s>", "[MASK]", …).
struct SpecialTokens {
  std::optional<int32_t> begin_of_text, end_of_text, padding, unknown, mask;
};

// The encoding of names of special tokens within a text.
enum class SpecialText : uint8_t {
  as_text,    // as ordinary text: for untrusted data
  as_tokens,  // as the special tokens: for prompts and chat templates
};

// Encodes text. Each thread needs its own.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the tokens of a text, without tokens for its begin or end. Throws EncodeError for
  // invalid UTF-8 and for characters that the vocabulary lacks; `ids` is then unspecified.
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
  virtual std::unique_ptr<TextEncoder> encoder(SpecialText special) const = 0;
  // Returns true if decoding drops a space at the start of a text.
  virtual bool drops_first_space() const { return false; }
  // Returns the greatest position in (0, limit] at which a text can be split without changing its
  // tokens, or 0 if none was found. encode_rest() encodes what follows. `limit` < text.size().
  virtual size_t cut(std::string_view text, size_t limit) const = 0;

  // The largest id plus one.
  int64_t vocab_size() const { return static_cast<int64_t>(bytes_.size()); }
  const SpecialTokens& special() const { return special_; }
  // Returns the bytes of a token or the name of a special token; empty for an id without a token. A
  // token may end within a character.
  std::string_view bytes_of(int32_t id) const {
    return id >= 0 && id < vocab_size() ? bytes_[static_cast<size_t>(id)] : std::string_view();
  }
  bool is_special(int32_t id) const {
    return id >= 0 && id < vocab_size() && is_special_[static_cast<size_t>(id)];
  }
  // The files that load_tokenizer() reads.
  const std::vector<TokenizerFile>& files() const { return files_; }

  std::vector<int32_t> encode(std::string_view text,
                              SpecialText special = SpecialText::as_text) const;
  // As encoder.encode() for the rest of a longer text, because some tokenizers begin each text with
  // a space.
  void encode_rest(TextEncoder& encoder, std::string_view rest, std::vector<int32_t>& ids) const;
  // Returns the tokens of `text` after those of `before`: what both texts together have more, or,
  // if a token spans the border, those of the rest. Offsets of errors are those in `text`.
  std::vector<int32_t> encode_after(TextEncoder& encoder, std::string_view before,
                                    std::span<const int32_t> before_ids,
                                    std::string_view text) const;
  // Invalid UTF-8 becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // Hash of kind, files and a declared end of text: equal for equal tokenizers.
  std::string identity() const;

  // Reads the begin and the end of a text from a file beside the tokenizer's own and keeps it with
  // them. Throws Error(data) at the place `name` if it is not JSON.
  void declare(const std::string& name, TokenizerFile file);

 protected:
  // A text that no token joins with what follows, which is then not the begin of a text; empty if
  // begins are encoded like any other part.
  virtual std::string_view apart() const { return {}; }

  // The constructors of derived classes fill these.
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> is_special_;    // by id
  SpecialTokens special_;
  std::vector<TokenizerFile> files_;

 private:
  size_t declarations_ = 0;              // the last of files_
  std::optional<int32_t> declared_end_;  // if it is another than that of the common names
};

// Returns the text of one token as it stands within a text, with its space; bytes that are no whole
// character are written as <0xC3>.
std::string text_of_token(const Tokenizer& tokenizer, int32_t id);

// Decodes tokens one at a time. Returns complete characters and keeps the bytes of an incomplete
// one. The concatenation of all results equals Tokenizer::decode() of all ids.
class TextDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit TextDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // Returns the text that one more token completes; it may be empty. Unknown ids add no text.
  std::string next(int32_t id);
  // Returns the rest of the text.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string pending_;
};

// Reads a tokenizer from a file of `files()`, a Hugging Face tokenizer.json, a SentencePiece model,
// BERT's vocab.txt, or a folder that has one of these or vocab.json with merges.txt. Throws
// Error(data).
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);
// Reads a tokenizer from GPT-2's two files.
std::shared_ptr<Tokenizer> load_vocabulary(const std::filesystem::path& vocab,
                                           const std::filesystem::path& merges);
// Returns true if a folder has the files of a tokenizer.
bool holds_tokenizer(const std::filesystem::path& folder);
// Describes how the tokens of two tokenizers differ ("id 40 is "K" there and "J" here"); empty if
// they are the same. Compares the tokens of the ids, because a vocabulary has several file formats.
std::string tokenizer_difference(const Tokenizer& there, const Tokenizer& here);
// Writes files() into a folder.
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace dltrain
