// Keys and opening that kinds of token data share: sequences of a token stream.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/config.h"
#include "data/token_stream.h"
#include "data/token_windows.h"

namespace dltrain {

// Training that begins with short sequences.
struct CurriculumConfig : Located {
  CurriculumOptions options;
  void describe(Fields& f);
};

struct SequenceConfig : DatasetConfig {
  int64_t sequence_length = 0;
  std::optional<CurriculumConfig> curriculum;
  bool random_offset = true;
  std::optional<double> mlm_probability;
  std::optional<int64_t> mask_token_id;

  void describe(Fields& f) override;
  void validate(Problems& problems) const override;
  bool is_one_text() const override { return true; }
  bool has_tokens() const override { return true; }
  std::string next_token_input() const override { return mlm_probability ? "" : kInputField; }
  std::shared_ptr<const LengthPlan> length_plan(const Dataset& dataset, int64_t global_batch,
                                                uint64_t seed) const override;
  std::shared_ptr<const Dataset> open(const Opening& how) const override;
  DataSplit open_split(const HeldOut& part, const Opening& how) const override;
  std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& train,
      const Opening& how) const override;

  // All tokens, for `dltrain data prepare`; of the evaluation split with that of the training
  // split. `file`: for ids that are not in files yet, see TokenCollector.
  std::shared_ptr<const TokenStream> open_tokens(const TokenStream* train = nullptr,
                                                 const std::filesystem::path& file = {}) const {
    return open_stream(train != nullptr && wants_tokenizer() ? train->tokenizer() : nullptr, file);
  }
  // The tokens of a stream of so many that eval_fraction holds out, the last ones.
  static int64_t held_out(int64_t tokens, double eval_fraction);

 protected:
  // `tokenizer`: that of the training split, for the evaluation split; null: none is given.
  // `file`: for the ids, where they are collected; empty: in memory.
  virtual std::shared_ptr<const TokenStream> open_stream(
      const std::shared_ptr<const Tokenizer>& tokenizer,
      const std::filesystem::path& file) const = 0;
  // Whether open_stream() wants the tokenizer of the training split.
  virtual bool wants_tokenizer() const { return false; }
  // The data, in errors: "input.txt".
  virtual std::string name() const = 0;

 private:
  std::shared_ptr<const Dataset> windows(std::shared_ptr<const TokenStream> stream, int64_t first,
                                         int64_t count, bool training) const;
  // Masked where mlm_probability says so.
  std::shared_ptr<const Dataset> masked(std::shared_ptr<const Dataset> windows) const;
};

}  // namespace dltrain
