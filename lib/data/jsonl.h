// JSON Lines: a JSON object a line, plain or gzip, whose texts are tokenised.
//
// Three uses of the texts of a record:
//   document            all records are one stream of tokens, with an end of text behind each
//   prompt, completion  a sample each: prompt, completion and an end of text; the loss counts the
//                       completion and the end
//   source, target      a sample each for an encoder and a decoder: `source` and an end of text,
//                       `source_lengths` (of the source without its padding; where a model reads
//                       it), `decoder_input` (a begin of text and the target) and the target with
//                       an end of text
// Samples have fixed lengths: longer ones lose their end, shorter ones are padded, and padding has
// kIgnoredLabel as its targets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/line_reader.h"
#include "data/token_stream.h"

namespace dltrain {

struct JsonlOptions {
  std::vector<std::string> keys = {};  // of the record's texts: one or two
  SpecialText special = SpecialText::as_text;
  int threads = 1;
};

// A line as tokens.
struct TokenRecord {
  std::vector<int32_t> texts[2];  // by key
  std::string place;              // "a.jsonl:7"
};

// Calls use(record) for each line in order; blank ones are skipped. Throws Error(data) with file
// and line for lines that are no object with a text under each key, and for texts that cannot be
// encoded.
void read_jsonl(LineReader& lines, const Tokenizer& tokenizer, const JsonlOptions& options,
                const std::function<void(TokenRecord&)>& use);
// The texts themselves, in pieces that are whole.
void read_jsonl_texts(LineReader& lines, const std::vector<std::string>& keys,
                      const std::function<void(std::string_view)>& use);

// What stands around pairs of texts. Throws Error(data) with the place `name` where the tokenizer
// lacks a token that is needed: an end of text, which serves for the others, too.
struct PairTokens {
  int32_t begin = 0, end = 0, padding = 0;
};
PairTokens pair_tokens(const Tokenizer& tokenizer, const std::string& name);

// Samples of pairs of texts; finish() makes the dataset.
class PairCollector {
 public:
  struct Options {
    int64_t length = 0;          // of `input` and `target`
    int64_t source_length = 0;   // of `source`; 0: prompt and completion
    bool source_lengths = true;  // whether samples have that field
  };
  // Throws as pair_tokens() does.
  PairCollector(std::string name, std::shared_ptr<const Tokenizer> tokenizer,
                const Options& options);
  // Throws Error(data) where the prompt leaves no room for the completion.
  void add(const TokenRecord& record);
  std::shared_ptr<const Dataset> finish();

 private:
  std::string name_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Options options_;
  PairTokens tokens_;
  std::vector<int32_t> sources_, source_lengths_, inputs_,
      targets_;  // by field, one behind another
  std::vector<int32_t> valid_, lengths_;
  std::vector<std::string> places_;
};

}  // namespace dltrain
