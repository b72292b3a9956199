// The common part of the kinds of token data: sequences of a token stream.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/chat.h"
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

// An entry of `sources`.
struct SourceConfig : ConfigObject {
  std::string name;
  std::vector<std::string> path;
  std::optional<double> weight, max_epochs;
  void describe(Fields& f);
};

struct SequenceConfig : DatasetConfig {
  using Paths = std::vector<std::string>;  // files and glob patterns
  using TokenizerPointer = std::shared_ptr<const Tokenizer>;
  Paths path;
  std::vector<SourceConfig> sources;  // instead of path
  std::unique_ptr<TokenizerConfig> tokenizer;
  int64_t sequence_length = 0;
  std::optional<CurriculumConfig> curriculum;
  bool random_offset = true;
  std::optional<double> mlm_probability;
  std::optional<int64_t> mask_token_id;
  bool document_mask = false;
  std::optional<int64_t> end_token_id;

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
  // split. `file` stores new ids, see TokenCollector. Throws Error(usage) for `sources`.
  std::shared_ptr<const TokenStream> open_tokens(const TokenStream* train = nullptr,
                                                 const std::filesystem::path& file = {}) const;
  // Returns how names of special tokens in texts are read. The text of files of tokens is unknown.
  SpecialText special_text() const {
    return tokenizer && kind != "tokens" ? tokenizer->special_text() : SpecialText::as_tokens;
  }
  // The format of chats; absent: the data are none. Throws like ChatFormat().
  virtual std::optional<ChatFormat> chat(const Tokenizer& /*tokenizer*/) const { return {}; }
  // Returns the number of tokens at the end of a stream that eval_fraction holds out.
  static int64_t held_out(int64_t tokens, double eval_fraction);

 protected:
  // `tokenizer` is that of the training split or of the first source; null: the configured one.
  // `file` stores the ids; empty: they are kept in memory.
  virtual std::shared_ptr<const TokenStream> open_stream(
      const Paths& paths, const TokenizerPointer& tokenizer,
      const std::filesystem::path& file) const = 0;
  // Opens files that are no stream, or the windows of their stream.
  virtual std::shared_ptr<const Dataset> open_files(const Paths& paths,
                                                    const TokenizerPointer& tokenizer,
                                                    bool training) const;
  virtual DataSplit split_files(const Paths& paths, const TokenizerPointer& tokenizer,
                                const HeldOut& part) const;
  // Returns true if the evaluation split needs the tokenizer of the training split.
  bool wants_tokenizer() const { return tokenizer && tokenizer->learns(); }
  void describe_path(Fields& f, const std::string& doc, const char* known_as);
  void describe_tokenizer(Fields& f);
  // Warns of documents that nothing separates.
  static void warn_of_joined_documents(const std::string& name, const Tokenizer& tokenizer);

 private:
  // Opens `path`, or each source and joins them.
  DataSplit open_all(
      TokenizerPointer shared,
      const std::function<DataSplit(const Paths&, const TokenizerPointer&)>& open) const;
  std::shared_ptr<const Dataset> windows(std::shared_ptr<const TokenStream> stream, int64_t first,
                                         int64_t count, bool training,
                                         const std::string& name) const;
  // Masks tokens if mlm_probability is set.
  std::shared_ptr<const Dataset> masked(std::shared_ptr<const Dataset> windows,
                                        const std::string& name) const;
  void validate_sources(Diagnostics& diagnostics) const;
};

}  // namespace dltrain
