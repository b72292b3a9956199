#include "data/config.h"

#include <algorithm>

#include "catch.h"
#include "config/bind.h"
#include "config/dump.h"
#include "config/yaml.h"
#include "data/inspect.h"
#include "refusal.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

struct ConfigWhole {
  DataConfig data;
  void describe(Fields& f) { f.section("data", data, {.doc = "Samples", .required = true}); }
};

DataConfig read_config(const std::string& text) {
  Diagnostics diagnostics;
  ConfigWhole whole;
  const auto source = std::make_shared<Source>(Source{"exp.yaml", text});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(whole, *tree, diagnostics);
  diagnostics.throw_if_any();
  return std::move(whole.data);
}

}  // namespace

TEST_CASE("keys of data are common to both splits, keys of a split lie on top") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "1,0\n2,1\n3,0\n4,1\n5,1\n");
  const DataConfig config = read_config("data: {type: csv, path: '" + path +
                                        "', scale: 2, train: {rows: [0, 3]}, eval: {rows: [3, 5], "
                                        "scale: 4}}");
  const DataSplit split = config.open();
  CHECK(split.train->size() == 3);
  CHECK(split.eval->size() == 2);
  float value = 0;
  const int64_t first = 0;
  split.train->gather(0, {&first, 1}, reinterpret_cast<std::byte*>(&value));
  CHECK(value == 2);
  split.eval->gather(0, {&first, 1}, reinterpret_cast<std::byte*>(&value));
  CHECK(value == 16);
  CHECK(config.train->shuffle);
}

TEST_CASE("without a split, all keys are those of train, and a fraction may be held out") {
  const DataConfig config =
      read_config("data: {type: synthetic, shape: [2], samples: 10, eval_fraction: 0.2}");
  const DataSplit split = config.open();
  CHECK(split.train->size() == 8);
  CHECK(split.eval->size() == 2);
  CHECK(read_config("data: {type: synthetic}").open().eval == nullptr);
  CHECK(read_config("data: {type: synthetic, samples: 5, eval: {seed: 3}}").open().eval->size() ==
        5);
  CHECK(read_config("data: {train: {type: synthetic, samples: 5}}").open().train->size() == 5);
}

TEST_CASE("what eval_fraction holds out is random, except where samples follow one another") {
  TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += fmt::format("{}.5,{}\n", i, i / 20);
  const std::string csv = "type: csv, path: '" + folder.write("a.csv", rows).string() + "'";
  const auto held_out = [&](const std::string& keys) {
    const auto eval =
        read_config("data: {" + csv + ", eval_fraction: 0.25" + keys + "}").open().eval;
    std::vector<float> out(static_cast<size_t>(eval->size()));
    for (int64_t i = 0; i < eval->size(); ++i) {
      eval->gather(0, {&i, 1}, reinterpret_cast<std::byte*>(&out[static_cast<size_t>(i)]));
    }
    return out;
  };
  const std::vector<float> tail{30.5, 31.5, 32.5, 33.5, 34.5, 35.5, 36.5, 37.5, 38.5, 39.5};
  const auto random = held_out("");
  CHECK(random.size() == 10);
  CHECK(std::count_if(random.begin(), random.end(), [](float x) { return x < 20; }) == 5);
  CHECK(random == held_out(", eval_split: random, split_seed: 0"));
  CHECK(random != held_out(", split_seed: 1"));
  CHECK(held_out(", eval_split: tail") == tail);
  CHECK(held_out(", shuffle: false") == tail);  // a time series
  CHECK(held_out(", shuffle: false, eval_split: random") == random);
  // The resolved configuration says which; one of an earlier version, which does not, keeps the
  // tail.
  CHECK_THAT(dump_config(read_config("data: {" + csv + ", eval_fraction: 0.25}")),
             Contains("eval_split: random\n"));
  CHECK(held_out(", eval: null, workers: null") == tail);
  CHECK(held_out(", eval: null, workers: null, eval_split: random, split_seed: 0") == random);
  CHECK_THROWS_WITH(read_config("data: {" + csv + ", eval_split: tail}"),
                    Contains("needs eval_fraction"));
  const std::string text = "type: text, path: a, tokenizer: char, sequence_length: 4";
  CHECK_THROWS_WITH(read_config("data: {" + text + ", eval_fraction: 0.1, eval_split: random}"),
                    Contains("text needs tail"));
  CHECK_THAT(dump_config(read_config("data: {" + text + ", eval_fraction: 0.1}")),
             Contains("eval_split: tail\n"));
}

TEST_CASE("tensors are shuffled unless told otherwise, and a single input needs no name") {
  const DataConfig config = read_config(
      "data: {train: {type: tensors, path: a.safetensors, inputs: {input_ids: x}, targets: y}}");
  CHECK(config.train->shuffle);
  CHECK_THROWS_WITH(config.open(),
                    Contains("data.train.path: No such file or folder: a.safetensors"));
  const DataConfig one =
      read_config("data: {type: tensors, path: a, inputs: x, targets: y, shuffle: false}");
  CHECK_FALSE(one.train->shuffle);
  CHECK_THAT(dump_config(one), Contains("inputs: {input: x}\n"));
}

TEST_CASE("errors in the data section are found with their places") {
  CHECK_THROWS_WITH(read_config("data: {}"),
                    Contains("missing key 'type' in data; known types: cifar10"));
  CHECK_THROWS_WITH(read_config("data: {path: a.csv}"), Contains("missing key 'type' in data;"));
  CHECK_THROWS_WITH(read_config("data: {type: cvs}"), Contains("did you mean 'csv'?"));
  CHECK_THROWS_WITH(read_config("data: {type: csv}"), Contains("missing key 'path'"));
  CHECK_THROWS_WITH(read_config("data: {type: csv, path: a, rows: [3, 3]}"),
                    Contains("exp.yaml:1:34: error: rows [3, 3) are empty"));
  CHECK_THROWS_WITH(read_config("data: {type: csv, path: a, rows: [3]}"), Contains("2 elements"));
  CHECK_THROWS_WITH(read_config("data: {type: csv, path: a, delimiter: ab}"),
                    Contains("one character"));
  CHECK_THROWS_WITH(read_config("data: {type: csv, path: a, scale: 0}"), Contains("must not be 0"));
  CHECK_THROWS_WITH(read_config("data: {type: csv, path: a, task: regression, classes: 3}"),
                    Contains("no classes"));
  CHECK_THROWS_WITH(
      read_config(
          "data: {type: csv, path: a, shape: [2, 2], normalize: {mean: [1, 2, 3], std: 1}}"),
      Contains("mean has 3 numbers; samples have 2 channels"));
  CHECK_THROWS_WITH(read_config("data: {type: csv, path: a, normalize: {mean: 1}}"),
                    Contains("missing key 'std' in normalize"));
  CHECK_THROWS_WITH(
      read_config("data: {type: csv, path: a, normalize: {statistics: auto, mean: 0, std: 1}}"),
      Contains("not both; -s 'data.normalize={mean: …, std: …}' replaces `auto`"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, eval_fraction: 0.1, eval: {seed: 1}}"),
                    Contains("remove one"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, eval_fraction: 1}"), Contains("below 1"));
}

TEST_CASE("splits whose samples differ are refused") {
  const DataConfig config = read_config("data: {type: synthetic, shape: [2], eval: {shape: [3]}}");
  CHECK_THROWS_WITH(config.open(), Contains("data.train has input f32[2], target i32[]; data.eval "
                                            "has input f32[3]"));
}

TEST_CASE("a split cannot ask for statistics that the training split does not have") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "1,2,0\n3,4,1\n");
  const auto read = [&](const std::string& train, const std::string& eval) {
    return read_config(fmt::format("data: {{type: csv, path: '{}', train: {{{}}}, eval: {{{}}}}}",
                                   path, train, eval));
  };
  const auto refusal = [&](const std::string& train, const std::string& eval,
                           const OpenOptions& how = {}) {
    return refusal_of([&] { read(train, eval).open(how); }, ExitCode::usage);
  };
  const char *auto_ = "normalize: auto", *given = "normalize: {mean: 1, std: 2}";
  CHECK_THAT(refusal("", "empty: mean"),
             Contains("exp.yaml:1:") && Contains("data.train is read without `empty`"));
  CHECK_THAT(refusal(given, auto_), Contains("data.train is read without `normalize: auto`"));
  CHECK_THAT(refusal(auto_, given), Contains("which normalizes this data too"));
  CHECK_THAT(refusal("", auto_, {.fit = false}), Contains("so there are no statistics"));
  const auto plain = read("", "").open().train->schema();
  CHECK_THAT(refusal("empty: mean", "empty: mean", {.trained = plain}),
             Contains("the model was trained without `empty`"));
  const auto fitted = read(auto_, "").open();
  CHECK(fitted.eval->schema()->normalized);
  CHECK_THAT(refusal(given, given, {.trained = fitted.train->schema()}),
             Contains("the model was trained with `normalize: auto`"));
  CHECK(read(given, given).open({.trained = plain}).eval->size() == 2);
}

TEST_CASE("columns of tables are reported unless transforms resize the inputs") {
  TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "1,2,3,4,0\n3,4,5,6,1\n");
  const auto columns_with = [&](const std::string& transforms) {
    const auto table =
        read_config("data: {type: csv, path: '" + path + "', shape: [2, 2, 1]" + transforms + "}")
            .open({.fit = false})
            .train;
    return inspect_columns(*table);
  };
  REQUIRE(columns_with("").size() == 5);
  CHECK(columns_with("")[3].greatest == 6);
  CHECK(columns_with(", transforms: [{resize: 1}]").empty());
}

TEST_CASE("every kind of dataset can be made and described") {
  for (const auto& row : dataset_table().rows) {
    INFO(row.name);
    CHECK_FALSE(row.doc.empty());
    CHECK(make_kind(dataset_table(), row.name)->kind == row.name);
  }
}

TEST_CASE("random changes of images are for training only") {
  const DataConfig config = read_config(
      "data: {type: synthetic, shape: [8, 8, 1], train: {random_affine: {rotate: 10, translate: "
      "1}}, eval: {seed: 3}}");
  CHECK(config.train->random_affine->options.rotate == 10);
  CHECK(config.train->random_affine->options.translate == 1);
  CHECK_FALSE(config.eval->random_affine);
  CHECK_THROWS_WITH(
      read_config(
          "data: {type: synthetic, shape: [8, 8, 1], random_affine: {rotate: 10}, eval: {}}"),
      Contains("move random_affine to data.train"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, eval: {transforms: [horizontal_flip]}}"),
                    Contains("move horizontal_flip to data.train"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, mixup: {alpha: 1}, eval: {seed: 2}}"),
                    Contains("move mixup to data.train"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, sampling: balanced, shuffle: false}"),
                    Contains("balanced sampling is random"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, augmentations: []}"),
                    Contains("did you mean 'transforms'?"));
  CHECK_THROWS_WITH(read_config("data: {type: synthetic, random_affine: {degrees: 10}}"),
                    Contains("did you mean 'rotate'?"));
}

TEST_CASE("transforms of numbers and the number of workers come from the configuration") {
  const DataConfig config = read_config(
      "data: {type: synthetic, shape: [8, 8, 1], samples: 10, workers: 3, "
      "train: {transforms: [{random_crop: 4}], mixup: {alpha: 0.2}, sampling: balanced}, "
      "eval: {transforms: [{center_crop: 4}]}}");
  const DataSplit split = config.open();
  CHECK(to_string(split.train->fields()[0].sample) == "f32[4, 4, 1]");
  CHECK(config.workers_for(*split.train, 1) == 3);
  CHECK(config.train->mixing().mixup.alpha == 0.2);
  CHECK(config.train->order() == SampleOrder::balanced);
  const DataConfig automatic = read_config("data: {type: synthetic, workers: auto}");
  CHECK(automatic.workers_for(*automatic.open().train, 1) == 1);
  CHECK_THROWS_WITH(read_config("data: {type: idx, images: a}"), Contains("must both be given"));
  CHECK_THROWS_WITH(read_config("data: {type: idx}"), Contains("give either path"));
  CHECK_THROWS_WITH(read_config("data: {type: cifar10, path: no-such-folder}").open(),
                    Contains("No such file or folder: no-such-folder"));
  CHECK_THROWS_WITH(
      read_config("data: {type: synthetic, shape: [12], transforms: [{center_crop: 4}]}").open(),
      Contains("transforms need images"));
}
