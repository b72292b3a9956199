// A trained language model, opened to continue texts: of a checkpoint with its own configuration,
// or of a configuration whose model.init_from has the weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/jsonl.h"
#include "generate/generator.h"
#include "train/engines.h"
#include "train/experiment.h"
#include "train/run_folder.h"

namespace dltrain {

class LanguageModel {
 public:
  // `checkpoint`: none: model.init_from. `tokenizer`: file or folder; empty: that of the run
  // folder, or beside the weights of init_from. Takes no memory for the model yet. Throws
  // ConfigError and Error(usage) for a model that cannot continue texts, Error(storage).
  LanguageModel(Experiment experiment, std::optional<ResumeChoice> checkpoint,
                const Engines& engines, const std::filesystem::path& tokenizer = {});
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  const DecoderInfo& info() const { return info_; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null: none is known
  const std::filesystem::path& source() const { return source_; }  // of the weights
  const std::string& device_note() const { return device_.note; }
  // For text_requests(); absent: prompts are continued. Throws Error where it has no tokenizer.
  std::optional<PairTokens> pair() const;

  // Takes the memory and reads the weights. Of a checkpoint with averages these are used.
  Decoder& open(int64_t slots, int64_t capacity);

 private:
  DecodeRequest request() const;

  Experiment experiment_;
  std::optional<ResumeChoice> checkpoint_;
  std::filesystem::path source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, Shape> trained_;  // shapes of the weights in the files
  ChosenDevice device_;
  DecoderInfo info_;
  std::unique_ptr<Decoder> decoder_;
};

// Requests for `copies` texts of each prompt, in order. Prompts that stand there several times
// count as further copies, so that each has its own draws. `pair`: of a model with an encoder,
// which reads the prompts as the sources of its training: with an end of text behind them.
std::vector<TextRequest> text_requests(const std::vector<std::vector<int32_t>>& prompts,
                                       int64_t copies, const std::optional<PairTokens>& pair = {});

// What generation reads of an experiment and its data: which input has the tokens of the texts that
// are continued, and the source of each, where there is one.
void describe_inputs(const Experiment& experiment, DecodeRequest& request);

// Throws Error(data) with the number of the prompt and the byte for broken UTF-8 and for characters
// that the vocabulary lacks.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& text,
                                   size_t number);

}  // namespace dltrain
