// The keys of `type: tokens`.
#include "base/error.h"
#include "data/registry.h"
#include "data/sequence_config.h"
#include "data/text_files.h"
#include "data/token_files.h"
#include "text/config.h"

namespace dltrain {
namespace {

struct TokensConfig final : SequenceConfig {
  std::vector<std::string> path;
  TokenLayout layout = TokenLayout::automatic;
  std::optional<int64_t> vocab_size;
  std::unique_ptr<TokenizerConfig> tokenizer;

  void describe(Fields& f) override {
    f.texts("path", path,
            {.doc = "Files of token ids, or glob patterns of them, one behind another",
             .required = true,
             .min_size = 1,
             .scalar_ok = true,
             .is_path = true,
             .known_as = {"file", "files", "bin"}});
    f.choice("layout", layout,
             {{"auto", TokenLayout::automatic, "header where there is one, else uint16"},
              {"uint16", TokenLayout::raw16, "16 bits an id, nothing else (nanoGPT)"},
              {"uint32", TokenLayout::raw32, "32 bits an id, nothing else"},
              {"header", TokenLayout::header, "1024 bytes of header first (llm.c, data prepare)"}},
             {.doc = "How the files are written", .known_as = {"dtype"}});
    f.integer("vocab_size", vocab_size,
              {.doc = "Ids are below this; absent: what tokens.json beside the files says, or the "
                      "largest id and one",
               .min = 1,
               .max = static_cast<double>(kMaxVocabulary)});
    f.one_of("tokenizer", tokenizer, tokenizer_table(),
             {.doc = "What made the ids; absent: the tokenizer beside the files, if there is one"});
    SequenceConfig::describe(f);
  }

  void validate(Problems& problems) const override {
    SequenceConfig::validate(problems);
    if (tokenizer && tokenizer->learns()) {
      problems.add(*tokenizer, "", "tokens have no text that a tokenizer could be made of");
    }
  }

 protected:
  std::string name() const override { return path.front(); }
  std::shared_ptr<const TokenStream> open_stream(const std::shared_ptr<const Tokenizer>&,
                                                 const std::filesystem::path&) const override {
    return open_token_files({.files = expand_paths(path),
                             .layout = layout,
                             .vocab_size = vocab_size.value_or(0),
                             .tokenizer = tokenizer ? tokenizer->open({}) : nullptr});
  }
};

}  // namespace

KindRow<DatasetConfig> tokens_row() {
  return {"tokens", "Sequences of token ids of prepared .bin files, mapped into memory",
          make_kind_of<TokensConfig>};
}

}  // namespace dltrain
