// The common part of the kinds of token data: sequences of a token stream.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/config.h"
#include "data/token_stream.h"
#include "data/token_windows.h"
#include "text/config.h"

namespace dltrain {

// The key `curriculum`: training begins with short sequences.
struct CurriculumConfig : ConfigObject {
  CurriculumOptions options;
  void describe(Fields& f);
};

struct SequenceConfig : DatasetConfig {
  std::vector<std::string> path;  // files and glob patterns
  std::unique_ptr<TokenizerConfig> tokenizer;
  int64_t sequence_length = 0;
  std::optional<CurriculumConfig> curriculum;
  bool random_offset = true;
  std::optional<double> mlm_probability;
  std::optional<int64_t> mask_token_id;

  void describe(Fields& f) override;
  void validate(Diagnostics& diagnostics) const override;
  bool is_one_text() const override { return true; }
  bool has_tokens() const override { return true; }
  std::string next_token_input() const override { return mlm_probability ? "" : kInputField; }
  std::shared_ptr<const LengthPlan> length_plan(const Dataset& dataset, int64_t global_batch,
                                                uint64_t seed) const override;
  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override;
  DataSplit open_split(const HeldOut& part, const OpenOptions& how) const override;
  std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& train,
      const OpenOptions& how) const override;

  // Opens all tokens, for `dltrain data prepare`. `train` is the training split for the evaluation
  // split. `file` stores new ids, see TokenCollector.
  std::shared_ptr<const TokenStream> open_tokens(const TokenStream* train = nullptr,
                                                 const std::filesystem::path& file = {}) const {
    return open_stream(train != nullptr && wants_tokenizer() ? train->tokenizer() : nullptr, file);
  }
  // Returns the number of tokens at the end of a stream that eval_fraction holds out.
  static int64_t held_out(int64_t tokens, double eval_fraction);

 protected:
  // `tokenizer` is that of the training split for the evaluation split, or null. `file` stores the
  // ids; empty: they are kept in memory.
  virtual std::shared_ptr<const TokenStream> open_stream(
      const std::shared_ptr<const Tokenizer>& tokenizer,
      const std::filesystem::path& file) const = 0;
  // Returns true if the evaluation split needs the tokenizer of the training split.
  bool wants_tokenizer() const { return tokenizer && tokenizer->learns(); }
  // The name of the data in errors.
  const std::string& name() const { return path.front(); }
  void describe_path(Fields& f, const std::string& doc, const char* known_as);
  void describe_tokenizer(Fields& f);

 private:
  std::shared_ptr<const Dataset> windows(std::shared_ptr<const TokenStream> stream, int64_t first,
                                         int64_t count, bool training) const;
  // Masks tokens if mlm_probability is set.
  std::shared_ptr<const Dataset> masked(std::shared_ptr<const Dataset> windows) const;
};

}  // namespace dltrain
