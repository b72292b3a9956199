#include <numeric>
#include <set>

#include <zlib.h>

#include "data/text_files.h"
#include "read_data.h"
#include "temporary_folder.h"
#include "text/simple_tokenizers.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using TextIds = std::vector<int32_t>;

std::string alphabet(int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += static_cast<char>('a' + i % 26);
  return out;
}

std::string keys_text(const std::string& path, const std::string& rest) {
  return "type: text, path: '" + path + "', " + rest;
}

}  // namespace

TEST_CASE("a text is cut into sequences, whose targets are the tokens that follow") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "abcdefgh");
  const DataConfig config =
      read_data(keys_text(path, "tokenizer: char, sequence_length: 3, random_offset: false"));
  const auto data = config.open().train;
  CHECK(data->size() == 2);
  CHECK(to_string(data->fields()[0].sample) == "i32[3]");
  CHECK(ids_of(*data, 0, 0) == TextIds{0, 1, 2});
  CHECK(ids_of(*data, 1, 0) == TextIds{1, 2, 3});
  CHECK(ids_of(*data, 0, 1) == TextIds{3, 4, 5});
  CHECK(training_ids_of(*data, 1, 1, {7, 5}) == TextIds{4, 5, 6});
  CHECK(data->label_bound() == 8);
  CHECK(data->id_bound(0) == 8);
  CHECK(data->uniform_valid_targets() == 3);
  CHECK(data->tokenizer()->decode(ids_of(*data, 0, 1)) == "def");
  CHECK(data->location_of(1) == path + ", token 3");
}

TEST_CASE("the end of a text is held out for evaluation, without a token in both splits") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.txt", alphabet(100));
  const DataConfig config =
      read_data(keys_text(path, "tokenizer: char, sequence_length: 4, eval_fraction: 0.2"));
  const DataSplit split = config.open();
  CHECK(split.train->size() == 18);  // 19 fit in 80 tokens, one less with a random offset
  CHECK(split.eval->size() == 4);
  CHECK(ids_of(*split.eval, 0, 0) == TextIds{80 % 26, 81 % 26, 82 % 26, 83 % 26});
  CHECK(split.eval->location_of(0) == path + ", token 80");
  CHECK(split.eval->label_bound() == 26);
}

TEST_CASE("training shifts all sequences of an epoch by one offset, another one in each") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("{:c}", 'a' + i * i % 26);
  const std::string path = folder.write("a.txt", text);
  const DataConfig config = read_data(keys_text(path, "tokenizer: byte, sequence_length: 16"));
  const auto data = config.open().train;
  const int64_t size = data->size();
  REQUIRE(size == 61);
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const auto begin_of = [&](int64_t sample) {
      const SampleVisit visit{3, epoch * size + (sample * 7) % size};
      const TextIds ids = training_ids_of(*data, 0, sample, visit);
      const TextIds targets = training_ids_of(*data, 1, sample, visit);
      CHECK(std::equal(ids.begin() + 1, ids.end(), targets.begin()));
      std::string found;
      for (const int32_t id : ids) found += static_cast<char>(id);
      for (int64_t offset = 0; offset < 16; ++offset) {
        if (text.compare(static_cast<size_t>(sample * 16 + offset), 16, found) == 0) return offset;
      }
      return int64_t{-1};
    };
    const int64_t offset = begin_of(0);
    CHECK(offset >= 0);
    CHECK(begin_of(size - 1) == offset);
    offsets.insert(offset);
  }
  CHECK(offsets.size() > 10);
  // Evaluation, and the same text without the key, have none.
  CHECK(ids_of(*data, 0, 1) == TextIds(text.begin() + 16, text.begin() + 32));
}

TEST_CASE("several files are one text, with an end of text between where there is such a token") {
  TemporaryFolder folder;
  folder.write("b.txt", "de");
  const std::string first = folder.write("a.txt", "abc");
  const std::string pattern = folder / "*.txt";
  const auto plain =
      read_data(keys_text(pattern, "tokenizer: char, sequence_length: 4")).open().train;
  CHECK(ids_of(*plain, 0, 0) == TextIds{0, 1, 2, 3});
  const auto data = read_data(keys_text(pattern,
                                        "tokenizer: {type: char, special_tokens: "
                                        "<|endoftext|>}, sequence_length: 5"))
                        .open()
                        .train;
  CHECK(ids_of(*data, 0, 0) == TextIds{0, 1, 2, 5, 3});
  CHECK(ids_of(*data, 1, 0) == TextIds{1, 2, 5, 3, 4});
  const auto list = read_data("type: text, path: ['" + (folder / "b.txt").string() + "', '" +
                              first + "'], tokenizer: byte, sequence_length: 4")
                        .open()
                        .train;
  CHECK(ids_of(*list, 0, 0) == TextIds{'d', 'e', 'a', 'b'});
}

TEST_CASE("empty files among others are left out") {
  TemporaryFolder folder;
  folder.write("a.txt", "");
  folder.write("b.txt", "abc");
  folder.write("c.txt", "\xEF\xBB\xBF");
  const std::string keys = "tokenizer: {type: char, special_tokens: <|endoftext|>}, ";
  const auto data =
      read_data(keys_text(folder / "*.txt", keys + "sequence_length: 2")).open().train;
  CHECK(ids_of(*data, 0, 0) == TextIds{0, 1});
  CHECK(ids_of(*data, 1, 0) == TextIds{1, 2});
  folder.write("b.txt", "");
  CHECK_THAT(data_refusal(keys_text(folder / "*.txt", keys + "sequence_length: 2")),
             Contains("a.txt: is empty"));
}

TEST_CASE("the evaluation split has the alphabet of the training split") {
  TemporaryFolder folder;
  const std::string train = folder.write("train.txt", "abcabc");
  const std::string eval = folder.write("eval.txt", "ccbb");
  const std::string keys = "type: text, tokenizer: char, sequence_length: 2, train: {path: '" +
                           train + "'}, eval: {path: '" + eval + "'}";
  const DataConfig config = read_data(keys);
  const DataSplit split = config.open();
  CHECK(ids_of(*split.eval, 0, 0) == TextIds{2, 2});
  CHECK(split.eval->size() == 1);
  CHECK(ids_of(*split.eval, 1, 0) == TextIds{2, 1});
  folder.write("eval.txt", "ab\ncxb");
  CHECK_THAT(data_refusal(keys), Contains("eval.txt:1:3: the character U+000A is not in the"));
  CHECK_THAT(data_refusal("type: text, sequence_length: 2, train: {path: '" + train +
                          "', tokenizer: char}, eval: {path: '" + eval + "', tokenizer: byte}"),
             Contains("data.eval has another tokenizer than data.train: id 0 is \"a\" there"));
}

TEST_CASE("a compressed text and one with a byte order mark are read") {
  TemporaryFolder folder;
  gzFile file = gzopen((folder / "a.txt.gz").c_str(), "wb9");
  gzwrite(file, "abab", 4);
  gzclose(file);
  folder.write("b.txt",
               "\xEF\xBB\xBF"
               "abab");
  for (const char* name : {"a.txt.gz", "b.txt"}) {
    const auto data =
        read_data(keys_text(folder / name, "tokenizer: char, sequence_length: 3")).open().train;
    CHECK(ids_of(*data, 0, 0) == TextIds{0, 1, 0});
  }
}

TEST_CASE("what changes images is refused for text") {
  for (const char* key : {"mixup: {}", "cutmix: {}", "random_affine: {}"}) {
    const std::string name(key, std::string_view(key).find(':'));
    CHECK_THROWS_WITH(
        read_data(keys_text("a", fmt::format("tokenizer: char, sequence_length: 2, {}", key))),
        Contains(name + " is for images, not for text"));
  }
  CHECK_THROWS_WITH(read_data(keys_text(
                        "a", "tokenizer: char, sequence_length: 2, transforms: [horizontal_flip]")),
                    Contains("transforms is for images, not for text"));
}

TEST_CASE("a key of other kinds is told with the kinds that have it") {
  const std::string text = "tokenizer: char, sequence_length: 2, ";
  CHECK_THROWS_WITH(read_data(keys_text("a", text + "length_buckets: 2")),
                    Contains("unknown key 'length_buckets' in data (type text); types jsonl, "
                             "text_classification have it\n"));
  CHECK_THROWS_WITH(
      read_data("type: jsonl, path: a, label: y, " + text),
      Contains("unknown key 'label' in data (type jsonl); type text_classification has it\n"));
}

TEST_CASE("bad text is refused with file, line and byte") {
  TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  const auto refusal = [&](const std::string& text, const std::string& rest) {
    folder.write("a.txt", text);
    return data_refusal(keys_text(path, rest));
  };
  const std::string chars = "tokenizer: char, sequence_length: 2";
  CHECK_THAT(refusal("", chars), Contains("a.txt: is empty"));
  CHECK_THAT(refusal("ab\nc\xFF"
                     "d",
                     chars),
             Contains("a.txt:2:2: is not UTF-8: the byte 0xff"));
  const std::string utf16(
      "\xFF\xFE"
      "a\0b\0",
      6);
  CHECK_THAT(refusal(utf16, chars), Contains("a.txt:1:1: is UTF-16; save it as UTF-8"));
  CHECK_THAT(refusal("ab", chars),
             Contains("a.txt: has 2 tokens; one sequence of 2 and its targets need 3"));
  CHECK_THAT(refusal("abcdef", chars + ", eval_fraction: 0.1"),
             Contains("a.txt: data.eval_fraction 0.1 leaves 1 of 6 tokens for evaluation; one "
                      "sequence of 2 and its targets need 3"));
  CHECK_THAT(refusal("abcdef", chars + ", eval_fraction: 0.01"),
             Contains("leaves 0 of 6 tokens for evaluation"));
  CHECK_THAT(refusal("abcdef", chars + ", eval_fraction: 0.999999"),
             Contains("leaves 0 of 6 tokens for training"));
  CHECK_THAT(refusal("abz", "tokenizer: {type: char, alphabet: ab}, sequence_length: 2"),
             Contains("a.txt:1:3: the character 'z'"));
  CHECK_THAT(data_refusal(keys_text(folder / "none*", chars)),
             Contains("No such file or folder: " + (folder / "none*").string()));
  CHECK_THAT(data_refusal(keys_text(folder / "none", chars)), Contains("No such file or folder"));
  CHECK_THAT(
      data_refusal(keys_text(folder.path(), chars)),
      Contains("is a folder; data.path takes a file, a list of files, or a pattern such as '" +
               (folder / "*").string()));
  std::filesystem::create_directory(folder / "texts");
  folder.write("texts/a.txt", "abcd");
  CHECK_THAT(data_refusal(keys_text(folder / "text/*.txt", chars)),
             Contains("did you mean " + (folder / "texts/*.txt").string() + "?"));
}

TEST_CASE("pieces and threads do not change the tokens of a text") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += i % 7 == 0 ? "é\n" : i % 5 == 0 ? "世" : i % 3 == 0 ? "the line " : "ab";
  }
  const TextFile file(folder.write("a.txt", text));
  Alphabet seen;
  seen.add(text);
  const std::string golden = DLTRAIN_SOURCE_DIR "/tests/golden/tokenizers/";
  for (const auto& tokenizer : std::vector<std::shared_ptr<const Tokenizer>>{
           char_tokenizer("here", seen.characters(), {}),
           char_tokenizer("here", seen.characters(), {"<x>"}), load_tokenizer(golden + "unigram"),
           load_tokenizer(golden + "spm_bpe")}) {
    const TextIds expected = tokenizer->encode(text);
    for (const int threads : {1, 3}) {
      for (const size_t piece : {size_t{1}, size_t{5}, size_t{64}, size_t{100000}}) {
        TextIds ids;
        tokenize(file, *tokenizer, {.threads = threads, .piece = piece},
                 [&](std::span<const int32_t> more) {
                   ids.insert(ids.end(), more.begin(), more.end());
                 });
        CHECK(ids == expected);
      }
    }
  }
}
