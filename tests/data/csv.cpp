#include "data/csv.h"

#include <random>

#include <zlib.h>

#include "base/error.h"
#include "catch.h"
#include "refusal.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

std::shared_ptr<const Dataset> load(const std::string& text, const CsvOptions& options = {}) {
  return load_csv(options, [&] { return LineReader("x.csv", text); });
}

std::string refusal_csv(const std::string& text, const CsvOptions& options = {}) {
  return refusal_of([&] { load(text, options); });
}

std::vector<float> inputs(const Dataset& dataset, int64_t sample) {
  std::vector<float> out(static_cast<size_t>(dataset.fields()[0].sample.shape.elements()));
  dataset.gather(0, {&sample, 1}, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

int32_t label(const Dataset& dataset, int64_t sample) {
  int32_t out = 0;
  dataset.gather(1, {&sample, 1}, reinterpret_cast<std::byte*>(&out));
  return out;
}

std::string gzip_csv(const std::string& text) {
  TemporaryFolder folder;
  gzFile file = gzopen((folder / "a.gz").c_str(), "wb9");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return slurp(folder / "a.gz");
}

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("a CSV file gives inputs and labels in file order") {
  const auto data = load("1,2.5,0\n-3,4e1,2\r\n\n+5,6,-100");
  CHECK(data->size() == 3);
  CHECK(data->fields()[0].name == "input");
  CHECK(to_string(data->fields()[0].sample) == "f32[2]");
  CHECK(to_string(data->fields()[1].sample) == "i32[]");
  CHECK(inputs(*data, 0) == Floats{1, 2.5f});
  CHECK(inputs(*data, 1) == Floats{-3, 40});
  CHECK(inputs(*data, 2) == Floats{5, 6});
  CHECK(label(*data, 1) == 2);
  CHECK(label(*data, 2) == kIgnoredLabel);
  CHECK(data->label_bound() == 3);
  CHECK_FALSE(data->uniform_valid_targets());
  CHECK(data->location_of(2) == "x.csv:4");
}

TEST_CASE("the target may be the first column, a number or a name") {
  CHECK(label(*load("7,1\n", {.target = "first", .classes = 8}), 0) == 7);
  CHECK(label(*load("1,7,2\n", {.target = "1", .classes = 8}), 0) == 7);
  const auto named = load("\xEF\xBB\xBF\"a\" , class,b\n1,7,2\n",
                          {.hints = {.header = true}, .target = "class", .classes = 8});
  CHECK(label(*named, 0) == 7);
  CHECK(inputs(*named, 0) == Floats{1, 2});
  CHECK(label(*load("1;7.0", {.hints = {.delimiter = ";"}, .classes = 8}), 0) == 7);
  CHECK_THAT(refusal_csv("1,2\n", {.target = "2"}),
             Contains("there is no column 2; the columns are 0 to 1"));
  CHECK_THAT(refusal_csv("a,b\n1,2\n", {.target = "c"}), Contains("no column 'c'"));
  CHECK_THAT(refusal_csv("1,2\n", {.target = "c"}), Contains("set `header: true` if it is"));
}

TEST_CASE("shape, scale and normalization are applied") {
  const auto data =
      load("0,8,16,24,1\n",
           {.shape = {{2, 2}}, .scaling = {.scale = 0.125, .mean = {1, 2}, .std = {0.5, 2}}});
  CHECK(to_string(data->fields()[0].sample) == "f32[2, 2]");
  CHECK(inputs(*data, 0) == Floats{-2, -0.5f, 2, 0.5f});
  CHECK_THAT(refusal_csv("1,2,3,0\n", {.shape = {{2, 2}}}), Contains("has 3 input columns"));
  CHECK_THROWS_WITH(load("1,2,3,4\n", {.scaling = {.mean = {1, 2}, .std = {1}}}),
                    Contains("2 numbers for 3 channels"));
  CHECK_THROWS_WITH(load("1,2,3,0\n", {.shape = {{4611686018427387904, 4}}}),
                    Contains("[4611686018427387904, 4] is too large"));
}

TEST_CASE("a regression target is a number") {
  const auto data = load("1,2.5\n", {.regression = true});
  float target = 0;
  const int64_t first = 0;
  data->gather(1, {&first, 1}, reinterpret_cast<std::byte*>(&target));
  CHECK(target == 2.5f);
  CHECK(data->label_bound() == 0);
  CHECK(data->uniform_valid_targets() == 1);
}

TEST_CASE("rows are a half-open range of the data lines") {
  const std::string text = "a,b\n0,0\n1,1\n\n2,2\nthis line is never read";
  const auto data = load(text, {.classes = 3, .rows = {{1, 3}}});
  CHECK(data->size() == 2);
  CHECK(label(*data, 0) == 1);
  CHECK(data->location_of(1) == "x.csv:5");
  CHECK_THAT(refusal_csv("0,0\n1,1\n", {.rows = {{1, 3}}}),
             Contains("has 2 rows of data, but the configuration has rows [1, 3)"));
}

TEST_CASE("bad values are refused with line and column") {
  CHECK_THAT(refusal_csv(""), Contains("x.csv: has no data"));
  CHECK_THAT(refusal_csv("\n\n"), Contains("has no data"));
  CHECK_THAT(refusal_csv("a,b\n", {.hints = {.header = true}}), Contains("has no data"));
  CHECK_THAT(refusal_csv("1\n"), Contains("x.csv:1: has one column"));
  CHECK_THAT(refusal_csv("1,2,0\n1,,0\n"), Contains("x.csv:2 (column 2): a missing value"));
  CHECK_THAT(refusal_csv("1,0\n1\n"), Contains("x.csv:2: 1 columns, but the first line has 2"));
  CHECK_THAT(refusal_csv("1,0\n1,2,0\n"), Contains("x.csv:2: 3 columns, but the first line has 2"));
  CHECK_THAT(refusal_csv("1,0\n1x,0\n"), Contains("x.csv:2 (column 1): '1x' is not a number"));
  CHECK_THAT(refusal_csv("age,class\n1,0\nold,0\n"),
             Contains("x.csv:3 (column 1, 'age'): 'old' is not a number"));
  for (const char* value : {"inf", "-Infinity", "1e999"}) {
    CHECK_THAT(refusal_csv(std::string("1,0\n") + value + ",0\n"), Contains("not a finite number"));
  }
  CHECK_THAT(refusal_csv("1e300,0\n"), Contains("too large for f32"));
  CHECK(inputs(*load("1e-400,-1e-400,0\n"), 0) == Floats{0, 0});
  CHECK_THAT(refusal_csv("1,0\n\x1b[31mred,0\n"), Contains("'?[31mred' is not a number"));
  CHECK_THAT(refusal_csv(std::string("1,0\n1\0002,0\n", 10)), Contains("is not a number"));
}

TEST_CASE("labels must be whole numbers in range") {
  CHECK_THAT(refusal_csv("1,0.5\n"),
             Contains("x.csv:1 (column 2): the label 0.5 is not an integer"));
  CHECK_THAT(refusal_csv("1,-1\n", {.classes = 2}), Contains("the label -1 is out of range"));
  CHECK_THAT(refusal_csv("1,9\n1,10\n", {.classes = 10}),
             Contains("x.csv:2 (column 2): the label 10 is out of range 0 to 9"));
  CHECK_THAT(refusal_csv("1,1e300\n", {.classes = 2}), Contains("out of range"));
  const auto data = load("1,2\n\n1,11\n1,3\n", {.classes = 20});
  data->check_labels(12);
  CHECK_THROWS_WITH(data->check_labels(10),
                    Contains("x.csv:3: label 11 does not fit the model's 10"));
}

TEST_CASE("gzip files are read, and refused when cut at any byte or damaged") {
  std::string text;
  for (int i = 0; i < 50; ++i) text += std::to_string(i * 37 % 101) + ",1\n";
  const std::string packed = gzip_csv(text);
  TemporaryFolder folder;
  CsvOptions options{.path = (folder / "a.csv.gz").string()};
  folder.write("a.csv.gz", packed);
  const auto data = load_csv(options);
  CHECK(data->size() == 50);
  CHECK(inputs(*data, 49)[0] == 49 * 37 % 101);
  for (size_t size = 0; size < packed.size(); ++size) {
    folder.write("a.csv.gz", packed.substr(0, size));
    CHECK_THROWS_AS(load_csv(options), Error);
  }
  std::string damaged = packed;
  damaged[packed.size() / 2] ^= 0x10;
  folder.write("a.csv.gz", damaged);
  CHECK_THROWS_WITH(load_csv(options), Contains("a.csv.gz"));
}

TEST_CASE("a missing file or a folder is a data error") {
  TemporaryFolder folder;
  CHECK_THROWS_WITH(load_csv(CsvOptions{.path = (folder / "no.csv").string()}),
                    (folder / "no.csv").string() + ": cannot open: No such file or directory");
  CHECK_THROWS_WITH(load_csv(CsvOptions{.path = folder.path().string()}),
                    Contains("is a folder, expected a file"));
}

TEST_CASE("lines longer than the reader's buffer are whole") {
  std::string text;
  const int columns = 300000;
  for (int i = 0; i < columns; ++i) text += "7,";
  text += "3\n" + text + "4";
  const auto data = load(text, {.classes = 5});
  CHECK(data->size() == 2);
  CHECK(inputs(*data, 1).back() == 7);
  CHECK(label(*data, 1) == 4);
}

TEST_CASE("random damage to a CSV file never gives a value that is not finite") {
  const std::string whole = "1.5,2,0\n3,-4e2,1\n5,6,2\n7,8,0\n";
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = whole.substr(0, whole.size() - random() % 3);
    for (int n = static_cast<int>(random() % 2); n >= 0; --n) {
      const char* likely = "0123456789.,-+eE\n\r \"naif";
      damaged[random() % damaged.size()] =
          random() % 2 ? likely[random() % 24] : static_cast<char>(random());
    }
    try {
      const auto data = load(damaged, {.classes = 3});
      ++accepted;
      for (int64_t s = 0; s < data->size(); ++s) {
        for (float value : inputs(*data, s)) REQUIRE(std::isfinite(value));
        REQUIRE(
            (label(*data, s) == kIgnoredLabel || (label(*data, s) >= 0 && label(*data, s) < 3)));
      }
    } catch (const Error& error) {
      REQUIRE(error.code() == ExitCode::data);
    }
  }
  CHECK(accepted > 1000);
}

TEST_CASE("without a target all columns are inputs, and the data says so") {
  CsvOptions options;
  options.target = "none";
  const auto data = load("1,2\n3,4\n", options);
  CHECK_FALSE(data->has_targets());
  CHECK(to_string(data->fields()[0].sample) == "f32[2]");
  CHECK(to_string(data->fields()[1].sample) == "i32[]");
  CHECK(inputs(*data, 1) == Floats{3, 4});
  CHECK(label(*data, 1) == kIgnoredLabel);
  CHECK(data->label_bound() == 0);
  CHECK_FALSE(slice(data, 0, 1)->has_targets());
  options.regression = true;
  CHECK(to_string(load("7\n", options)->fields()[1].sample) == "f32[1]");
  CHECK(load("1,2\n")->has_targets());
}

TEST_CASE("only blank lines are skipped, rows of separators are not") {
  const auto data = load("a;b\n1;0\n \n;\n2;1\n", {.target = "none", .empty = EmptyCells::mean});
  CHECK(data->size() == 3);
  CHECK_THAT(refusal_csv("a,b,y\n1,2,0\n,,\n3,4,1\n"), Contains("x.csv:3: all cells are empty"));
}

TEST_CASE("text that is not UTF-8 is refused with line and column") {
  CHECK_THAT(refusal_csv("a,b,y\n1,x,0\n2,K\xF6ln,1\n"),
             Contains("x.csv:3 (column 2)") && Contains("save the file as UTF-8"));
  CHECK_THAT(refusal_csv("a,gr\xFC\xDF,y\n1,2,0\n2,3,1\n"), Contains("x.csv:1 (column 2)"));
}
