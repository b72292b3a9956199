#include "text/bpe.h"

#include <random>

#include "catch.h"
#include "refusal.h"
#include "temporary_folder.h"
#include "text/bpe_merges.h"
#include "text/byte_level.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using BpeIds = std::vector<int32_t>;

// By definition: the lowest rank, the leftmost of equals, until none is left.
BpeIds merged_plainly(const MergeTable& table, BpeIds ids) {
  while (true) {
    BpeMerge best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const BpeMerge merge = table.find(ids[i], ids[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (best.id < 0) return ids;
    ids[at] = best.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::string hugging_face(const std::string& model, const std::string& rest = "") {
  return R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )" + rest +
         R"("model": {"type": "BPE", )" + model + "}}";
}

}  // namespace

TEST_CASE("pieces of any length are merged by rank, from the left") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    MergeTable table(40);
    int32_t next = 4;
    for (uint32_t rank = 0; rank < 30; ++rank) {
      const auto left = static_cast<int32_t>(random() % static_cast<uint32_t>(next));
      const auto right = static_cast<int32_t>(random() % static_cast<uint32_t>(next));
      if (table.find(left, right).id < 0) table.put(left, right, {rank, next++});
    }
    BpeIds ids(random() % 300);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 4);
    const BpeIds expected = merged_plainly(table, ids);
    Merger merger(table);
    ids.resize(merger.merge(ids));
    CHECK(ids == expected);
  }
}

TEST_CASE("a piece of a million bytes takes no quadratic time") {
  const std::filesystem::path golden =
      std::filesystem::path(DLTRAIN_SOURCE_DIR) / "tests" / "golden" / "tokenizers";
  for (const char* folder : {"bpe", "llama"}) {
    const auto tokenizer = load_tokenizer(golden / folder);
    for (const char* unit : {"a", " ", "\n", "é", "1", "?"}) {
      std::string text;
      for (int i = 0; i < 1000000; ++i) text += unit;
      const BpeIds ids = tokenizer->encode(text);
      CHECK(tokenizer->decode(ids) == text);
    }
  }
}

TEST_CASE("the byte-level alphabet writes every byte, and reads back what it wrote") {
  CHECK(written_in_alphabet(" the\n") == "ĠtheĊ");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    CHECK(bytes_from_alphabet(written_in_alphabet(one)) == one);
  }
  CHECK(!bytes_from_alphabet("a b"));
  CHECK(!bytes_from_alphabet("世"));
}

TEST_CASE("bytes that a small vocabulary lacks are refused with their place") {
  TemporaryFolder folder;
  folder.write("tokenizer.json",
               hugging_face(R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])"));
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokenizer->encode("abba") == BpeIds{2, 1, 0});
  CHECK_THAT(refusal_of([&] { tokenizer->encode("ab!abc"); }),
             Contains("byte 2: the byte 0x21 is not in the tokenizer's vocabulary"));
  CHECK_THAT(refusal_of([&] { tokenizer->encode("ab\xE4"); }), Contains("byte 2: is not UTF-8"));
}

TEST_CASE("what a tokenizer.json wants and this program does not do is refused by name") {
  TemporaryFolder folder;
  const auto load = [&](const std::string& content) {
    folder.write("tokenizer.json", content);
    return refusal_of([&] { load_tokenizer(folder.path()); });
  };
  const std::string vocab = R"("vocab": {"a": 0, "b": 1, "ab": 2})";
  const std::string good = vocab + R"(, "merges": [["a", "b"]])";
  folder.write("tokenizer.json", hugging_face(good));
  CHECK(load_tokenizer(folder.path())->vocab_size() == 3);
  CHECK_THAT(load(R"({"model": {"type": "Unigram"}})"), Contains("a model of type Unigram"));
  CHECK_THAT(load(R"({"model": 3})"), Contains("the file has no model"));
  CHECK_THAT(load(R"({"model": {"type": 3}})"), Contains("type is not a string"));
  CHECK_THAT(load(hugging_face(good + R"(, "byte_fallback": true)")), Contains("byte_fallback"));
  CHECK_THAT(load(hugging_face(good + R"(, "end_of_word_suffix": "</w>")")),
             Contains("end_of_word_suffix"));
  CHECK_THAT(load(hugging_face(good, R"("normalizer": {"type": "Lowercase"}, )")),
             Contains("normalizer of type Lowercase"));
  CHECK_THAT(load(R"({"model": {)" + good + "}}"), Contains("has no pre_tokenizer"));
  CHECK_THAT(load(R"({"pre_tokenizer": {"type": "Metaspace"}, "model": {)" + good + "}}"),
             Contains("pre_tokenizer of type Metaspace"));
  CHECK_THAT(
      load(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}, "model": {)" +
           good + "}}"),
      Contains("add_prefix_space"));
  const auto split = [&](const std::string& one) {
    return R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" + one +
           R"(, {"type": "ByteLevel", "use_regex": false, "add_prefix_space": false}]}, "model": {)" +
           good + "}}";
  };
  CHECK_THAT(
      load(split(R"({"type": "Split", "pattern": {"Regex": "a("}, "behavior": "Isolated"})")),
      Contains("its pattern is not a regular expression"));
  CHECK_THAT(
      load(split(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"})")),
      Contains("Split without a Regex"));
  CHECK_THAT(load(split(R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Merged"})")),
             Contains("behavior Merged"));
  CHECK_THAT(load(split("7")), Contains("a pre_tokenizer is not an object"));
  CHECK_THAT(load(hugging_face(vocab)), Contains("has no merges"));
  CHECK_THAT(load(hugging_face(vocab + R"(, "merges": ["ab"])")),
             Contains("merge 0 ('ab') is not"));
  CHECK_THAT(load(hugging_face(vocab + R"(, "merges": ["a c"])")), Contains("'c', which is not"));
  CHECK_THAT(load(hugging_face(vocab + R"(, "merges": ["a b", "ab a"])")),
             Contains("merge 1 gives no token"));
  CHECK_THAT(load(hugging_face(R"("vocab": {"a": 0, "b": 0}, "merges": [])")),
             Contains("two tokens of id 0"));
  CHECK_THAT(load(hugging_face(R"("vocab": {"a": -1}, "merges": [])")), Contains("id -1"));
  CHECK_THAT(load(hugging_face(R"("vocab": {"a": 99999999}, "merges": [])")), Contains("99999999"));
  CHECK_THAT(load(hugging_face(R"("vocab": {"a": "x"}, "merges": [])")),
             Contains("is not an integer"));
  CHECK_THAT(load(hugging_face(R"("vocab": {}, "merges": [])")), Contains("has no tokens"));
  CHECK_THAT(load(hugging_face(good, R"("added_tokens": [{"id": 5}], )")), Contains("added token"));
  CHECK_THAT(load(hugging_face(good, R"("added_tokens": [{"content": "x"}], )")),
             Contains("without an id"));
}

TEST_CASE("errors in vocab.json and merges.txt are named with their line") {
  TemporaryFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  const auto merges = [&](const std::string& text) {
    folder.write("merges.txt", text);
    return refusal_of([&] { load_tokenizer(folder.path()); });
  };
  CHECK_THAT(refusal_of([&] { load_tokenizer(folder.path()); }),
             Contains("merges.txt: cannot open"));
  CHECK_THAT(merges("#version: 0.2\na b\nab\n"), Contains("merges.txt:3: expected two tokens"));
  CHECK_THAT(merges("a b c\n"), Contains("merges.txt:1: expected two tokens"));
  CHECK_THAT(merges("a \xFF\n"), Contains("merges.txt: is not UTF-8"));
  folder.write("merges.txt", "#version: 0.2\r\na b\r\n");
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokenizer->special().end_of_text == 3);
  CHECK(tokenizer->encode("ab") == BpeIds{2});
  folder.write("vocab.json", "[1]");
  CHECK_THAT(refusal_of([&] { load_tokenizer(folder.path()); }), Contains("is not a JSON object"));
}

TEST_CASE("a pattern that needs too many steps ends with an error") {
  TemporaryFolder folder;
  folder.write("tokenizer.json",
               R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                   {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"},
                   {"type": "ByteLevel", "use_regex": false, "add_prefix_space": false}]},
                   "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK_THAT(refusal_of([&] { tokenizer->encode(std::string(60, 'a') + "b"); }),
             Contains("too many steps"));
}
