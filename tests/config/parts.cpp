// Parts: kinds that share keys, as data.train and data.eval do.
#include "catch.h"
#include "config/dump.h"
#include "config/reference.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;

namespace {

struct Dataset : ConfigVariant {
  std::string path;
  int64_t length = 8;
  void describe(Fields& f) override {
    f.text("path", path, {.doc = "File", .required = true});
    f.integer("length", length, {.doc = "Tokens", .min = 1, .known_as = {"seq_len"}});
  }
};
struct Images : Dataset {
  bool flip = false;
  void describe(Fields& f) override {
    Dataset::describe(f);
    f.boolean("flip", flip, {.doc = "Mirror"});
  }
};

const KindTable<Dataset>& dataset_table() {
  static const KindTable<Dataset> table{"dataset",
                                        {{"text", "Characters", make_kind_of<Dataset>},
                                         {"images", "Pictures", make_kind_of<Images>}}};
  return table;
}

struct Data : ConfigObject {
  std::unique_ptr<Dataset> train, eval;
  std::optional<double> eval_fraction;
  void describe(Fields& f) {
    f.parts<Dataset>({{"train", train, "For training"}, {"eval", eval, "For evaluation"}},
                     dataset_table(), {.doc = "Common keys", .required = true});
    f.number("eval_fraction", eval_fraction, {.doc = "Share kept for evaluation", .above = 0});
  }
};

struct Root {
  Data data;
  void describe(Fields& f) {
    f.section("data", data, {.doc = "What is learnt from", .required = true});
  }
};

}  // namespace

TEST_CASE("keys beside the parts are common to them") {
  const auto root = read<Root>("data: {type: text, path: a, length: 4, eval: {path: b}}\n");
  CHECK(root.data.train->path == "a");
  CHECK(root.data.eval->path == "b");
  CHECK(root.data.eval->kind == "text");
  CHECK(root.data.eval->length == 4);
  const auto alone = read<Root>("data: {type: text, path: a, eval_fraction: 0.1}\n");
  CHECK(alone.data.train->path == "a");
  CHECK_FALSE(alone.data.eval);
  const auto apart = read<Root>(
      "data: {train: {type: images, path: a, flip: true}, eval: {type: text, path: b}}\n");
  CHECK(apart.data.train->kind == "images");
  CHECK(apart.data.eval->kind == "text");
  const auto other = read<Root>(
      "data: {type: images, path: a, flip: true, "
      "eval: {type: text, path: b}}\n");
  CHECK(other.data.eval->kind == "text");
}

TEST_CASE("the dump of parts reads back") {
  const auto root = read<Root>("data: {type: text, path: a, eval: {length: 4}}\n");
  const std::string text = dump_config(root);
  CHECK(text ==
        "data:\n  train:\n    type: text\n    path: a\n    length: 8\n"
        "  eval:\n    type: text\n    path: a\n    length: 4\n  eval_fraction: null\n");
  CHECK(dump_config(read<Root>(text)) == text);
  const auto alone = read<Root>("data: {type: text, path: a}\n");
  CHECK(dump_config(read<Root>(dump_config(alone))) == dump_config(alone));
}

TEST_CASE("an error in a common key is reported once") {
  CHECK(mistakes<Root>("data: {type: text, path: a, lenght: 4, eval: {path: b}}\n") ==
        "exp.yaml:1:29: error: unknown key 'lenght' in data (type text); did you mean 'length'?\n"
        "    1 | data: {type: text, path: a, lenght: 4, eval: {path: b}}\n"
        "      |                             ^~~~~~");
  CHECK(mistakes<Root>("data: {type: text, path: a, length: x, eval: {path: b}}\n") ==
        "exp.yaml:1:37: error: expected an integer for data.length, got the text 'x'\n"
        "    1 | data: {type: text, path: a, length: x, eval: {path: b}}\n"
        "      |                                     ^");
  CHECK_THAT(mistakes<Root>("data: {type: text, path: a, eval_fractoin: 0.1}\n"),
             Catch::Contains("unknown key 'eval_fractoin' in data (type text); did you mean "
                             "'eval_fraction'?"));
  CHECK_THAT(mistakes<Root>("data: {type: text, path: a, eval: {seq_len: 3}}\n"),
             Catch::Contains("unknown key 'seq_len' in data.eval (type text); did you mean "
                             "'length'?"));
  // The place of a key of another kind is no place for it.
  CHECK_THAT(mistakes<Root>("data: {type: text, path: a, flip: true}\n"),
             Catch::Contains("unknown key 'flip' in data (type text); type images has it\n"));
  CHECK_THAT(mistakes<Root>("data: {type: text, path: a, eval: {flip: true}}\n"),
             Catch::Contains("unknown key 'flip' in data.eval (type text); type images has it\n"));
  CHECK_THAT(mistakes<Root>("data: {path: a}\n"),
             Catch::Contains("missing key 'type' in data; known types: text, images"));
  CHECK_THAT(mistakes<Root>("data: {}\n"), Catch::Contains("missing key 'type' in data"));
  CHECK_THAT(mistakes<Root>("data: {type: text, path: a, eval: 3}\n"),
             Catch::Contains("unknown type '3' in data.eval"));
}

TEST_CASE("a common key that no part would read is refused") {
  CHECK(mistakes<Root>(
            "data: {path: c, train: {type: text, path: a}, eval: {type: text, path: b}}\n") ==
        "exp.yaml:1:8: error: data.path has no effect, because every split has its own 'path'; set "
        "data.train.path, data.eval.path\n"
        "    1 | data: {path: c, train: {type: text, path: a}, eval: {type: text, path: b}}\n"
        "      |        ^~~~");
  CHECK_THAT(mistakes<Root>("data: {path: c, train: {type: text, path: a}, eval_fraction: 0.1}\n"),
             Catch::Contains("has its own 'path'; set data.train.path\n"));
  const auto one = read<Root>(
      "data: {length: 4, train: {type: text, path: a, length: 2}, "
      "eval: {type: text, path: b}}\n");
  CHECK(one.data.train->length == 2);
  CHECK(one.data.eval->length == 4);
}

TEST_CASE("a part whose kind only the other part has is told so") {
  CHECK_THAT(
      mistakes<Root>("data: {train: {type: text, path: a}, eval: {path: b}}\n"),
      Catch::Contains("missing key 'type' in data.eval: the keys of data.train do not apply to "
                      "it; give data.eval a type and all its keys, such as data.eval.type=text"));
}

TEST_CASE("the reference lists the parts") {
  const std::string text = config_reference<Root>();
  CHECK_THAT(text, Catch::Contains("| `train` | dataset ([kinds](#dataset)) | none |  | For "
                                   "training |\n"));
  CHECK_THAT(text, Catch::Contains("| … | keys of a dataset ([kinds](#dataset)) | required |  | "
                                   "Common keys |\n"));
  CHECK_THAT(text, Catch::Contains("### dataset `images`"));
}
