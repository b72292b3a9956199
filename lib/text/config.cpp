#include "text/config.h"

#include "text/simple_tokenizers.h"

namespace dltrain {
namespace {

Key special_tokens_key() {
  return {.doc =
              "Names of special tokens, whose ids follow those of the text: <|endoftext|> stands "
              "between documents, <mask> where mlm_probability masks",
          .scalar_ok = true,
          .known_as = {"additional_special_tokens"}};
}

std::shared_ptr<const Tokenizer> load_kind(const std::string& path, std::string_view kind) {
  auto tokenizer = load_tokenizer(path);
  if (tokenizer->kind() == kind) return tokenizer;
  throw Error(ExitCode::data, fmt::format("holds a tokenizer of type {}", tokenizer->kind()), path);
}

struct CharConfig final : TokenizerConfig {
  std::optional<std::string> alphabet;
  std::vector<std::string> special_tokens;

  void describe(Fields& f) override {
    f.text("alphabet", alphabet,
           {.doc = "The characters in the order of their ids; absent: those of the training text "
                   "in the order of their code points"});
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
  void validate(Problems& problems) const override {
    if (path ? vocab || merges : !vocab || !merges) {
      problems.add(place, "a bpe tokenizer needs path, or vocab and merges");
    }
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return path ? load_kind(*path, "bpe") : load_vocabulary(*vocab, *merges);
  }
};

struct SentencePieceConfig final : TokenizerConfig {
  std::string path;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "The .model file, or a folder that has tokenizer.model",
            .required = true,
            .is_path = true,
            .known_as = {"model", "model_file"}});
    TokenizerConfig::describe(f);
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return load_kind(path, "sentencepiece");
  }
};

struct WordPieceConfig final : TokenizerConfig {
  std::string path;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "A vocab.txt (with the flags of tokenizer_config.json beside it), a "
                   "tokenizer.json, or a folder that has one",
            .required = true,
            .is_path = true,
            .known_as = {"vocab", "vocab_file"}});
    TokenizerConfig::describe(f);
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return load_kind(path, "wordpiece");
  }
};

struct FileConfig final : TokenizerConfig {
  std::string path;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "A tokenizer.json, or a folder that has one: of a run, of `dltrain data "
                   "prepare`, of Hugging Face",
            .required = true,
            .is_path = true,
            .known_as = {"file", "folder"}});
    TokenizerConfig::describe(f);
  }
  std::shared_ptr<const Tokenizer> open(const TextPieces&) const override {
    return load_tokenizer(path);
  }
};

}  // namespace

void TokenizerConfig::describe(Fields& f) {
  f.boolean("parse_special", parse_special,
            {.doc = "Names of special tokens in the text are these tokens; else they are text like "
                    "any other"});
}

KindRow<TokenizerConfig> sentencepiece_row() {
  return {"sentencepiece", "A model of SentencePiece, unigram or BPE",
          make_kind_of<SentencePieceConfig>};
}

KindRow<TokenizerConfig> wordpiece_row() {
  return {"wordpiece", "Words and their parts as BERT has them", make_kind_of<WordPieceConfig>};
}

KindRow<TokenizerConfig> char_row() {
  return {"char", "One token a character; the alphabet is that of the training text",
          make_kind_of<CharConfig>};
}

KindRow<TokenizerConfig> byte_row() {
  return {"byte", "One token a byte, 256 of them", make_kind_of<ByteConfig>};
}

KindRow<TokenizerConfig> bpe_row() {
  return {"bpe", "Byte-level byte-pair encoding as GPT-2, Llama 3 and Qwen have it",
          make_kind_of<BpeConfig>};
}

KindRow<TokenizerConfig> file_row() {
  return {"file", "Read from a file or folder, whatever its kind", make_kind_of<FileConfig>};
}

const KindTable<TokenizerConfig>& tokenizer_table() {
  static const KindTable<TokenizerConfig> table{
      "tokenizer",
      {char_row(), byte_row(), bpe_row(), sentencepiece_row(), wordpiece_row(), file_row()}};
  return table;
}

}  // namespace dltrain
