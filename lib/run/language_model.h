// A trained language model to generate text: from a checkpoint with its configuration, or from a
// configuration with model.init_from.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/run_folder.h"
#include "data/jsonl.h"
#include "experiment/experiment.h"
#include "generate/generator.h"
#include "run/engines.h"

namespace dltrain {

class LanguageModel {
 public:
  // `checkpoint`: if absent, model.init_from is used. `tokenizer`: file or folder; empty: that of
  // the run folder, or beside the weights of init_from. Allocates no memory for the model. Throws
  // ConfigError and Error(usage) for a model that cannot generate text, and Error(storage).
  LanguageModel(Experiment experiment, std::optional<ResumeChoice> checkpoint,
                const Engines& engines, const std::filesystem::path& tokenizer = {});
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const DecoderInfo& info() const { return info_; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null: none is known
  const std::filesystem::path& source() const { return source_; }  // of the weights
  const std::string& device_note() const { return device_.note; }
  // The tokens for text_requests(); absent: prompts are continued. Throws Error without a
  // tokenizer.
  std::optional<PairTokens> pair() const;

  // The format of chats, whose first turns the prompts are; null: prompts are continued.
  const ChatFormat* chat() const { return chat_ ? &*chat_ : nullptr; }
  // Replaces the format of the run's data. Throws Error(usage) without a tokenizer and like
  // ChatFormat().
  void set_chat(const std::optional<ChatConfig>& format);

  // Encodes a text as the run's data; warns once of a name that is read as ordinary text. Needs a
  // tokenizer; `before` and errors: see encode_text().
  std::vector<int32_t> encode(const std::string& text, size_t number,
                              const std::string& before = {},
                              std::span<const int32_t> before_ids = {});

  // Allocates the memory and reads the weights: the averages of a checkpoint, if it has them.
  Decoder& open(int64_t slots, int64_t capacity);

 private:
  DecodeRequest request() const;

  Experiment experiment_;
  std::optional<ResumeChoice> checkpoint_;
  std::filesystem::path source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, Shape> trained_;  // shapes of the weights in the files
  SelectedDevice device_;
  DecoderInfo info_;
  std::optional<ChatFormat> chat_;
  std::unique_ptr<Decoder> decoder_;
  bool warned_ = false;
};

// Returns requests for `copies` texts of each prompt, in order. Repeated prompts count as further
// copies, so that each has its own random numbers. `pair`: for a model with an encoder, which reads
// the prompts as sources, followed by an end of text as in training.
std::vector<TextRequest> text_requests(const std::vector<std::vector<int32_t>>& prompts,
                                       int64_t copies, const std::optional<PairTokens>& pair = {});

// The request for the model of an experiment: its precision, the input with the tokens of the
// texts, and the source, if there is one.
DecodeRequest decode_request(const Experiment& experiment);

// Returns how names of special tokens in a prompt are read: as in the data, else as tokens.
SpecialText special_text_of(const Experiment& experiment);

// The format of the data's chats; absent: they are none.
std::optional<ChatFormat> chat_of(const Experiment& experiment, const Tokenizer& tokenizer);
// The text of a prompt: in a chat the first turn of the user, before an answer.
std::string prompt_text(const ChatFormat* chat, const std::string& prompt);
// Sets what ends a text: the end of an answer in a chat, else an end of text.
void set_end(GenerateOptions& options, const ChatFormat* chat, const Tokenizer& tokenizer);

// Throws Error(data) with the number of the prompt and the byte for invalid UTF-8 and for
// characters that are not in the vocabulary. `before`: the text that is continued, and its tokens.
std::vector<int32_t> encode_text(const Tokenizer& tokenizer, SpecialText special,
                                 const std::string& text, size_t number,
                                 const std::string& before = {},
                                 std::span<const int32_t> before_ids = {});

}  // namespace dltrain
