// The keys of `type: tokens`.
#include "base/error.h"
#include "data/config.h"
#include "data/sequence_config.h"
#include "data/text_files.h"
#include "data/token_files.h"

namespace dltrain {
namespace {

struct TokensConfig final : SequenceConfig {
  TokenLayout layout = TokenLayout::automatic;
  std::optional<int64_t> vocab_size;

  void describe(Fields& f) override {
    describe_path(f, "Files of token ids, or glob patterns of them, in this order", "bin");
    f.choice("layout", layout,
             {{"auto", TokenLayout::automatic, "header if there is one, otherwise uint16"},
              {"uint16", TokenLayout::raw16, "16 bits per id without a header (nanoGPT)"},
              {"uint32", TokenLayout::raw32, "32 bits per id without a header"},
              {"header", TokenLayout::header, "a header of 1024 bytes (llm.c, data prepare)"}},
             {.doc = "Layout of the files", .known_as = {"dtype"}});
    f.integer("vocab_size", vocab_size,
              {.doc = "Ids are below this; if absent, that of tokens.json beside the files, or the "
                      "largest id plus one",
               .min = 1,
               .max = static_cast<double>(kMaxVocabulary)});
    f.one_of("tokenizer", tokenizer, tokenizer_table(),
             {.doc = "The tokenizer of the ids; if absent, the one beside the files, if any"});
    SequenceConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    SequenceConfig::validate(diagnostics);
    if (tokenizer && tokenizer->learns()) {
      diagnostics.add(*tokenizer, "", "a tokenizer cannot be built from tokens without text");
    }
  }

 protected:
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
  return {"tokens", "Sequences of token ids from prepared .bin files, mapped into memory",
          make_kind_of<TokensConfig>};
}

}  // namespace dltrain
