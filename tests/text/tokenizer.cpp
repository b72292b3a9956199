#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "catch.h"
#include "refusal.h"
#include "temporary_folder.h"
#include "text/huggingface.h"
#include "text/simple_tokenizers.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using TokenizerIds = std::vector<int32_t>;

std::shared_ptr<Tokenizer> chars(const std::string& alphabet,
                                 const std::vector<std::string>& special = {}) {
  return char_tokenizer("here", alphabet, special);
}

}  // namespace

TEST_CASE("a char tokenizer numbers the characters of its alphabet") {
  Alphabet seen;
  seen.add("hello é\n");
  seen.add("wörld 世");
  const auto tokenizer = chars(seen.characters());
  CHECK(seen.characters() == "\n dehlorwéö世");
  CHECK(tokenizer->vocab_size() == 12);
  CHECK(tokenizer->encode("\n d世") == TokenizerIds{0, 1, 2, 11});
  CHECK(tokenizer->decode(tokenizer->encode("hello wörld")) == "hello wörld");
  CHECK(tokenizer->encode("").empty());
}

TEST_CASE("a char tokenizer refuses characters and bytes that it does not know, with their place") {
  const auto tokenizer = chars("abc");
  CHECK_THAT(refusal_of([&] { tokenizer->encode("abé"); }),
             Contains("byte 2: the character 'é' (U+00E9) is not in the tokenizer's alphabet"));
  CHECK_THAT(refusal_of([&] { tokenizer->encode("a\x1b"); }),
             Contains("the character U+001B is not"));
  CHECK_THAT(refusal_of([&] { tokenizer->encode("ab\xffz"); }),
             Contains("byte 2: is not UTF-8: the byte 0xff"));
  CHECK_THAT(refusal_of([] { chars(""); }), Contains("here: its alphabet is empty"));
  CHECK_THAT(refusal_of([] { chars("aba"); }), Contains("has 'a' (U+0061) twice"));
  CHECK_THAT(refusal_of([] { chars("a\xc3"); }), Contains("not UTF-8"));
  CHECK_THAT(refusal_of([] { chars("ab", {"x", "x"}); }), Contains("'x' is listed twice"));
  CHECK_THAT(refusal_of([] { chars("ab", {""}); }), Contains("is empty or not UTF-8"));
}

TEST_CASE("a byte tokenizer takes any bytes, and decodes broken ones as replacement characters") {
  const auto tokenizer = byte_tokenizer("here", {});
  CHECK(tokenizer->vocab_size() == 256);
  CHECK(tokenizer->encode("a\xff") == TokenizerIds{97, 255});
  CHECK(tokenizer->decode(TokenizerIds{97, 255, 98}) ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(tokenizer->decode(tokenizer->encode("wörld")) == "wörld");
  CHECK(tokenizer->bytes_of(256).empty());
  CHECK(tokenizer->bytes_of(-1).empty());
}

TEST_CASE("the text of a token shows bytes that are no character") {
  const auto tokenizer = byte_tokenizer("here", {"<mask>"});
  CHECK(text_of_token(*tokenizer, 'a') == "a");
  CHECK(text_of_token(*tokenizer, 0xC3) == "<0xC3>");
  CHECK(text_of_token(*tokenizer, 256) == "<mask>");
  CHECK(text_of_token(*tokenizer, 257).empty());
  CHECK(text_of_token(*chars("é"), 0) == "é");
}

TEST_CASE("special tokens are text unless they are asked for") {
  const auto tokenizer = byte_tokenizer("here", {"<|endoftext|>", "<mask>", "<mask>2"});
  CHECK(tokenizer->vocab_size() == 259);
  CHECK(tokenizer->special().end_of_text == 256);
  CHECK(tokenizer->special().mask == 257);
  CHECK(!tokenizer->special().padding);
  CHECK(tokenizer->is_special(256));
  CHECK(!tokenizer->is_special(255));
  const std::string text = "a<mask><mask>2b<|endoftext|>";
  CHECK(tokenizer->encode(text).size() == text.size());
  const TokenizerIds ids = tokenizer->encode(text, SpecialText::as_tokens);
  CHECK(ids == TokenizerIds{97, 257, 258, 98, 256});
  CHECK(tokenizer->decode(ids) == text);
  CHECK(tokenizer->decode(ids, /*skip_special=*/true) == "ab");
}

TEST_CASE("a decoder gives out whole characters, and together what decode gives") {
  const auto tokenizer = byte_tokenizer("here", {});
  TextDecoder decoder(*tokenizer);
  CHECK(decoder.next(0xE4) == "");
  CHECK(decoder.next(0xB8) == "");
  CHECK(decoder.next(0x96) == "世");
  CHECK(decoder.next('a') == "a");
  CHECK(decoder.next(0xC3) == "");
  CHECK(decoder.finish() == "\xEF\xBF\xBD");
  // The result is that of Python for bytes(...).decode("utf-8", "replace").
  const TokenizerIds broken{0xF0, 0x9F, 0x98, 'x', 0xED, 0xA0, 0x80, 0xC0, 0xAF, 0xE2, 0x82};
  std::string streamed;
  for (const int32_t id : broken) streamed += decoder.next(id);
  streamed += decoder.finish();
  std::string expected = "?x??????";
  for (size_t at; (at = expected.find('?')) != std::string::npos;) {
    expected.replace(at, 1, "\xEF\xBF\xBD");
  }
  CHECK(streamed == expected);
  CHECK(tokenizer->decode(broken) == expected);
}

TEST_CASE("a saved tokenizer is read back as an equal one") {
  TemporaryFolder folder;
  CHECK(!holds_tokenizer(folder.path()));
  for (const auto& tokenizer : {chars("\n \"\\aé世", {"<|endoftext|>"}), chars("ab"),
                                byte_tokenizer("here", {"<pad>"}), byte_tokenizer("here", {})}) {
    save_tokenizer(*tokenizer, folder.path());
    CHECK(holds_tokenizer(folder.path()));
    const auto again = load_tokenizer(folder.path());
    CHECK(again->identity() == tokenizer->identity());
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    CHECK(again->kind() == tokenizer->kind());
    CHECK(load_tokenizer(folder / "tokenizer.json")->identity() == tokenizer->identity());
  }
  CHECK(chars("ab")->identity() != chars("ba")->identity());
  CHECK(chars("ab")->identity() != chars("ab", {"c"})->identity());
}

TEST_CASE("what is written for transformers gives the same ids here") {
  const std::string text = "a <pad>é世 \n\"\\é";
  for (const auto& tokenizer :
       {chars("\n \"<>\\adpé世", {"<|endoftext|>", "<pad>"}), chars("\n \"<>\\adpé世"),
        byte_tokenizer("here", {"<pad>"}), byte_tokenizer("here", {})}) {
    TemporaryFolder folder;
    for (const TokenizerFile& file : huggingface_tokenizer(*tokenizer, 32)) {
      write_file_atomically(folder / file.name, file.content);
    }
    const auto again = load_tokenizer(folder.path());
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    for (const SpecialText special : {SpecialText::as_text, SpecialText::as_tokens}) {
      TokenizerIds expected, ids;
      tokenizer->encoder(special)->encode(text, expected);
      again->encoder(special)->encode(text, ids);
      CHECK(ids == expected);
    }
    CHECK(again->special().padding == tokenizer->special().padding);
  }
}

TEST_CASE("texts of classifiers stand between begin and end for transformers too") {
  for (const bool padding : {true, false}) {
    std::vector<std::string> names{"<s>", "</s>"};
    if (padding) names.emplace_back("<pad>");
    const auto tokenizer = byte_tokenizer("here", names);
    auto files = huggingface_tokenizer(*tokenizer, 32);
    put_around_texts(*tokenizer, files);
    const auto json = nlohmann::json::parse(files.at(0).content)["post_processor"];
    CHECK(json["type"] == "TemplateProcessing");
    CHECK(json["single"].size() == 3);
    CHECK(json["single"][0]["SpecialToken"]["id"] == "<s>");
    CHECK(json["single"][1]["Sequence"]["id"] == "A");
    CHECK(json["pair"].size() == 5);
    CHECK(json["special_tokens"]["</s>"]["ids"] == std::vector<int>{257});
    const auto config = nlohmann::json::parse(files.at(1).content);
    CHECK(config["pad_token"] == (padding ? "<pad>" : "</s>"));
  }
}

TEST_CASE("a file that is no tokenizer is refused") {
  TemporaryFolder folder;
  const auto load = [&](const std::string& content) {
    folder.write("tokenizer.json", content);
    return refusal_of([&] { load_tokenizer(folder.path()); });
  };
  CHECK_THAT(refusal_of([&] { load_tokenizer(folder.path()); }), Contains("has no tokenizer file"));
  CHECK_THAT(load(""), Contains("is not a known tokenizer file"));
  CHECK_THAT(load("{"), Contains("tokenizer.json: is not JSON"));
  CHECK_THAT(load("{}"), Contains("is not a tokenizer of a known format"));
  const std::string head = R"({"format": "dltrain.tokenizer", "version": 1, )";
  CHECK_THAT(load(R"({"format": "dltrain.tokenizer", "version": 2})"), Contains("unknown version"));
  CHECK_THAT(load(head + R"("type": "word"})"), Contains("neither char nor byte"));
  CHECK_THAT(load(head + R"("type": "char"})"), Contains("has no alphabet"));
  CHECK_THAT(load(head + R"("type": "char", "alphabet": 3})"), Contains("has no alphabet"));
  CHECK_THAT(load(head + R"("type": "char", "alphabet": "aa"})"), Contains("twice"));
  CHECK_THAT(load(head + R"("type": "byte", "special_tokens": [1]})"), Contains("not a string"));
  CHECK_THAT(load(head + R"("type": "byte", "special_tokens": {}})"), Contains("not a list"));
}

TEST_CASE("text may be cut where cut() says") {
  const auto tokenizer = chars("aé");
  const std::string text = "aéé";
  CHECK(tokenizer->cut(text, 2) == 1);
  CHECK(tokenizer->cut(text, 3) == 3);
  const auto special = chars("ab\n", {"<x>"});
  CHECK(special->cut("ab\nab", 4) == 3);
  CHECK(special->cut("ababab", 4) == 0);
}

TEST_CASE("tokenizer_config.json declares the begin and the end of a text") {
  const auto made = byte_tokenizer("here", {"<|endoftext|>", "<|im_end|>", "<stop>", "<go>"});
  const std::string named = made->identity();
  TemporaryFolder folder, kept;
  folder.write("tokenizer.json", made->files()[0].content);
  folder.write("special_tokens_map.json", R"({"eos_token": "<stop>"})");
  CHECK(load_tokenizer(folder.path())->special().end_of_text == 258);
  folder.write("tokenizer_config.json",
               R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<go>"})");
  const auto loaded = load_tokenizer(folder / "tokenizer.json");
  CHECK(loaded->special().end_of_text == 257);
  CHECK(loaded->special().begin_of_text == 259);
  save_tokenizer(*loaded, kept.path());
  const auto again = load_tokenizer(kept.path());
  CHECK(again->special().end_of_text == 257);
  CHECK(again->special().begin_of_text == 259);
  CHECK(again->identity() == loaded->identity());
  CHECK(loaded->identity() != named);
  // Declarations of what the names say, and unknown ones, change nothing.
  folder.write("special_tokens_map.json", "{}");
  for (const char* end : {"\"<|endoftext|>\"", "\"</s>\"", "null"}) {
    folder.write("tokenizer_config.json",
                 fmt::format(R"({{"eos_token": {}, "bos_token": "<|endoftext|>"}})", end));
    const auto same = load_tokenizer(folder.path());
    CHECK(same->special().end_of_text == 256);
    CHECK(!same->special().begin_of_text);
    CHECK(same->identity() == named);
  }
  folder.write("tokenizer_config.json", "{");
  CHECK_THAT(refusal_of([&] { load_tokenizer(folder.path()); }),
             Contains("tokenizer_config.json: is not JSON"));
}

TEST_CASE("the difference of two tokenizers is told by the first id") {
  CHECK(tokenizer_difference(*chars("abc"), *chars("abc")).empty());
  CHECK(tokenizer_difference(*chars("abc"), *chars("acb")) == R"(id 1 is "b" there and "c" here)");
  CHECK(tokenizer_difference(*chars("abc"), *chars("ab")) == "the first 2 ids are the same");
}
