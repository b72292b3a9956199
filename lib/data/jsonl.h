// JSON Lines: one JSON object per line, plain or gzip, with texts that are tokenized.
//
// The texts of a record have three uses:
//   document            all records form one stream of tokens, each followed by an end of text
//   prompt, completion  each record is a sample: prompt, completion and an end of text; the loss
//                       counts the completion and the end
//   messages            each record is a sample, a chat (data/chat.h); the loss counts the answers
//   source, target      each record is a sample for an encoder and a decoder: `source` with an end
//                       of text, optionally `source_lengths` (without padding), `decoder_input` (a
//                       begin of text and the target), and the target with an end of text
// Samples have a fixed length: longer ones are truncated, shorter ones are padded. The targets of
// padding are kIgnoredLabel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/dataset.h"
#include "data/line_reader.h"
#include "data/token_stream.h"

namespace dltrain {

struct JsonlOptions {
  std::vector<std::string> keys = {};  // of the record's texts: one or two
  const ChatFormat* chat = nullptr;    // the only key is that of a list of turns
  bool continues = false;              // the second text continues the first
  SpecialText special = SpecialText::as_text;
  int threads = 1;
};

// A line as tokens.
struct TokenRecord {
  std::vector<int32_t> texts[2];                        // by key
  std::vector<std::pair<size_t, size_t>> answers = {};  // of a chat: ranges of tokens
  std::string location;                                 // "a.jsonl:7"
  std::string name = {};  // of a special token that is read as ordinary text
};

// Calls use(record) for each line in order, except blank ones. Throws Error(data) with file and
// line for lines that are not an object with a string for each key, and for texts that cannot be
// encoded.
void read_jsonl(LineReader& lines, const Tokenizer& tokenizer, const JsonlOptions& options,
                const std::function<void(TokenRecord&)>& use);
// Calls use(text) for each text of each line; `chats`: for the contents of the turns.
void read_jsonl_texts(LineReader& lines, const std::vector<std::string>& keys, bool chats,
                      const std::function<void(std::string_view)>& use);

// A text and the name of its class, which may be missing.
struct LabelledText {
  std::string text;
  std::optional<std::string> label;
  std::string location;
};
// Calls use(text) for each line. Labels are strings, numbers or booleans. Throws Error(data) with
// file and line for other lines, and with `labelled` for lines without a label.
void read_labelled_jsonl(LineReader& lines, const std::string& text_key,
                         const std::string& label_key, bool labelled,
                         const std::function<void(LabelledText)>& use);

// The tokens around pairs of texts. The end of text replaces missing ones; Throws Error(data) at
// the place `name` if the tokenizer has none.
struct PairTokens {
  int32_t begin = 0, end = 0, padding = 0;
};
PairTokens pair_tokens(const Tokenizer& tokenizer, const std::string& name);

// Collects samples of pairs of texts.
class PairCollector {
 public:
  struct Options {
    int64_t length = 0;          // of `input` and `target`
    int64_t source_length = 0;   // of `source`; 0: prompt and completion
    bool source_lengths = true;  // add this field
    bool chats = false;
  };
  // Throws like pair_tokens(), but not for chats.
  PairCollector(std::string name, std::shared_ptr<const Tokenizer> tokenizer,
                const Options& options);
  void add(const TokenRecord& record);
  // After the records of a file: warns of those that are cut. Throws Error(data) if prompts leave
  // no room for the completion.
  void end_file(const std::string& file);
  std::shared_ptr<const Dataset> finish();

 private:
  // The records of a file that have more tokens than a sample.
  struct TooLong {
    int64_t count = 0;
    std::string first = {};   // its location
    size_t first_tokens = 0;  // of the first
    void check(size_t tokens, int64_t most, const std::string& location);
  };

  std::string name_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Options options_;
  PairTokens tokens_;
  std::vector<int32_t> sources_, source_lengths_, inputs_, targets_;  // of all samples
  std::vector<int32_t> lengths_;  // of inputs and targets without padding
  std::vector<std::string> locations_;
  int64_t records_ = 0;  // of the file
  TooLong long_samples_, long_sources_, long_prompts_;
};

}  // namespace dltrain
