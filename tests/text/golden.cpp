// Tokens and texts that other libraries gave (scripts/record_golden_tokenizers.py).
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "catch.h"
#include "temporary_folder.h"
#include "text/huggingface.h"
#include "text/sentence_piece_model.h"
#include "text/tokenizer.h"
#include "text/train_sentence_piece.h"
#include "text/unigram_search.h"

using namespace dltrain;

namespace {

using GoldenIds = std::vector<int32_t>;

const std::filesystem::path kGolden =
    std::filesystem::path(DLTRAIN_SOURCE_DIR) / "tests" / "golden" / "tokenizers";

nlohmann::json cases_of(const std::string& folder) {
  return nlohmann::json::parse(slurp(kGolden / folder / "cases.json"));
}

std::string streamed(const Tokenizer& tokenizer, const GoldenIds& ids) {
  TextDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.next(id);
  return text + decoder.finish();
}

void check(const Tokenizer& tokenizer, const nlohmann::json& cases, SpecialText special) {
  const auto encoder = tokenizer.encoder(special);
  for (int pass = 0; pass < 2; ++pass) {  // the second time from what the encoder remembers
    for (const auto& one : cases) {
      const auto text = one[0].get<std::string>();
      const auto expected = one[1].get<GoldenIds>();
      INFO(text);
      GoldenIds ids;
      encoder->encode(text, ids);
      CHECK(ids == expected);
      CHECK(tokenizer.decode(ids) == one[2].get<std::string>());
      CHECK(streamed(tokenizer, ids) == one[2].get<std::string>());
    }
  }
}

// The bytes of the tokens, as they stand within a text.
std::string bytes_of(const Tokenizer& tokenizer, const GoldenIds& ids) {
  std::string out;
  for (const int32_t id : ids) out += tokenizer.bytes_of(id);
  return out;
}

// A random text has the same tokens as a whole and in pieces.
void check_pieces(const Tokenizer& tokenizer) {
  const std::vector<std::string> parts{" ", " ", "  ", "\n", "the", "line", "12",   "x",
                                       "=", "é", "世", "\t", "▁",   "<s>",  "</s>", "<mask>"};
  std::string text = "begin";
  uint32_t random = 1;
  for (int i = 0; i < 4000; ++i) {
    random = random * 1664525 + 1013904223;
    text += parts[(random >> 16) % parts.size()];
  }
  for (const SpecialText special : {SpecialText::as_text, SpecialText::as_tokens}) {
    const auto encoder = tokenizer.encoder(special);
    GoldenIds expected, ids;
    encoder->encode(text, expected);
    int pieces = 0;
    for (std::string_view rest = text; !rest.empty(); ++pieces) {
      size_t at = 0;
      for (size_t limit = 30; at == 0 && limit < rest.size(); limit *= 2) {
        at = tokenizer.cut(rest, limit);
        CHECK(at <= limit);
      }
      if (at == 0) at = rest.size();
      if (pieces == 0) {
        encoder->encode(rest.substr(0, at), ids);
      } else {
        tokenizer.encode_rest(*encoder, rest.substr(0, at), ids);
      }
      rest.remove_prefix(at);
    }
    CHECK(ids == expected);
    CHECK(pieces > 100);
  }
}

}  // namespace

TEST_CASE("byte-level BPE gives the tokens of Hugging Face's tokenizers and of tiktoken") {
  for (const char* folder : {"bpe", "llama", "digits"}) {
    INFO(folder);
    const auto tokenizer = load_tokenizer(kGolden / folder);
    CHECK(tokenizer->kind() == "bpe");
    REQUIRE(tokenizer->special().end_of_text);
    const auto golden = cases_of(folder);
    CHECK(golden["cases"].size() > 20);
    check(*tokenizer, golden["cases"], SpecialText::as_text);
    check(*tokenizer, golden["specials"], SpecialText::as_tokens);
  }
}

TEST_CASE("WordPiece gives the tokens of Hugging Face's tokenizers") {
  for (const char* folder : {"wordpiece", "wordpiece_cased"}) {
    INFO(folder);
    const auto tokenizer = load_tokenizer(kGolden / folder);
    CHECK(tokenizer->kind() == "wordpiece");
    CHECK(tokenizer->special().mask == 4);
    CHECK(tokenizer->special().unknown == 1);
    const auto golden = cases_of(folder);
    CHECK(golden["cases"].size() > 20);
    check(*tokenizer, golden["cases"], SpecialText::as_text);
    check(*tokenizer, golden["specials"], SpecialText::as_tokens);
    TemporaryFolder saved;
    save_tokenizer(*tokenizer, saved.path());
    CHECK(load_tokenizer(saved.path())->identity() == tokenizer->identity());
  }
}

TEST_CASE("the flags beside a vocab.txt are honoured, and what is wrong with it is said") {
  TemporaryFolder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\nÉtat\netat\n##s\n中\n");
  CHECK(load_tokenizer(folder.path())->encode("États 中中") == GoldenIds{3, 4, 5, 5});
  folder.write("tokenizer_config.json", R"({"do_lower_case": false})");
  CHECK(load_tokenizer(folder.path())->encode("États etat 中中") == GoldenIds{2, 4, 3, 5, 5});
  folder.write("tokenizer_config.json", R"({"do_lower_case": 3})");
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("do_lower_case is neither"));
  folder.write("vocab.txt", "a\nb\n");
  folder.write("tokenizer_config.json", "{}");
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("has no token [UNK]"));
}

TEST_CASE("a BPE tokenizer is saved as a tokenizer.json that gives the same tokens") {
  TemporaryFolder folder;
  for (const char* name : {"bpe", "llama", "digits"}) {
    const auto tokenizer = load_tokenizer(kGolden / name);
    save_tokenizer(*tokenizer, folder.path());
    const auto again = load_tokenizer(folder / "tokenizer.json");
    CHECK(again->identity() == tokenizer->identity());
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    check(*again, cases_of(name)["cases"], SpecialText::as_text);
    check(*again, cases_of(name)["specials"], SpecialText::as_tokens);
  }
}

TEST_CASE("a text that is cut where cut() says has the tokens of the whole") {
  std::string text;
  const auto golden = cases_of("bpe");
  for (const auto& one : golden["cases"]) {
    for (const char* between : {"\n", "\nand ", "x\n", ".\nThe", "\n\nA"}) {
      text += one[0].get<std::string>() + between;
    }
  }
  for (const char* folder : {"bpe", "llama", "digits"}) {
    const auto tokenizer = load_tokenizer(kGolden / folder);
    const GoldenIds expected = tokenizer->encode(text);
    size_t cuts = 0;
    for (size_t limit = 1; limit < text.size(); limit += 7) {
      const size_t at = tokenizer->cut(text, limit);
      if (at == 0) continue;
      ++cuts;
      CHECK(at <= limit);
      GoldenIds ids = tokenizer->encode(text.substr(0, at));
      const GoldenIds rest = tokenizer->encode(text.substr(at));
      ids.insert(ids.end(), rest.begin(), rest.end());
      CHECK(ids == expected);
    }
    INFO(folder);
    CHECK((cuts > 20) == (std::string(folder) != "llama"));  // which has a token with strip_left
  }
}

TEST_CASE("SentencePiece models give the tokens and texts of their library's Python package") {
  TemporaryFolder folder;
  for (const char* name : {"unigram", "spm_bpe"}) {
    const auto tokenizer = load_tokenizer(kGolden / name);
    CHECK(tokenizer->kind() == "sentencepiece");
    CHECK(tokenizer->vocab_size() == 500);
    CHECK(tokenizer->special().unknown == 0);
    CHECK(tokenizer->special().begin_of_text == 1);
    CHECK(tokenizer->special().end_of_text == 2);
    CHECK(tokenizer->special().mask == 3);
    check(*tokenizer, cases_of(name)["cases"], SpecialText::as_text);
    CHECK(tokenizer->encode("a</s>b", SpecialText::as_tokens) == [&] {
      GoldenIds ids = tokenizer->encode("a");
      ids.push_back(2);
      const GoldenIds rest = tokenizer->encode("b");
      ids.insert(ids.end(), rest.begin(), rest.end());
      return ids;
    }());
    save_tokenizer(*tokenizer, folder.path());
    CHECK(load_tokenizer(folder.path())->identity() == tokenizer->identity());
  }
  folder.write("tokenizer.model", "\n\x05 not a model");
  CHECK_THROWS_WITH(load_tokenizer(folder.path()),
                    Catch::Matchers::Contains("not a readable SentencePiece model"));
}

TEST_CASE("SentencePiece needs no whole text where words are independent") {
  check_pieces(*load_tokenizer(kGolden / "unigram"));
  check_pieces(*load_tokenizer(kGolden / "spm_bpe"));
  SentencePieceModel model;
  for (const char* piece : {"a", "▁a", "▁▁", "▁▁a"}) model.pieces.push_back({.text = piece});
  CHECK(has_separate_words(model));
  model.pieces.push_back({.text = "▁a▁"});
  CHECK_FALSE(has_separate_words(model));
}

TEST_CASE("a text after another one has no space of its own") {
  for (const char* name : {"unigram", "spm_bpe", "bpe"}) {
    INFO(name);
    const auto tokenizer = load_tokenizer(kGolden / name);
    const auto encoder = tokenizer->encoder(SpecialText::as_text);
    const std::string space = tokenizer->kind() == "sentencepiece" ? " " : "";
    // Tokens span some of these borders.
    for (const std::string before : {"n=12;", "n=1", "the li", "Q: 60+14?\nA:"}) {
      for (const std::string text : {"even", "2", "ne of", " 74", "世", ""}) {
        GoldenIds ids = tokenizer->encode(before);
        const GoldenIds more = tokenizer->encode_after(*encoder, before, ids, text);
        CHECK(bytes_of(*tokenizer, more) == text);
        ids.insert(ids.end(), more.begin(), more.end());
        CHECK(bytes_of(*tokenizer, ids) == space + before + text);
      }
    }
    CHECK(tokenizer->encode_after(*encoder, "", {}, "even") == tokenizer->encode("even"));
    try {
      tokenizer->encode_after(*encoder, "n=12;", tokenizer->encode("n=12;"), "ab\xFF");
      FAIL("accepted");
    } catch (const EncodeError& error) {
      CHECK(error.offset() == 2);
    }
  }
}

TEST_CASE("equally likely pieces of a unigram model are chosen as Hugging Face's tokenizers do") {
  const auto tokenizer = load_tokenizer(kGolden / "unigram");
  CHECK(tokenizer->encode("testestestestes") == GoldenIds{260, 390, 268, 275, 304, 390, 304});
}

TEST_CASE("a user-defined piece of a unigram model beats its likely parts") {
  using Type = SentencePieceModel::Type;
  SentencePieceModel model;
  model.kind = SentencePieceModel::Kind::unigram;
  model.pieces = {{"<unk>", 0, Type::unknown}, {"a", -1, Type::normal}};
  model.pieces.push_back({"aaaaaaaa", 0, Type::user_defined});
  const auto parts = UnigramSearch(model)("aaaaaaaaa");
  REQUIRE(parts.size() == 2);
  CHECK(std::max(parts[0].id, parts[1].id) == 2);
}

TEST_CASE("a unigram model goes out as a tokenizer.json, and comes back as what it was") {
  const auto tokenizer = load_tokenizer(kGolden / "unigram");
  TemporaryFolder folder;
  nlohmann::json json, config;
  for (const TokenizerFile& file : huggingface_tokenizer(*tokenizer, 64)) {
    folder.write(file.name, file.content);
    if (file.name == "tokenizer.json") json = nlohmann::json::parse(file.content);
    if (file.name == "tokenizer_config.json") config = nlohmann::json::parse(file.content);
  }
  CHECK(load_tokenizer(folder.path())->identity() == tokenizer->identity());
  CHECK(config["tokenizer_class"] == "PreTrainedTokenizerFast");
  CHECK(config["mask_token"] == "<mask>");
  const nlohmann::json& model = json["model"];
  CHECK(model["type"] == "Unigram");
  CHECK(model["unk_id"] == 0);
  CHECK(model["byte_fallback"] == true);
  REQUIRE(model["vocab"].size() == 500);
  // By id the same pieces, a space as U+2581; what is found in texts is a log probability.
  for (int32_t id = 300; id < 500; ++id) {
    const std::string piece = model["vocab"][static_cast<size_t>(id)][0];
    const std::string bytes(tokenizer->bytes_of(id));
    CHECK(std::count(bytes.begin(), bytes.end(), ' ') * 2 + static_cast<int64_t>(bytes.size()) ==
          static_cast<int64_t>(piece.size()));
    CHECK(model["vocab"][static_cast<size_t>(id)][1].get<double>() < 0);
  }
  CHECK(json["added_tokens"].size() == 3);
  CHECK(json["added_tokens"][0]["content"] == "<unk>");
  CHECK(json["added_tokens"][2]["content"] == "</s>");
  // This one joins spaces and has no table of replacements.
  std::vector<std::string> steps;
  for (const auto& step : json["normalizer"]["normalizers"]) steps.push_back(step["type"]);
  CHECK(steps == std::vector<std::string>{"Replace", "Replace", "Prepend", "Replace"});
  // Byte-pair models are read from the model's own file.
  const auto bpe = load_tokenizer(kGolden / "spm_bpe");
  for (const TokenizerFile& file : huggingface_tokenizer(*bpe, 64)) {
    CHECK(file.name != "tokenizer.json");
  }
}

TEST_CASE("what a SentencePiece model says of itself, and files that are cut off") {
  // pieces {"<unk>", unknown}, {"a", −1.5}; trainer_spec: unigram; normalizer_spec.
  const std::string model(
      "\n\x09\n\x05<unk>\x18\x02"
      "\n\x08\n\x01"
      "a\x15\x00\x00\xC0\xBF"
      "\x12\x02\x18\x01"
      "\x1A\x07\x12\x03xyz\x20\x00",
      34);
  const SentencePieceModel read = read_sentence_piece_model("here", model);
  REQUIRE(read.pieces.size() == 2);
  CHECK(read.pieces[0].type == SentencePieceModel::Type::unknown);
  CHECK(read.pieces[1].text == "a");
  CHECK(read.pieces[1].score == -1.5f);
  CHECK(read.charsmap == "xyz");
  CHECK_FALSE(read.joins_spaces);
  CHECK(read.space_in_front);
  const nlohmann::json json = nlohmann::json::parse(unigram_json(read));
  CHECK(json["normalizer"]["normalizers"][0]["precompiled_charsmap"] == "eHl6");
  CHECK(json["model"]["byte_fallback"] == false);
  for (size_t size = 0; size < model.size(); ++size) {
    try {
      read_sentence_piece_model("here", model.substr(0, size));
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::data);
    }
  }
  SentencePieceModel other = read;
  other.space_after_words = true;
  CHECK(unigram_json(other).empty());
}

TEST_CASE("a learnt SentencePiece vocabulary gives back any text, and is the same every time") {
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i)
    lines.push_back(fmt::format("line {} of  the text, {} squared", i, i * i));
  for (int i = 0; i < 100; ++i) lines.emplace_back("        return it");
  const auto learn = [&](const std::string& type, int64_t size) {
    size_t at = 0;
    const auto next = [&]() -> std::optional<std::string_view> {
      if (at == lines.size()) return {};
      return lines[at++];
    };
    return train_sentence_piece(next,
                                {.type = type, .vocab_size = size, .special_tokens = {"<mask>"}});
  };
  for (const char* type : {"unigram", "bpe"}) {
    const auto tokenizer = learn(type, 320);
    CHECK(tokenizer->vocab_size() == 320);
    CHECK(tokenizer->special().mask);
    CHECK(tokenizer->encode("the text").size() < 8);
    // The spaces at the begin are one token.
    const auto indented = tokenizer->encode("        return it"),
               plain = tokenizer->encode("return it");
    CHECK(indented.size() <= plain.size() + 1);
    for (const std::string text :
         {"line 3 of  the text", "two\nlines \t and é世 <mask>", " space"}) {
      CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    }
    const auto ids = tokenizer->encode("a <mask>"),
               masked = tokenizer->encode("a <mask>", SpecialText::as_tokens);
    CHECK(std::ranges::count(ids, *tokenizer->special().mask) == 0);
    CHECK(masked.back() == tokenizer->special().mask);
    CHECK(learn(type, 320)->identity() == tokenizer->identity());
    check_pieces(*tokenizer);
  }
  CHECK_THROWS_WITH(
      learn("unigram", 100000),
      Catch::Matchers::Contains("too small for a vocabulary of 100000 tokens: the maximum is "));
  lines[7] = "\xFF";
  CHECK_THROWS_AS(learn("bpe", 320), EncodeError);
}
