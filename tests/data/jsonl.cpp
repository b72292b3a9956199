#include <set>

#include "read_data.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using JsonlIds = std::vector<int32_t>;
constexpr int32_t kEnd = 256;

std::string keys_jsonl(const std::string& path, const std::string& rest) {
  return "type: jsonl, path: '" + path +
         "', tokenizer: {type: byte, special_tokens: "
         "['<|endoftext|>', <mask>]}, random_offset: false, " +
         rest;
}

}  // namespace

TEST_CASE("documents of JSON Lines are one stream with an end of text after each") {
  TemporaryFolder folder;
  const std::string path =
      folder.write("a.jsonl", "{\"text\": \"ab\", \"n\": 1}\n\n{\"text\": \"c\\u0064\"}\r\n");
  const auto data = read_data(keys_jsonl(path, "sequence_length: 5")).open().train;
  CHECK(data->size() == 1);
  CHECK(ids_of(*data, 0, 0) == JsonlIds{'a', 'b', kEnd, 'c', 'd'});
  CHECK(ids_of(*data, 1, 0) == JsonlIds{'b', kEnd, 'c', 'd', kEnd});
  const auto other = folder.write("b.jsonl", R"({"body": "abcdefghi"})");
  const DataSplit split =
      read_data(keys_jsonl(other, "field: body, sequence_length: 2, eval_fraction: 0.5")).open();
  CHECK(ids_of(*split.eval, 0, 0) == JsonlIds{'f', 'g'});
}

TEST_CASE("the loss counts completions and their end, not prompts and padding") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl",
                                        "{\"q\": \"ab\", \"a\": \"cd\"}\n"
                                        "{\"q\": \"\", \"a\": \"x\"}\n"
                                        "{\"q\": \"abcde\", \"a\": \"fgh\"}\n");
  const auto data =
      read_data(keys_jsonl(path, "prompt: q, completion: a, sequence_length: 6")).open().train;
  REQUIRE(data->size() == 3);
  CHECK(ids_of(*data, 0, 0) == JsonlIds{'a', 'b', 'c', 'd', kEnd, kEnd});
  CHECK(ids_of(*data, 1, 0) == JsonlIds{-100, 'c', 'd', kEnd, -100, -100});
  // An empty prompt is the token that begins a text.
  CHECK(ids_of(*data, 0, 1) == JsonlIds{kEnd, 'x', kEnd, kEnd, kEnd, kEnd});
  CHECK(ids_of(*data, 1, 1) == JsonlIds{'x', kEnd, -100, -100, -100, -100});
  CHECK(ids_of(*data, 0, 2) == JsonlIds{'a', 'b', 'c', 'd', 'e', 'f'});
  CHECK(ids_of(*data, 1, 2) == JsonlIds{-100, -100, -100, -100, 'f', 'g'});
  CHECK(!data->uniform_valid_targets());
  CHECK(data->id_bound(0) == 258);
  CHECK(data->location_of(2) == path + ":3");
}

TEST_CASE("SentencePiece puts a space before prompts, not before completions") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", R"({"q": "n=12;", "a": "even"})");
  for (const std::string name : {"unigram", "spm_bpe"}) {
    const auto data =
        read_data("type: jsonl, path: '" + path +
                  "', prompt: q, completion: a, sequence_length: 24, tokenizer: {type: "
                  "sentencepiece, path: '" DLTRAIN_SOURCE_DIR "/tests/golden/tokenizers/" +
                  name + "'}")
            .open()
            .train;
    const auto tokenizer = data->tokenizer();
    JsonlIds expected = tokenizer->encode_after(*tokenizer->encoder(SpecialText::as_tokens),
                                                "n=12;", tokenizer->encode("n=12;"), "even");
    CHECK(tokenizer->bytes_of(expected.front()).front() == 'e');
    expected.push_back(*tokenizer->special().end_of_text);
    JsonlIds targets = ids_of(*data, 1, 0);
    std::erase(targets, kIgnoredLabel);
    CHECK(targets == expected);
  }
}

TEST_CASE("source and target are inputs of an encoder and a decoder") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", R"({"en": "abcd", "de": "xy"})");
  const auto data =
      read_data(keys_jsonl(path, "source: en, target: de, sequence_length: 4, source_length: 6"))
          .open()
          .train;
  std::string names;
  for (const FieldSpec& field : data->fields()) names += field.name + " ";
  CHECK(names == "source source_lengths decoder_input target ");
  CHECK(ids_of(*data, 0, 0) == JsonlIds{'a', 'b', 'c', 'd', kEnd, kEnd});
  CHECK(ids_of(*data, 1, 0) == JsonlIds{5});
  CHECK(data->fields()[1].sample.shape == Shape{});
  CHECK(data->id_bound(1) == 7);
  CHECK(ids_of(*data, 2, 0) == JsonlIds{kEnd, 'x', 'y', kEnd});
  CHECK(ids_of(*data, 3, 0) == JsonlIds{'x', 'y', kEnd, -100});
  const auto cut =
      read_data(keys_jsonl(path,
                           "source: en, target: de, sequence_length: 2, source_length: 3, "
                           "source_lengths: false"))
          .open()
          .train;
  CHECK(cut->fields().size() == 3);
  CHECK(ids_of(*cut, 0, 0) == JsonlIds{'a', 'b', 'c'});
  CHECK(ids_of(*cut, 1, 0) == JsonlIds{kEnd, 'x'});
  CHECK(ids_of(*cut, 2, 0) == JsonlIds{'x', 'y'});
  CHECK_THROWS_WITH(read_data(keys_jsonl(path, "sequence_length: 2, source_lengths: false")),
                    Contains("source_lengths needs source and target"));
}

TEST_CASE("bad records are refused with their line") {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& content, const std::string& rest) {
    return data_refusal(keys_jsonl(folder.write("a.jsonl", content), rest));
  };
  const std::string two = "sequence_length: 2";
  CHECK_THAT(refusal("", two), Contains("a.jsonl: gives no tokens"));
  CHECK_THAT(refusal("{\"text\": \"a\"}\n{\"text\": 3}", two),
             Contains("a.jsonl:2: the key 'text' must be a string, not of type number"));
  CHECK_THAT(refusal("{\"body\": \"a\", \"id\": 3}", two),
             Contains("has no key 'text'; its keys are 'body', 'id'"));
  // Keys that a terminal would obey, and one without end.
  CHECK_THAT(refusal("{\"a\\u001b[2J\\u009b\\n\": 1}", two), Contains("its keys are 'a?[2J?\\n'"));
  CHECK_THAT(refusal("{\"" + std::string(1000, 'k') + "\": 1}", two),
             Contains("its keys are '" + std::string(40, 'k') + "…'"));
  CHECK_THAT(refusal("3", two), Contains("a.jsonl:1: is not a JSON object"));
  for (const char* array : {" [\n{\"text\": \"a\"}\n]", "[{\"text\": \"a\"}]"}) {
    CHECK_THAT(refusal(array, two), Contains("a.jsonl:1: begins an array, but every line must be"));
  }
  CHECK_THAT(refusal("{\"text\": \"a\"", two),
             Contains("a.jsonl:1: is not JSON: line 1, column 13: unexpected end of input"));
  CHECK_THAT(refusal("{\"text\": \"\xFF\"}", two), Contains("a.jsonl:1: is not JSON"));
  CHECK_THAT(refusal(std::string("\xFF\xFE{\0\"\0", 6), two),
             Contains("a.jsonl:1: is UTF-16; save the file as UTF-8"));
  CHECK_THAT(refusal("{\"a\": " + std::string(100000, '['), two),
             Contains("a.jsonl:1: is not JSON"));
  const std::string pair = "prompt: q, completion: a, sequence_length: 2";
  CHECK_THAT(refusal("\n{\"q\": \"abc\", \"a\": \"d\"}", pair),
             Contains("a.jsonl:2: its prompt has 3 tokens, which leaves no room"));
  CHECK_THAT(
      refusal("{\"q\": \"abc\", \"a\": \"d\"}\n{\"q\": \"a\", \"a\": \"d\"}\n"
              "{\"q\": \"abcd\", \"a\": \"d\"}",
              pair),
      Contains("a.jsonl:1: its prompt has 3 tokens") && Contains("2 of 3 prompts are too long"));
  CHECK_THAT(refusal("{\"q\": \"\", \"a\": \"\"}", pair), Contains("neither a prompt nor"));
  CHECK_THAT(refusal("\n", pair), Contains("has no records"));
  const std::string chars = "type: jsonl, tokenizer: {type: char, alphabet: ab}, ";
  folder.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"abc\"}\n");
  CHECK_THAT(
      data_refusal(chars + "sequence_length: 2, path: '" + (folder / "a.jsonl").string() + "'"),
      Contains("a.jsonl:2: the character 'c' (U+0063) is not in the tokenizer's alphabet "
               "(byte 2 of 'text')"));
  CHECK_THAT(data_refusal(chars + pair + ", path: '" + (folder / "a.jsonl").string() + "'"),
             Contains("has no end-of-text token"));
  CHECK_THROWS_WITH(read_data(keys_jsonl("a", "prompt: q, sequence_length: 2")),
                    Contains("give one of: field, prompt with completion"));
}

TEST_CASE("names of special tokens are tokens in pairs of texts and text in documents") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", R"({"text": "<mask>", "a": "b"})");
  const auto first = [&](const std::string& keys, const std::string& tokenizer) {
    return ids_of(*read_data("type: jsonl, path: '" + path + "', tokenizer: {type: byte, " +
                             tokenizer + "special_tokens: ['<|endoftext|>', <mask>]}, " + keys)
                       .open()
                       .train,
                  0, 0)[0];
  };
  const std::string pair = "prompt: text, completion: a, sequence_length: 9";
  const std::string documents = "random_offset: false, sequence_length: 2";
  CHECK(first(pair, "") == 257);
  CHECK(first("source: text, target: a, sequence_length: 9", "") == 257);
  CHECK(first(pair, "parse_special: false, ") == '<');
  CHECK(first("random_offset: false, sequence_length: 1", "parse_special: true, ") == 257);
  CHECK(first(documents, "") == '<');
}

TEST_CASE("masking hides a share of the tokens, the same for the same seed and position") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
  const std::string path = folder.write("a.jsonl", "{\"text\": \"" + text + "\"}");
  const auto data =
      read_data(keys_jsonl(path, "sequence_length: 100, mlm_probability: 0.15")).open().train;
  const auto plain = read_data(keys_jsonl(path, "sequence_length: 100")).open().train;
  CHECK(data->uniform_valid_targets() == 15);
  std::set<JsonlIds> seen;
  int masked = 0, kept = 0, changed = 0;
  for (int64_t position = 0; position < 400; ++position) {
    const int64_t sample = position % data->size();
    const JsonlIds original = ids_of(*plain, 0, sample);
    const SampleVisit visit{7, position};
    const JsonlIds ids = training_ids_of(*data, 0, sample, visit);
    const JsonlIds targets = training_ids_of(*data, 1, sample, visit);
    CHECK(training_ids_of(*data, 0, sample, visit) == ids);
    int counted = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (targets[i] == -100) {
        CHECK(ids[i] == original[i]);
        continue;
      }
      ++counted;
      CHECK(targets[i] == original[i]);
      (ids[i] == 257 ? masked : ids[i] == original[i] ? kept : changed) += 1;
    }
    CHECK(counted == 15);
    seen.insert(targets);
  }
  CHECK(seen.size() == 400);
  const double all = masked + kept + changed;
  CHECK(masked / all == Approx(0.8).margin(0.02));
  CHECK(kept / all == Approx(0.1).margin(0.02));
  CHECK(changed / all == Approx(0.1).margin(0.02));
  CHECK(ids_of(*data, 0, 3) == ids_of(*data, 0, 3));
  CHECK(ids_of(*data, 1, 3) != ids_of(*data, 1, 4));
}

TEST_CASE("masking needs a mask token within the vocabulary") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "abcdefgh");
  const std::string text =
      "type: text, path: '" + path + "', tokenizer: byte, sequence_length: 2, ";
  CHECK_THAT(data_refusal(text + "mlm_probability: 0.5"), Contains("needs a mask token"));
  CHECK_THAT(data_refusal(text + "mlm_probability: 0.5, mask_token_id: 256"),
             Contains("mask_token_id 256 is not in the vocabulary (0 to 255)"));
  const auto data =
      read_data(text + "mlm_probability: 0.5, mask_token_id: 0, random_offset: false").open().train;
  CHECK(data->uniform_valid_targets() == 1);
  CHECK_THROWS_WITH(read_data(text + "mask_token_id: 3"), Contains("needs mlm_probability"));
}
