#include "text/train_sentence_piece.h"

#include <unordered_map>

#include <sentencepiece_trainer.h>

#include "text/formats.h"
#include "text/utf8_text.h"

namespace dltrain {
namespace {

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::function<std::optional<std::string_view>()>& next) : next_(next) {
    Next();
  }
  bool done() const override { return done_; }
  void Next() override {
    const auto line = next_();
    done_ = !line;
    if (line) {
      check_utf8(*line);
      value_ = *line;
    }
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<std::optional<std::string_view>()>& next_;
  std::string value_;
  bool done_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> train_sentence_piece(
    const std::function<std::optional<std::string_view>()>& next_line,
    const TrainSentencePieceOptions& options) {
  std::string special;
  for (const std::string& token : options.special_tokens) {
    special += (special.empty() ? "" : ",") + token;
  }
  // The number of threads decides the order of sums, so it does not follow the machine.
  const std::unordered_map<std::string, std::string> arguments{
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"user_defined_symbols", special},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"byte_fallback", "true"},
      {"num_threads", "4"},
      {"minloglevel", "2"}};
  Lines lines(next_line);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
  if (!status.ok()) {
    throw Error(ExitCode::data,
                fmt::format("SentencePiece cannot make this vocabulary: {}", status.ToString()));
  }
  return sentence_piece_tokenizer("the trained model", std::move(model));
}

}  // namespace dltrain
