// Tables as people have them: headers, separators, texts, empty cells, and files for a model that
// was trained on another one.
#include "base/error.h"
#include "catch.h"
#include "data/csv.h"
#include "data/fitted.h"
#include "refusal.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

using Row = std::vector<float>;
using Texts = std::vector<std::string>;

std::shared_ptr<const Dataset> table(const std::string& text, const CsvOptions& options = {},
                                     const OpenOptions& how = {}) {
  return load_csv(
      options, [&] { return LineReader("t.csv", text); }, how);
}

std::string table_refusal(const std::string& text, const CsvOptions& options = {},
                          const OpenOptions& how = {}) {
  return refusal_of([&] { table(text, options, how); });
}

Row row_of(const Dataset& data, int64_t sample) {
  Row out(static_cast<size_t>(data.fields()[0].sample.shape.elements()));
  data.gather(0, {&sample, 1}, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

int32_t integer_of(const Dataset& data, int field, int64_t sample) {
  int32_t out[8] = {};
  data.gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(out));
  return out[0];
}
int32_t label_of(const Dataset& data, int64_t sample) {
  return integer_of(data, data.target_field(), sample);
}

OpenOptions for_model(const Dataset& trained, bool targets = true) {
  return {.trained = trained.schema(), .targets = targets};
}

const char* const kPassengers =
    "PassengerId,Survived,Sex,Age,Port\n"
    "1,0,male,22,S\n"
    "2,1,female,38,C\n"
    "3,1,female,,S\n"
    "4,0,male,40,\n";

}  // namespace

TEST_CASE("header, separator and decimals are found by themselves") {
  CHECK(row_of(*table("a,b,y\n1,2,0\n3,4,1\n"), 0) == Row{1, 2});
  CHECK(row_of(*table("a;b;y\r\n1,5;2;0\r\n3;4;1\r\n"), 0) == Row{1.5f, 2});
  CHECK(row_of(*table("a\tb\ty\n1\t2\t0\n"), 0) == Row{1, 2});
  CHECK(row_of(*table("1 2  0\n 3 4 1\n"), 1) == Row{3, 4});
  CHECK(row_of(*table("sep=;\na;b;y\n1;2;0\n"), 0) == Row{1, 2});
  CHECK(table("1,2,0\n3,4,1\n")->size() == 2);
  // A header of texts above texts, unless one comes again.
  CHECK(table("colour,kind\nred,x\nblue,y\n")->size() == 2);
  CHECK(table("red,x\nblue,y\nred,y\n")->size() == 3);
  CHECK_THAT(table_refusal("size,3\n1,3\n2,4\n"),
             Contains("set `header: true` or `header: false`"));
  CHECK_THAT(table_refusal("0,1,2\n5,1,0\n6,1,1\n"), Contains("the numbers of the columns"));
  // Years or counted columns under a text that no line repeats, and data that is like it.
  for (const char* numbers : {"2019,2021", "0,1"}) {
    CHECK_THAT(table_refusal(numbers + std::string(",y\n5,7,a\n3,8,b\n5,2,a\n")),
               Contains("'y' looks like the name of a column") && Contains("like data; set"));
  }
  CHECK(table("7,3,c\n1,2,a\n5,5,b\n")->size() == 3);
  CHECK(table("1,2,a\n3,4,b\n5,6,a\n")->size() == 3);
  CHECK_THAT(table_refusal("PK\x03\x04 xl,1\n"), Contains("is a workbook"));
  CHECK_THAT(table_refusal("\xFF\xFE"
                           "a"),
             Contains("is UTF-16"));
}

TEST_CASE("cells in quotes hold separators, quotes and line ends") {
  const auto data =
      table("name,size,y\n\"a, b\",1,0\n\"say \"\"c\"\"\",2,1\n\"two\nlines\",3,1\n\"a, b\",4,0\n");
  CHECK(data->size() == 4);
  CHECK(data->schema()->columns[0].categories == Texts{"a, b", "say \"c\"", "two\nlines"});
  CHECK(data->location_of(3) == "t.csv:6");
  CHECK_THAT(table_refusal("a,y\n1,0\n\"2,1\n"),
             Contains("t.csv:3: a quote that begins in this record is not closed"));
  CHECK_THAT(table_refusal("a,y\n\"1\"x,0\n"), Contains("a closing quote is followed by text"));
  // Any blanks between cells, before the first and after the last.
  const CsvOptions blanks{.hints = {.delimiter = " "}};
  const auto cars = table("1  \"a b\" 0\n2 x\t1 \n3\t\"a b\"\t0\n \"4\" \"x\" 1 \t\n", blanks);
  CHECK(cars->schema()->columns[1].categories == Texts{"a b", "x"});
  CHECK(row_of(*cars, 2) == Row{3, 1, 0});
  CHECK(row_of(*cars, 3) == Row{4, 0, 1});
  CHECK_THAT(table_refusal("1 \"a\" 0\n2 \"a\"b 1\n", blanks),
             Contains("t.csv:2: a closing quote is followed by text"));
}

TEST_CASE("texts are categories: an input each, or ids for an embedding") {
  const std::string text = "colour,size,kind,y\nred,1,b,0\nblue,2,a,1\nred,3,a,1\n";
  const auto one_hot = table(text);
  CHECK(to_string(one_hot->fields()[0].sample) == "f32[5]");
  CHECK(row_of(*one_hot, 0) == Row{0, 1, 1, 0, 1});
  CHECK(row_of(*one_hot, 1) == Row{1, 0, 2, 1, 0});
  const auto ids = table(text, {.embedded = true});
  CHECK(to_string(ids->fields()[0].sample) == "f32[1]");
  CHECK(ids->fields()[1].name == "categories");
  CHECK(to_string(ids->fields()[1].sample) == "i32[2]");
  CHECK(integer_of(*ids, 1, 0) == 2);
  CHECK(integer_of(*ids, 1, 1) == 1);
  CHECK(ids->id_bound(1) == 5);  // 0: none that was trained
  // Numbers among texts are categories, too; whole numbers may be written in two ways.
  const auto floors = table("floor,y\n10,0\n9.0,1\n10.0,1\nroof,0\nflat,0\nhut,1\nbarn,0\n");
  CHECK(floors->schema()->columns[0].categories == Texts{"9", "10", "barn", "flat", "hut", "roof"});
  CHECK(row_of(*floors, 2) == Row{0, 1, 0, 0, 0, 0});
  DataSchema earlier = *floors->schema();
  earlier.columns[0].categories[1] = "10.0";
  CHECK(schema_difference(earlier, *floors->schema()).empty());
  const auto again =
      table("floor,y\n10,0\n10.0,1\n", {}, {.trained = std::make_shared<DataSchema>(earlier)});
  CHECK(row_of(*again, 0) == row_of(*floors, 2));
  CHECK(row_of(*again, 1) == row_of(*floors, 2));
  // Numbers that are told to be categories.
  CHECK(row_of(*table("class,y\n3,0\n1,1\n3,1\n", {.categories = {"class"}}), 0) == Row{0, 1});
}

TEST_CASE("classes have names where they are texts or do not count from 0") {
  const auto texts = table("a,y\n1,yes\n2,no\n3,yes\n");
  CHECK(texts->class_names() == Texts{"no", "yes"});
  CHECK(label_of(*texts, 0) == 1);
  CHECK(texts->label_bound() == 2);
  const auto numbers = table("a,y\n1,2\n2,10\n3,1.0\n4,-100\n");
  CHECK(numbers->class_names() == Texts{"1", "2", "10"});
  CHECK(label_of(*numbers, 1) == 2);
  CHECK(label_of(*numbers, 3) == kIgnoredLabel);
  CHECK(table("a,y\n1,0\n2,2\n3,1\n")->class_names().empty());
  // A zero before a number is part of a code.
  const auto codes = table("a,y\n1,01\n2,1\n3,02\n4,2\n5,x\n");
  CHECK(codes->class_names() == Texts{"01", "1", "02", "2", "x"});
  CHECK(label_of(*codes, 2) == 2);
  CHECK(table("a,y\n1,00\n2,01\n3,02\n")->class_names() == Texts{"00", "01", "02"});
  CHECK(table("a,y\n1,0\n2,1\n", {.classes = 7})->label_bound() == 7);
  std::string prices = "a,price\n";
  for (int i = 0; i < 300; ++i) prices += fmt::format("{},{}\n", i % 7, 100 + 3 * i);
  CHECK_THAT(table_refusal(prices), Contains("300 different numbers (100 to 997) in 300 rows: to "
                                             "predict a number use a loss such as mse"));
}

TEST_CASE("empty cells are an error, the mean, or say so in an input") {
  const CsvOptions options{.target = "Survived", .ignore = {"Port"}};
  CHECK_THAT(table_refusal(kPassengers, options),
             Contains("t.csv:4 (column 4, 'Age'): a missing value (`empty: mean`"));
  CsvOptions mean = options;
  mean.ignore = {};
  mean.empty = EmptyCells::mean;
  const auto filled = table(kPassengers, mean);
  // Sex, Age, Port with a category for what is empty.
  CHECK(to_string(filled->fields()[0].sample) == "f32[6]");
  CHECK(std::isnan(row_of(*filled, 2)[2]));
  CHECK(row_of(*filled, 3) == Row{0, 1, 40, 0, 0, 1});
  const auto fitted = apply_fit(filled, fit_inputs(*filled, {.fill = true}));
  CHECK(row_of(*fitted, 2)[2] == Approx(100.0 / 3));
  CHECK(row_of(*fitted, 3) == row_of(*filled, 3));
  CsvOptions marked = mean;
  marked.empty = EmptyCells::category;
  CHECK(row_of(*table(kPassengers, marked), 2)[3] == 1);
  CHECK(row_of(*table(kPassengers, marked), 0)[3] == 0);
}

TEST_CASE("columns can be chosen, row numbers and unnamed indexes are left out") {
  const auto data = table(kPassengers, {.target = "Survived", .columns = {{"Sex"}}});
  CHECK(to_string(data->fields()[0].sample) == "f32[2]");
  CHECK(table(kPassengers, {.target = "Survived", .ignore = {"Age", "Port"}})
            ->schema()
            ->columns[0]
            .kind == ColumnSchema::Kind::ignored);
  CHECK(row_of(*table(",a,y\n0,5,0\n1,6,1\n2,7,1\n"), 1) == Row{6});
  CHECK_THAT(table_refusal("age,y\n1,0\n", {.ignore = {"agee"}}),
             Contains("no column 'agee'; did you mean 'age'?"));
  CHECK_THAT(table_refusal("a,a,y\n1,2,0\n"), Contains("two columns are called 'a'"));
  std::string people = "name,city,y\n";
  for (int i = 0; i < 60; ++i) people += fmt::format("p{},c{},{}\n", i, i % 40, i % 2);
  CHECK_THAT(table_refusal(people),
             Contains("column 'city' has 40 different texts in 60 rows ('c0'): set `ignore`"));
  // Different texts beside a number, and numbers beside a text for those that are missing.
  std::string notes = "note,size,y\n", sizes = "size,y\n";
  for (int i = 0; i < 60; ++i) {
    notes += fmt::format("{},{},{}\n", i < 40 ? fmt::format("n{}", i) : "0", i, i % 2);
    sizes += fmt::format("{},{}\n", i < 35 ? "-" : fmt::format("{}.5", i), i % 2);
  }
  CHECK(table(notes)->schema()->columns[0].kind == ColumnSchema::Kind::ignored);
  CHECK_THAT(table_refusal(sizes),
             Contains("column 'size' has 25 different numbers, and texts ('-') in 35 rows: leave"));
  const auto known = table(people, {.categories = {"city"}});
  CHECK(known->schema()->columns[0].kind == ColumnSchema::Kind::ignored);
  CHECK(to_string(known->fields()[0].sample) == "f32[40]");
}

TEST_CASE("a title above the header is told") {
  CHECK_THAT(table_refusal("Sales of May\n\na;b;y\n1;2;0\n3;4;1\n"),
             EndsWith("; the lines below have 3 columns with ';': remove those above the header"));
  CHECK_THAT(table_refusal("Sales of May\na,b,y\n1,2,0\n3,4,1\n"),
             EndsWith("; the lines below have 3 columns: remove those above the header"));
  CHECK_THAT(table_refusal("a\n1\n2\n"), EndsWith("(set `delimiter` for another character)"));
}

TEST_CASE("numbers with marks are no texts") {
  std::string sales = "revenue,y\n";
  for (int i = 0; i < 30; ++i) sales += fmt::format("\"{},{}.50\",{}\n", i, 100 + i, i % 2);
  CHECK_THAT(table_refusal(sales),
             Contains("column 'revenue' has numbers with other characters ('0,100.50')"));
  std::string commas = "a,y\n", points = "a;y\n";
  for (int i = 0; i < 60; ++i) {
    commas += fmt::format("\"{0},94\",\"{0},883\"\n", i);
    points += fmt::format("{}.94;1\n", i);
  }
  CHECK_THAT(table_refusal(commas),
             Contains("or set `ignore`; if the comma is the decimal mark, set `decimal: \",\"`") &&
                 Contains("too many for classes; if the comma is the decimal mark"));
  CHECK_THAT(table_refusal(points, {.hints = {.decimal = ","}}),
             Contains("if the point is the decimal mark, set `decimal: \".\"`"));
  // Beside decimal commas a point separates thousands.
  std::string german = "a;b;y\n";
  for (int i = 100; i < 140; ++i) german += fmt::format("0,{0};1.{0};{1}\n", i, i % 2);
  CHECK_THAT(
      table_refusal(german),
      Contains("column 'b' has numbers with other characters ('1.100'): write them without"));
  CHECK(row_of(*table("a;b;y\n0,265;1.2345;0\n7,5;12.345;1\n"), 0).back() == 1.2345f);
  CHECK(row_of(*table(commas, {.hints = {.decimal = ","}, .regression = true}), 1)[0] == 1.94f);
  for (const char* cell : {"8.580", "1.470,86", "1,470,86"}) {
    CHECK_THAT(
        table_refusal(fmt::format("a;y\n1,5;0\n{};1\n", cell), {.hints = {.decimal = ","}}),
        Contains(fmt::format("'{}' is not a number (the decimal mark is a comma here; remove "
                             "thousands separators)",
                             cell)));
  }
}

TEST_CASE("dates are refused with what to do") {
  CHECK_THAT(table_refusal("day,y\n2024-01-31,0\n2024-02-01,1\n"),
             Contains("column 'day' has dates or times ('2024-01-31')"));
  CHECK_THAT(table_refusal("a,day,hour,y\n1,31.1.2024 10:00,10:30,0\n2,1.2.2024 11:00,11:30,1\n"),
             Contains("2 columns cannot be used as they are"));
}

TEST_CASE("all bad cells are told at once") {
  const std::string said = table_refusal("a,b,y\n1,2,0\nx,3,1\n4,,1\n5,6\n1,7,0\n8,\"1,234\",0\n");
  CHECK_THAT(said, Contains("t.csv: 4 cells or lines cannot be used"));
  CHECK_THAT(said, Contains("t.csv:3 (column 1, 'a'): 'x' is not a number"));
  CHECK_THAT(said, Contains("t.csv:5: 2 columns, but the first line has 3"));
  CHECK_THAT(said, Contains("t.csv:4 (column 2, 'b'): a missing value"));
  CHECK_THAT(said, Contains("t.csv:7 (column 2, 'b'): '1,234' is not a number (use a decimal point "
                            "and no thousands separators, or set `decimal: \",\"`)"));
  std::string many = "a,y\n1,0\n";
  for (int i = 0; i < 50; ++i) many += fmt::format("{},0\n{}x,0\n", i, i);
  CHECK_THAT(table_refusal(many), Contains("50 cells") && Contains("… and 30 more"));
  // In the order of the file, the hint beside what it is for.
  const std::string empty = table_refusal("a,b,y\n1,,0\nx,3,1\n4,,1\n5,z,0\n");
  CHECK_THAT(empty,
             Contains("cannot be used:\n  t.csv:2 (column 2, 'b'): a missing value, one of 2 "
                      "in this column (lines 2, 4) (`empty: mean`"));
  CHECK(empty.find("t.csv:2") < empty.find("t.csv:3"));
  CHECK(empty.find("t.csv:3") < empty.find("t.csv:5"));
  std::string gaps = "a,b,y\nx,1,0\n";
  for (int i = 0; i < 12; ++i) gaps += "1,,0\n";
  CHECK_THAT(table_refusal(gaps),
             Contains("one of 12 in this column (lines 3, 4, 5, 6, 7, 8, 9, 10, …)"));
}

TEST_CASE("a target that does not suit the loss is told once, not for each cell") {
  std::string words = "a,y\n", numbers = words;
  for (int i = 0; i < 40; ++i) {
    words += fmt::format("{},{}\n", i % 7, i % 2 == 0 ? "yes" : "no");
    numbers += fmt::format("{},{}\n", i % 7, 0.3 + i);
  }
  CHECK(table_refusal(words, {.regression = true}) ==
        "t.csv: the target column 'y' has texts ('yes'), but this loss needs numbers: to predict "
        "classes use a loss such as cross_entropy");
  CHECK_THAT(table_refusal(numbers),
             Contains("t.csv: the target column 'y' has numbers that are no integers (40 of 40), "
                      "and so no labels: to predict a number"));
}

TEST_CASE("files for a trained model are read by the names of columns, categories and classes") {
  const std::string text = "a,colour,b,y\n1,red,2,no\n3,blue,4,yes\n";
  const auto trained = table(text);
  const auto again = table("b,y,a,colour\n4,yes,3,blue\n", {}, for_model(*trained));
  CHECK(row_of(*again, 0) == row_of(*trained, 1));
  CHECK(label_of(*again, 0) == 1);
  // Without the target, for predictions; an index is passed over.
  const auto unlabelled = table(",colour,b,a\n0,red,2,1\n", {}, for_model(*trained, false));
  CHECK(row_of(*unlabelled, 0) == row_of(*trained, 0));
  CHECK_FALSE(unlabelled->has_targets());
  CHECK_THAT(table_refusal("a,colour,b\n1,red,2\n", {}, for_model(*trained)),
             Contains("t.csv:1: there is no column 'y', which the model was trained with"));
  const std::string renamed = table_refusal("a,color,b,y\n1,red,2,no\n", {}, for_model(*trained));
  CHECK_THAT(
      renamed,
      Contains("there is no column 'colour', which the model was trained with; is it 'color'?"));
  CHECK_THAT(renamed, Contains("the model was trained without the column 'color'"));
  CHECK(table("a,colour,b,y,z\n1,red,2,no,3\n", {.ignore = {"z"}}, for_model(*trained))->size() ==
        1);
  CHECK_THAT(table_refusal("1,red,2,no\n", {}, for_model(*trained)),
             Contains("the first line has none of the columns"));
  CHECK_THAT(table_refusal("a,colour,b,y\n1,red,2,maybe\n", {}, for_model(*trained)),
             Contains("the class 'maybe' is not one of the 2 trained classes: no, yes"));
  CHECK(label_of(*table("a,colour,b,y\n1,red,2,maybe\n", {}, for_model(*trained, false)), 0) ==
        kIgnoredLabel);
  CHECK_THAT(table_refusal("a,colour,b,y\n1,red,2,None\n", {}, for_model(*trained)),
             Contains("(column 4, 'y'): the target is missing ('None' counts as empty)"));
  const auto numbered = table("a,y\n1,class_0\n2,class_1\n");
  CHECK_THAT(table_refusal("a,y\n3,class_2\n", {}, for_model(*numbered)),
             EndsWith("trained classes: class_0, class_1"));
  // A category that was not trained is not one of them.
  CHECK(row_of(*table("a,colour,b,y\n1,green,2,no\n", {}, for_model(*trained)), 0) ==
        Row{1, 0, 0, 2});
  // Without names columns are matched by their places.
  const auto unnamed = table("1,2,0\n3,4,1\n");
  CHECK(row_of(*table("5,6\n", {}, for_model(*unnamed, false)), 0) == Row{5, 6});
  CHECK_THAT(table_refusal("5,6,7,0\n", {}, for_model(*unnamed)),
             Contains("has 4 columns, but the model was trained with 3"));
}

TEST_CASE("a schema is kept as JSON, and what differs is told") {
  const auto data = table(kPassengers, {.target = "Survived", .empty = EmptyCells::category});
  const auto fitted = fit_inputs(*data, {.normalize = true, .fill = true});
  CHECK(fitted->columns[3].statistics->mean == Approx(100.0 / 3));
  const DataSchema read = schema_from_json(to_json(*fitted), "state.json");
  CHECK(to_json(read) == to_json(*fitted));
  CHECK(schema_difference(read, *fitted).empty());
  DataSchema other = read;
  other.columns[3].statistics->mean += 1;
  CHECK_THAT(schema_difference(read, other),
             Contains("column 'Age' has mean 33.3333 in the checkpoint and 34.3333 in this data"));
  // A mean may change, so other differences are told first.
  other.columns[4].categories[0] = "Q";
  CHECK_THAT(schema_difference(read, other), Contains("column 'Port' has other categories"));
  other = read;
  other.columns[2].categories.pop_back();
  CHECK_THAT(schema_difference(read, other),
             Contains("other categories (2 in the checkpoint, 1 in this data)"));
  other = read;
  other.columns[3].marks_empty = false;
  CHECK_THAT(schema_difference(read, other),
             Contains("column 'Age' has an input or category for empty cells in the checkpoint"));
  CHECK_THAT(schema_difference({.class_names = {"no", "yes"}}, {.class_names = {"no", "ja"}}),
             Contains("the classes differ (2 in the checkpoint, 2 in this data): number 1 is 'yes' "
                      "in the checkpoint and 'ja' in this data"));
  CHECK_THAT(schema_difference({.class_names = {"no"}}, {.class_names = {"no", "yes"}}),
             Contains("number 1 is missing in the checkpoint and 'yes' in this data"));
  CHECK(to_json({.class_names = {"a"}}).empty());
  for (const char* bad : {"{", "[]", "{\"format\": \"dltrain.data\", \"version\": 2}"}) {
    CHECK_THROWS_WITH(schema_from_json(bad, "state.json"),
                      Contains("state.json: the schema of the data"));
  }
}

TEST_CASE("normalize: auto gives mean 0 and standard deviation 1, of the training split alone") {
  const auto data = table("a,c,k,y\n1,5,u,0\n3,5,v,1\n100,5,u,1\n");
  const auto train = slice(data, 0, 2);
  const auto schema = fit_inputs(*train, {.normalize = true});
  const auto normalized = apply_fit(data, schema);
  CHECK(row_of(*normalized, 0) == Row{-1, 0, 1, 0});
  CHECK(row_of(*normalized, 1) == Row{1, 0, 0, 1});
  CHECK(row_of(*normalized, 2) == Row{98, 0, 1, 0});
  CHECK(normalized->schema()->columns[0].statistics->std == 1);
  // Images: by channel.
  const auto images = table("1,10,3,10,0\n1,10,3,10,1\n", {.shape = {{1, 2, 2}}});
  const auto channels = fit_inputs(*images, {.normalize = true});
  REQUIRE(channels->channels.size() == 1);
  CHECK(channels->channels[0].second[0].mean == 2);
  CHECK(row_of(*apply_fit(images, channels), 0) == Row{-1, 0, 1, 0});
  const auto gray = table("1,10,3,10,0\n", {.shape = {{2, 2, 1}}});
  CHECK_THAT(refusal_of([&] { apply_fit(gray, channels); }),
             Contains("statistics of 2 channels of the input, but this data has f32[2, 2, 1]"));
}

TEST_CASE("a name that two columns of new data have is refused if the column is used") {
  const auto trained = table("a,b,y\n1,2,0\n3,4,1\n", {.ignore = {"b"}});
  CHECK(table_refusal("a,y,a\n1,0,2\n", {.ignore = {"b"}}, for_model(*trained)) ==
        "t.csv:1: two columns are called 'a'");
  CHECK(table("a,b,b,y\n1,2,3,0\n", {.ignore = {"b"}}, for_model(*trained))->size() == 1);
}
