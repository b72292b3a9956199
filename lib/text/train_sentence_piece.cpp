#include "text/train_sentence_piece.h"

#include <unordered_map>

#include <sentencepiece_trainer.h>

#include "text/formats.h"

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
      empty_ = empty_ && value_.empty();
    }
  }
  const std::string& value() const override { return value_; }
  bool empty() const { return empty_; }  // so far
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<std::optional<std::string_view>()>& next_;
  std::string value_;
  bool done_ = false;
  bool empty_ = true;
};

// Returns the number that follows `words` in the library's message; empty if they do not occur.
std::string number_after(const std::string& status, std::string_view words) {
  const size_t at = status.find(words);
  if (at == std::string::npos) return {};
  const size_t begin = at + words.size();
  return status.substr(begin, status.find_first_not_of("0123456789", begin) - begin);
}

// Rewords messages of the library such as "Internal: trainer_interface.cc(660) [condition]
// Vocabulary size too high (400). Please set it to a value <= 266."
std::string reworded(const std::string& status, int64_t vocab_size) {
  if (const auto most = number_after(status, "set it to a value <= "); !most.empty()) {
    return fmt::format("the text is too small for a vocabulary of {} tokens: the maximum is {}",
                       vocab_size, most);
  }
  const std::string few = fmt::format("smaller than required_chars. {} vs ", vocab_size);
  if (const auto least = number_after(status, few); !least.empty()) {
    return fmt::format(
        "a vocabulary of {} tokens is too small for this text: bytes, special tokens and "
        "characters need {} (a smaller character coverage encodes rare ones as bytes)",
        vocab_size, least);
  }
  const size_t condition = status.rfind("] ");
  return fmt::format("SentencePiece cannot make a vocabulary of {} tokens from this text: {}",
                     vocab_size,
                     condition == std::string::npos ? status : status.substr(condition + 2));
}

}  // namespace

std::shared_ptr<const Tokenizer> train_sentence_piece(
    const std::function<std::optional<std::string_view>()>& next_line,
    const TrainSentencePieceOptions& options) {
  std::string special;
  for (const std::string& token : options.special_tokens) {
    special += (special.empty() ? "" : ",") + token;
  }
  // The number of threads changes the order of sums, so it is fixed.
  const std::unordered_map<std::string, std::string> arguments{
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"control_symbols", special},  // ordinary text unless they are asked for
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},  // indentation of programs
      {"byte_fallback", "true"},
      {"num_threads", "4"},
      {"minloglevel", "2"}};
  Lines lines(next_line);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
  if (!status.ok()) {
    throw Error(ExitCode::data, lines.empty() ? "the text is empty"
                                              : reworded(status.ToString(), options.vocab_size));
  }
  return sentence_piece_tokenizer("the trained model", std::move(model));
}

}  // namespace dltrain
