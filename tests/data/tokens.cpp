#include <cstring>

#include "data/prepare_tokens.h"
#include "data/sequence_config.h"
#include "data/token_files.h"
#include "read_data.h"
#include "temporary_folder.h"
#include "text/simple_tokenizers.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using TokensIds = std::vector<int32_t>;

template <typename T>
std::string raw(const std::vector<T>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
}

std::string with_header(int64_t tokens, int width, const std::string& ids) {
  const auto header = token_file_header(tokens, width);
  return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + ids;
}

std::string keys_tokens(const std::string& path, const std::string& rest = "sequence_length: 2") {
  return "type: tokens, path: '" + path + "', random_offset: false, " + rest;
}

}  // namespace

TEST_CASE("token files of each layout are read, several of them as one stream") {
  TemporaryFolder folder;
  folder.write("0.bin", raw<uint16_t>({1, 2, 3}));
  folder.write("1.bin", with_header(2, 2, raw<uint16_t>({4, 65535})));
  folder.write("2.bin", with_header(2, 4, raw<uint32_t>({6, 70000})));
  const auto data = read_data(keys_tokens(folder / "*.bin", "sequence_length: 3")).open().train;
  CHECK(data->size() == 2);
  CHECK(ids_of(*data, 0, 0) == TokensIds{1, 2, 3});
  CHECK(ids_of(*data, 1, 0) == TokensIds{2, 3, 4});
  CHECK(ids_of(*data, 0, 1) == TokensIds{4, 65535, 6});
  CHECK(ids_of(*data, 1, 1) == TokensIds{65535, 6, 70000});
  CHECK(data->label_bound() == 70001);
  CHECK(data->location_of(1) == (folder / "1.bin").string() + ", token 0");
  CHECK(data->tokenizer() == nullptr);
  folder.write("wide", raw<uint32_t>({1, 100000, 3}));
  const auto wide =
      read_data(keys_tokens(folder / "wide", "sequence_length: 2, layout: uint32")).open();
  CHECK(ids_of(*wide.train, 1, 0) == TokensIds{100000, 3});
  const auto stated =
      read_data(keys_tokens(folder / "0.bin", "sequence_length: 2, vocab_size: 50304"));
  CHECK(stated.open().train->label_bound() == 50304);
}

TEST_CASE("damaged token files are refused") {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& content, const std::string& rest) {
    return data_refusal(keys_tokens(folder.write("a.bin", content), rest));
  };
  const std::string two = "sequence_length: 2";
  CHECK_THAT(refusal("", two), Contains("a.bin: is empty"));
  CHECK_THAT(refusal("abc", two), Contains("truncated: 3 bytes are no whole number of ids"));
  CHECK_THAT(refusal("abcdef", two + ", layout: uint32"), Contains("truncated: 6 bytes"));
  CHECK_THAT(refusal(raw<uint16_t>({1, 2}), two), Contains("has 2 tokens; one sequence of 2"));
  CHECK_THAT(refusal("abcd", two + ", layout: header"), Contains("its header has 1024 bytes"));
  CHECK_THAT(refusal(std::string(1100, 'x'), two + ", layout: header"), Contains("its magic is"));
  CHECK_THAT(refusal(with_header(5, 2, raw<uint16_t>({1, 2, 3})), two),
             Contains("truncated: its header declares 5 tokens, but 6 bytes hold 3"));
  CHECK_THAT(refusal(with_header(2, 2, raw<uint16_t>({1, 2, 3})), two), Contains("damaged"));
  CHECK_THAT(refusal(with_header(1, 2, "abc"), two), Contains("damaged"));
  CHECK_THAT(refusal(with_header(0, 2, ""), two), Contains("has no tokens"));
  std::string version = with_header(3, 2, raw<uint16_t>({1, 2, 3}));
  version[4] = 9;
  CHECK_THAT(refusal(version, two), Contains("has version 9"));
  CHECK_THAT(refusal(raw<uint16_t>({1, 2, 9, 3}), two + ", vocab_size: 9"),
             Contains("a.bin, token 2: id 9 is beyond the vocabulary (0 to 8)"));
  CHECK_THAT(refusal(raw<uint32_t>({1, 0xFFFFFFFF, 9, 3}), two + ", layout: uint32"),
             Contains("token 1: id 4294967295 is beyond the vocabulary"));
  CHECK_THAT(refusal(raw<uint16_t>({300, 2, 9}), two + ", tokenizer: byte"),
             Contains("id 300 is beyond the vocabulary (0 to 255) of data.tokenizer"));
  const std::string file =
      folder.write("tokenizer.json", byte_tokenizer("here", {})->files()[0].content);
  CHECK_THAT(refusal(raw<uint16_t>({300, 2, 9}), two), Contains("(0 to 255) of " + file));
}

TEST_CASE("with document_mask samples have the place of each token in its document") {
  TemporaryFolder folder;
  // Documents of 3 tokens, of 1, of an end alone, of 5, and one that does not end.
  const std::string path =
      folder.write("a.bin", raw<uint16_t>({5, 6, 0, 0, 7, 8, 9, 5, 0, 1, 2, 3, 4, 6}));
  const std::string keys = "sequence_length: 6, document_mask: true, end_token_id: 0";
  const auto data = read_data(keys_tokens(path, keys)).open().train;
  REQUIRE(data->fields().size() == 3);
  CHECK(data->fields()[1].name == kDocumentPositions);
  CHECK(data->target_field() == 2);
  CHECK(data->id_bound(1) == 6);
  CHECK(ids_of(*data, 0, 0) == TokensIds{5, 6, 0, 0, 7, 8});
  CHECK(ids_of(*data, 1, 0) == TokensIds{0, 1, 2, 0, 0, 1});
  CHECK(ids_of(*data, 2, 0) == TokensIds{6, 0, 0, 7, 8, 9});
  // A document that began before the sample counts from the sample's first token.
  CHECK(ids_of(*data, 0, 1) == TokensIds{9, 5, 0, 1, 2, 3});
  CHECK(ids_of(*data, 1, 1) == TokensIds{0, 1, 2, 0, 1, 2});
  // Shifted samples of training.
  const auto shifted = read_data("type: tokens, path: '" + path + "', " + keys).open().train;
  bool moved = false;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const SampleVisit visit{3, epoch};
    const TokensIds ids = training_ids_of(*shifted, 0, 0, visit);
    TokensIds places(1, 0);
    for (size_t i = 1; i < ids.size(); ++i)
      places.push_back(ids[i - 1] == 0 ? 0 : places[i - 1] + 1);
    CHECK(training_ids_of(*shifted, 1, 0, visit) == places);
    moved = moved || ids != ids_of(*data, 0, 0);
  }
  CHECK(moved);
  // The tokenizer's end of text.
  folder.write("b.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"cde\"}\n");
  const std::string lines = "type: jsonl, random_offset: false, sequence_length: 6, path: '" +
                            (folder / "b.jsonl").string() + "', document_mask: true, tokenizer: ";
  const auto documents = read_data(lines + "{type: char, special_tokens: [</s>]}").open().train;
  CHECK(ids_of(*documents, 1, 0) == TokensIds{0, 1, 2, 0, 0, 1});
}

TEST_CASE("document_mask is refused where no document ends or none is seen alone") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.bin", raw<uint16_t>({5, 6, 0, 7, 8, 9}));
  const auto refusal = [&](const std::string& rest) {
    return data_refusal(keys_tokens(path, "sequence_length: 2, document_mask: true" + rest));
  };
  CHECK_THAT(refusal(""), Contains("a.bin: document_mask needs the token that ends a document"));
  CHECK_THAT(refusal(", tokenizer: byte"), Contains("or end_token_id"));
  CHECK_THAT(refusal(", end_token_id: 10"),
             Contains("end_token_id 10 is not in the vocabulary (0 to 9)"));
  CHECK_THROWS_WITH(read_data(keys_tokens("a", "sequence_length: 2, end_token_id: 1")),
                    Contains("end_token_id needs document_mask"));
  CHECK_THROWS_WITH(
      read_data(keys_tokens("a", "sequence_length: 2, document_mask: true, mlm_probability: 0.1")),
      Contains("document_mask is for causal attention"));
  CHECK_THROWS_WITH(read_data("type: jsonl, path: a, tokenizer: byte, sequence_length: 2, "
                              "document_mask: true, prompt: a, completion: b"),
                    Contains("document_mask needs documents (field)"));
}

TEST_CASE("ids of 4 bytes are not taken for ids of 2") {
  TemporaryFolder folder;
  std::vector<uint32_t> ids(20);
  for (uint32_t i = 0; i < 20; ++i) ids[i] = i * i % 60;
  const std::string path = folder.write("a.bin", raw(ids));
  CHECK_THAT(data_refusal(keys_tokens(path)),
             Contains("a.bin: every second id of 2 bytes is 0") && Contains("say layout: uint32"));
  const std::string rest = "sequence_length: 2, layout: ";
  CHECK(ids_of(*read_data(keys_tokens(path, rest + "uint32")).open().train, 0, 1) ==
        TokensIds{4, 9});
  CHECK(ids_of(*read_data(keys_tokens(path, rest + "uint16")).open().train, 0, 1) ==
        TokensIds{1, 0});
  folder.write("a.bin", raw(std::vector<uint16_t>(40)));
  CHECK(read_data(keys_tokens(path)).open().train->size() > 0);  // nothing but zeros says nothing
}

TEST_CASE("ids of large files are checked when they are read") {
  const std::vector<uint16_t> ids{1, 2, 7, 3};
  const TokenStream stream({{"a.bin", std::as_bytes(std::span(ids)), 2}}, {.vocab_size = 5},
                           nullptr);
  TokensIds out(2);
  stream.read(0, 2, out.data());
  CHECK(out == TokensIds{1, 2});
  CHECK_THROWS_WITH(stream.read(1, 2, out.data()), Contains("a.bin, token 2: id 7"));
}

TEST_CASE("a prepared text gives the samples of the text") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>('a' + i * i % 23);
  const std::string path = folder.write("a.txt", text);
  const std::string rest = "sequence_length: 7, eval_fraction: 0.1";
  const DataConfig config = read_data("type: text, path: '" + path + "', tokenizer: char, " + rest);
  const auto& sequences = dynamic_cast<const SequenceConfig&>(*config.train);
  const auto out = folder / "out";
  const auto stream = sequences.open_tokens();
  CHECK(SequenceConfig::held_out(stream->size(), 0.1) == 50);
  open_tokens_folder(out, /*overwrite=*/false);
  CHECK(prepare_tokens({stream, 0, 500}, {}, {.folder = out, .shard_tokens = 50}) == 10);
  CHECK_THROWS_WITH(open_tokens_folder(out, /*overwrite=*/false), Contains("--overwrite"));
  open_tokens_folder(out, /*overwrite=*/true);
  CHECK(prepare_tokens({stream, 0, 450}, {stream, 450, 50}, {.folder = out, .shard_tokens = 100}) ==
        6);
  CHECK_FALSE(std::filesystem::exists(out / "train_000005.bin"));  // of the first preparation
  const DataSplit plain = config.open();
  const DataConfig prepared = read_data("type: tokens, sequence_length: 7, train: {path: '" +
                                        (out / "train_*.bin").string() + "'}, eval: {path: '" +
                                        (out / "eval_*.bin").string() + "'}");
  const DataSplit split = prepared.open();
  REQUIRE(split.train->size() == plain.train->size());
  REQUIRE(split.eval->size() == plain.eval->size());
  const SampleVisit visit{5, 3};
  for (int64_t sample = 0; sample < split.train->size(); ++sample) {
    CHECK(training_ids_of(*split.train, 1, sample, visit) ==
          training_ids_of(*plain.train, 1, sample, visit));
  }
  for (int64_t sample = 0; sample < split.eval->size(); ++sample) {
    CHECK(ids_of(*split.eval, 0, sample) == ids_of(*plain.eval, 0, sample));
  }
  CHECK(split.train->label_bound() == plain.train->label_bound());
  REQUIRE(split.train->tokenizer());
  CHECK(split.train->tokenizer()->identity() == plain.train->tokenizer()->identity());

  const auto bytes = read_data("type: text, path: '" + path + "', tokenizer: byte, " + rest);
  const auto other = dynamic_cast<const SequenceConfig&>(*bytes.train).open_tokens();
  CHECK_THROWS_WITH(prepare_tokens({stream, 0, 450}, {other, 450, 50}, {.folder = out}),
                    Contains("different tokenizers"));

  const std::string shard = out / "train_000000.bin";
  CHECK_THAT(data_refusal(keys_tokens(shard, "sequence_length: 7, tokenizer: byte")),
             Contains("was made by another tokenizer"));
  folder.write("out/tokens.json", "{}");
  CHECK_THAT(data_refusal(keys_tokens(shard)),
             Contains("tokens.json: does not describe token files"));
  folder.write("out/tokens.json", R"({"format": "dltrain.tokens", "version": 2})");
  CHECK_THAT(data_refusal(keys_tokens(shard)), Contains("unknown version"));
  folder.write("out/tokens.json",
               R"({"format": "dltrain.tokens", "version": 1, "vocab_size": -3})");
  CHECK_THAT(data_refusal(keys_tokens(shard)), Contains("no valid vocab_size"));
}

TEST_CASE("tokens have no text to make a tokenizer of") {
  CHECK_THROWS_WITH(read_data(keys_tokens("a.bin", "sequence_length: 2, tokenizer: char")),
                    Contains("a tokenizer cannot be built from tokens without text"));
}
