#include "text/config.h"

#include <array>

#include "text/simple_tokenizers.h"

namespace dltrain {
namespace {

Key special_tokens_key() {
  return {
      .doc =
          "Names of special tokens, whose ids follow those of the text: <|endoftext|> separates "
          "documents, <mask> replaces tokens masked by mlm_probability",
      .scalar_ok = true,
      .known_as = {"additional_special_tokens"}};
}

std::shared_ptr<const Tokenizer> load_kind(const std::string& path, std::string_view kind) {
  auto tokenizer = load_tokenizer(path);
  if (kind.empty() || tokenizer->kind() == kind) return tokenizer;
  throw Error(ExitCode::data,
              fmt::format("has a tokenizer of type {}, not {}; `type: file` reads any",
                          tokenizer->kind(), kind),
              path);
}

struct CharConfig final : TokenizerConfig {
  std::optional<std::string> alphabet;
  std::vector<std::string> special_tokens;

  void describe(Fields& f) override {
    f.text("alphabet", alphabet,
           {.doc = "The characters in the order of their ids; if absent, those of the training "
                   "text in the order of their code points"});
    f.texts("special_tokens", special_tokens, special_tokens_key());
    TokenizerConfig::describe(f);
  }
  bool learns() const override { return !alphabet; }
  std::shared_ptr<const Tokenizer> open(const TextPieces& training_text) const override {
    if (alphabet) return char_tokenizer("tokenizer", *alphabet, special_tokens);
    Alphabet seen;
    training_text([&](std::string_view text) { seen.add(text); });
    return char_tokenizer("tokenizer", seen.characters(), special_tokens);
  }
};

struct ByteConfig final : TokenizerConfig {
  std::vector<std::string> special_tokens;

  void describe(Fields& f) override {
    f.texts("special_tokens", special_tokens, special_tokens_key());
    TokenizerConfig::describe(f);
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return byte_tokenizer("tokenizer", special_tokens);
  }
};

struct BpeConfig final : TokenizerConfig {
  std::optional<std::string> path, vocab, merges;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "A tokenizer.json, or a folder that has one, or vocab.json with merges.txt",
            .is_path = true,
            .known_as = {"file", "folder"}});
    f.text("vocab", vocab,
           {.doc = "Instead of path: the file of texts and ids",
            .is_path = true,
            .known_as = {"vocab_file"}});
    f.text("merges", merges,
           {.doc = "Instead of path: the file of merges",
            .is_path = true,
            .known_as = {"merges_file"}});
    TokenizerConfig::describe(f);
  }
  void validate(Diagnostics& diagnostics) const override {
    if (path ? vocab || merges : !vocab || !merges) {
      diagnostics.add(location, "a bpe tokenizer needs path, or vocab and merges");
    }
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return path ? load_kind(*path, "bpe") : load_vocabulary(*vocab, *merges);
  }
};

// A tokenizer that is read from one path.
struct PathKind {
  std::string_view kind;  // the kind that the file must have; empty: any
  const char* doc;
  std::array<const char*, 2> known_as;
};
constexpr PathKind kSentencePiece{"sentencepiece",
                                  "The .model file, or a folder that has tokenizer.model",
                                  {"model", "model_file"}};
constexpr PathKind kWordPiece{"wordpiece",
                              "A vocab.txt (with the flags of tokenizer_config.json beside it), a "
                              "tokenizer.json, or a folder that has one",
                              {"vocab", "vocab_file"}};
constexpr PathKind kAnyFile{"",
                            "A tokenizer.json, or a folder that has one: of a run, of `dltrain "
                            "data prepare`, of Hugging Face",
                            {"file", "folder"}};

template <const PathKind& kPathKind>
struct PathConfig final : TokenizerConfig {
  std::string path;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = kPathKind.doc,
            .required = true,
            .is_path = true,
            .known_as = {kPathKind.known_as.begin(), kPathKind.known_as.end()}});
    TokenizerConfig::describe(f);
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return load_kind(path, kPathKind.kind);
  }
};

}  // namespace

void TokenizerConfig::describe(Fields& f) {
  f.boolean("parse_special", parse_special,
            {.doc = "Encode the names of special tokens in the text as these tokens instead of as "
                    "ordinary text; if absent, only in pairs of texts (prompt with completion, "
                    "source with target). Prompts of `generate` are read in the same way"});
}

const KindTable<TokenizerConfig>& tokenizer_table() {
  static const KindTable<TokenizerConfig> table{
      "tokenizer",
      {{"char", "One token per character; the alphabet is that of the training text",
        make_kind_of<CharConfig>},
       {"byte", "One token per byte, 256 of them", make_kind_of<ByteConfig>},
       {"bpe", "Byte-level byte-pair encoding as in GPT-2, Llama 3 and Qwen",
        make_kind_of<BpeConfig>},
       {"sentencepiece", "A model of SentencePiece, unigram or BPE",
        make_kind_of<PathConfig<kSentencePiece>>},
       {"wordpiece", "Words and parts of words as in BERT", make_kind_of<PathConfig<kWordPiece>>},
       {"file", "Read from a file or folder of any kind", make_kind_of<PathConfig<kAnyFile>>}}};
  return table;
}

}  // namespace dltrain
