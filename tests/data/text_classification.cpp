// Texts with classes of CSV files and JSON Lines.
#include "read_data.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using LabelledIds = std::vector<int32_t>;
using ClassNames = std::vector<std::string>;
constexpr int32_t kPad = 256, kBegin = 257, kEnd = 258;

std::string keys_classified(const std::string& path, const std::string& rest = "") {
  return "type: text_classification, path: '" + path +
         "', tokenizer: {type: byte, special_tokens: [<pad>, <s>, </s>]}, sequence_length: 5" +
         rest;
}

}  // namespace

TEST_CASE("a text is between begin and end, padded or cut, with a mask and the number of a class") {
  TemporaryFolder folder;
  const std::string table =
      folder.write("a.csv", "id,text,label\n1,ab,yes\n2,\"a,\nbcd\",no\n\n3,c,yes\n");
  const std::string lines = folder.write(
      "a.jsonl",
      "{\"text\": \"ab\", \"label\": \"yes\"}\n{\"label\": \"no\", \"text\": \"a,\\nbcd\"}\n\n"
      "{\"text\": \"c\", \"label\": \"yes\"}\n");
  for (const std::string& path : {table, lines}) {
    INFO(path);
    const auto data = read_data(keys_classified(path)).open().train;
    REQUIRE(data->size() == 3);
    REQUIRE(data->fields().size() == 3);
    CHECK(data->fields()[1].name == "attention_mask");
    CHECK(ids_of(*data, 0, 0) == LabelledIds{kBegin, 'a', 'b', kEnd, kPad});
    CHECK(ids_of(*data, 1, 0) == LabelledIds{1, 1, 1, 1, 0});
    CHECK(ids_of(*data, 0, 1) == LabelledIds{kBegin, 'a', ',', '\n', kEnd});
    CHECK(ids_of(*data, 1, 1) == LabelledIds{1, 1, 1, 1, 1});
    CHECK(data->class_names() == ClassNames{"no", "yes"});
    CHECK(ids_of(*data, 2, 0) == LabelledIds{1});
    CHECK(ids_of(*data, 2, 1) == LabelledIds{0});
    CHECK(data->length(0, 0) == 4);
    CHECK(data->length(1, 1) == 5);
    CHECK(data->length(2, 0) == 0);
    CHECK(data->id_bound(0) == 259);
    CHECK(data->label_bound() == 2);
    CHECK(data->location_of(2) == path + (path == table ? ":6" : ":4"));
  }
  // Tables without a header, several files, a tokenizer without special tokens.
  folder.write("b.tsv", "2\tabcdef\n10\tb\n");
  folder.write("c.tsv", "1\tc, d\n");
  const auto data = read_data("type: text_classification, path: ['" + (folder / "b.tsv").string() +
                              "', '" + (folder / "c.tsv").string() +
                              "'], text: 1, label: 0, tokenizer: byte, sequence_length: 4")
                        .open()
                        .train;
  CHECK(data->class_names() == ClassNames{"1", "2", "10"});
  CHECK(ids_of(*data, 0, 0) == LabelledIds{'a', 'b', 'c', 'd'});
  CHECK(ids_of(*data, 0, 1) == LabelledIds{'b', 0, 0, 0});
  CHECK(ids_of(*data, 2, 1) == LabelledIds{2});
  // BERT's tokens.
  const auto bert = read_data("type: text_classification, path: '" + table +
                              "', sequence_length: 6, tokenizer: {type: wordpiece, path: "
                              "'" DLTRAIN_SOURCE_DIR "/tests/golden/tokenizers/wordpiece'}")
                        .open()
                        .train;
  const auto& tokens = *bert->tokenizer();
  const LabelledIds ids = ids_of(*bert, 0, 2);
  CHECK(LabelledIds(ids.begin(), ids.begin() + 4) ==
        LabelledIds{*tokens.special().begin_of_text, tokens.encode("c").at(0),
                    *tokens.special().end_of_text, *tokens.special().padding});
}

TEST_CASE("labels are names of classes however they are written") {
  TemporaryFolder folder;
  const std::string path =
      folder.write("a.jsonl",
                   "{\"text\": \"a\", \"label\": 3}\n{\"text\": \"b\", \"label\": \"3\"}\n"
                   "{\"text\": \"c\", \"label\": 3.0}\n{\"text\": \"d\", \"label\": true}\n"
                   "{\"text\": \"e\", \"label\": -100}\n");
  const auto data = read_data(keys_classified(path)).open().train;
  CHECK(data->class_names() == ClassNames{"3", "true"});
  for (int64_t sample = 0; sample < 3; ++sample) CHECK(ids_of(*data, 2, sample) == LabelledIds{0});
  CHECK(ids_of(*data, 2, 4) == LabelledIds{kIgnoredLabel});
  // Words that are numbers to a computer only.
  std::string words = "text,label\n";
  for (const char* label : {"nan", "2", ".0", "inf", "NaN", "1.0", "10", "x.0", "Nan", "1"}) {
    words += "a," + std::string(label) + "\n";
  }
  const auto odd = read_data(keys_classified(folder.write("b.csv", words))).open().train;
  CHECK(odd->class_names() == ClassNames{".0", "1", "2", "10", "inf", "NaN", "Nan", "nan", "x.0"});
}

TEST_CASE("classes are held out by their share and matched by name") {
  TemporaryFolder folder;
  std::string text = "text,label\n";
  for (int i = 0; i < 40; ++i) text += "abc," + std::string(i % 4 == 0 ? "rare" : "often") + "\n";
  const std::string path = folder.write("a.csv", text);
  const DataSplit split = read_data(keys_classified(path, ", eval_fraction: 0.2")).open();
  CHECK(split.eval->size() == 8);
  int64_t rare = 0;
  for (int64_t i = 0; i < 8; ++i) rare += ids_of(*split.eval, 2, i) == LabelledIds{1};
  CHECK(rare == 2);
  const std::string other = folder.write("b.csv", "label,text\nrare,abc\n");
  const auto keys = [&](const std::string& eval) {
    return "train: {" + keys_classified(path) + "}, eval: {" + keys_classified(eval) + "}";
  };
  const DataSplit files = read_data(keys(other)).open();
  CHECK(ids_of(*files.eval, 2, 0) == LabelledIds{1});
  CHECK(files.eval->class_names() == ClassNames{"often", "rare"});
  const std::string unknown = folder.write("c.csv", "label,text\nrare,abc\nnew,abc\n");
  CHECK_THAT(data_refusal(keys(unknown)), Contains("c.csv:3") && Contains("the class 'new' is not "
                                                                          "one of the 2 trained"));
  // A tokenizer that learns has the characters of the training text.
  const auto learned = [&](const std::string& text_of_eval) {
    const std::string eval = folder.write("d.csv", "text,label\n" + text_of_eval + ",rare\n");
    return "tokenizer: char, sequence_length: 4, type: text_classification, train: {path: '" +
           path + "'}, eval: {path: '" + eval + "'}";
  };
  CHECK(ids_of(*read_data(learned("c")).open().eval, 0, 0) == LabelledIds{2, 0, 0, 0});
  CHECK_THAT(data_refusal(learned("d")),
             Contains("d.csv:2: the character 'd'") && Contains("(byte 0 of the text)"));
}

TEST_CASE("more classes than outputs are told as such, not as tokens") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "text,label\na,x\nb,y\nc,z\n");
  const auto data = read_data(keys_classified(path)).open().train;
  data->check_labels(3);
  CHECK_THROWS_WITH(data->check_labels(2),
                    Contains("a.csv:4: the data has 3 classes, but the model has 2 outputs; set "
                             "num_classes") &&
                        !Contains("token"));
}

TEST_CASE("data for predictions needs no labels") {
  TemporaryFolder folder;
  folder.write("a.csv", "text\nab\n");
  folder.write("b.csv", "text,label\nab,\n");
  folder.write("a.jsonl", "{\"text\": \"ab\"}\n");
  for (const char* name : {"a.csv", "b.csv", "a.jsonl"}) {
    INFO(name);
    const std::string path = (folder / name).string();
    const auto data = read_data(keys_classified(path)).open({.targets = false}).train;
    CHECK(!data->has_targets());
    CHECK(ids_of(*data, 0, 0) == LabelledIds{kBegin, 'a', 'b', kEnd, kPad});
    CHECK_THAT(data_refusal(keys_classified(path)), Contains("label"));
  }
}

TEST_CASE("bad texts and labels are refused with their line") {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& content) {
    return data_refusal(keys_classified(folder.write(name, content)));
  };
  CHECK_THAT(refusal("a.csv", "body,label\nab,x\n"),
             Contains("a.csv:1: the header has no column 'text'; it has body, label"));
  CHECK_THAT(refusal("a.csv", "text,labels\nab,x\n"),
             Contains("a.csv:1: ") && Contains("'label'; did you mean 'labels'?"));
  CHECK_THAT(refusal("a.csv", "text,label\nab,x\nb,\n"), Contains("a.csv:3: the label is missing"));
  CHECK_THAT(refusal("a.csv", "text,label\nab,x\n  ,y\n"), Contains("a.csv:3: the text is empty"));
  CHECK_THAT(refusal("a.csv", "text,label\na, b,x\n"),
             Contains("a.csv:2: 3 columns, but the first line has 2"));
  CHECK_THAT(refusal("a.csv", "text,label\na\xff,x\n"),
             Contains("a.csv:2 (column 1)") && Contains("is not UTF-8"));
  CHECK_THAT(refusal("a.csv", "text,label\n"), Contains("a.csv: has no texts"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": \"a\"}"),
             Contains("a.jsonl:1: has no key 'label'; its keys are 'text'"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": \"a\", \"label\": null}"),
             Contains("a.jsonl:1: the label is missing"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": \"a\", \"label\": [1]}"),
             Contains("the key 'label' must be a string or a number, not of type array"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": 1, \"label\": 1}"),
             Contains("the key 'text' must be a string"));
  CHECK_THAT(refusal("a.csv", "text,label,label\na,x,y\n"),
             Contains("a.csv:1: two columns are called 'label'"));
  std::string all = "text,label\n";
  for (int i = 0; i < 31; ++i) all += "a,name " + std::to_string(i) + "\n";
  CHECK_THAT(refusal("a.csv", all), Contains("a.csv: the label 'label' has 31 different values in "
                                             "31 texts ('name 0'), too many for classes"));
  CHECK_THAT(data_refusal(keys_classified(folder.write("a.csv", "ab,x\n"),
                                          ", text: 0, label: 99999999999999999999")),
             Contains("a.csv:1: "));
  CHECK_THROWS_WITH(read_data(keys_classified("a", ", text: y, label: y")),
                    Contains("text and label are both 'y'"));
  CHECK_THROWS_WITH(read_data(keys_classified("a", ", text: 0")),
                    Contains("must both be names or both be numbers"));
  CHECK_THROWS_WITH(read_data(keys_classified("a", ", delimiter: ab")),
                    Contains("must be one character"));
  CHECK_THROWS_WITH(read_data(keys_classified("a", ", transforms: [horizontal_flip]")),
                    Contains("is for images"));
}
