#include "config/yaml.h"

#include "catch.h"
#include "config/scalar.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;

namespace {

std::string complaint(const std::string& text) {
  Diagnostics diagnostics;
  const auto tree = read_yaml(source(text, "f.yaml"), 0, diagnostics);
  CHECK(tree.has_value() == diagnostics.empty());
  return diagnostics.describe();
}

ConfigNode tree(const std::string& text) {
  Diagnostics diagnostics;
  auto node = read_yaml(source(text, "f.yaml"), 0, diagnostics);
  diagnostics.throw_if_any();
  return *node;
}

}  // namespace

TEST_CASE("a duplicate key is refused with both places") {
  CHECK(complaint("a: 1\nb:\n  c: 2\n  d: 3\n  c: 4\na: 5\n") ==
        "f.yaml:5:3: error: duplicate key 'c', first given at f.yaml:3:3\n"
        "    5 |   c: 4\n"
        "      |   ^\n"
        "f.yaml:6:1: error: duplicate key 'a', first given at f.yaml:1:1\n"
        "    6 | a: 5\n"
        "      | ^");
}

TEST_CASE("texts that are no configuration end in one located message") {
  struct Row {
    std::string text, message;
  };
  const auto row = GENERATE(values<Row>({
      {"a: [1, 2\n", "f.yaml:2:1: error: not valid YAML: end of sequence flow not found"},
      {"a: 1\n  b: 2\n", "f.yaml:2:4: error: not valid YAML: illegal map value (here and"},
      {"a:\n  - b\n  -c\n", "line above, check the indentation and the blanks after '-' and ':')"},
      {"a:\n\tb: 1\n", "f.yaml:2:1: error: a tab in the indentation; YAML requires spaces"},
      {"a: {b[0].c: [8,16]}\n", "flow not found (a bracket is missing, or a key or text with"},
      {"a: ${A}\nb: [${B}]\n", "end of sequence flow not found; ${NAME} needs quotes here"},
      {"a: b: c\n", "not valid YAML: illegal map value"},
      {"a: 'x\n", "f.yaml:1:4: error: the closing quote is missing"},
      {"a: 1\n---\nb: 2\n", "error: a second document; a file must have only one"},
      {"a: caf\xE9\n", "f.yaml:1:7: error: not UTF-8 text"},
      {std::string("a: \0b\n", 6), "f.yaml:1:4: error: control character 0x00 in the text"},
      {"a: \x1b[31m\n", "control character 0x1b"},
      {"[a, b]: 1\n", "f.yaml:1:1: error: a key must be a word, not a list"},
      {"? {a: b}\n: 1\n", "a key must be a word, not a map"},
      {"~: 1\n", "a key must be a word, not nothing"},
      {"a: !!python/object:os.system x\n",
       "tags such as 'tag:yaml.org,2002:python/object:os.system' are not supported"},
      {"a: !custom {b: 1}\n", "tags such as '!custom' are not supported"},
      {"a: *nowhere\n", "not valid YAML: the referenced anchor is not defined"},
      {"a: &x [*x]\n", "f.yaml:1:8: error: an alias inside the value that it refers to"},
      {"a: &x {b: *x}\n", "an alias inside the value that it refers to"},
      {"<<: 3\n", "'<<' takes a map or a list of maps, not the number 3"},
      {std::string(5000, '['), "nested deeper than 100"},
      {std::string(300, '{'), "nested deeper than 100"},
  }));
  INFO(row.text.substr(0, 80));
  CHECK_THAT(complaint(row.text), Catch::Contains(row.message));
}

TEST_CASE("aliases and merge keys are read, explicit keys win") {
  const ConfigNode root = tree(
      "base: &base {a: 1, b: 2}\n"
      "more: &more {b: 3, c: 4}\n"
      "x: {<<: [*base, *more], a: 9}\n"
      "y: *base\n"
      "z: {'<<': 1}\n");
  CHECK(root.find("x")->find("a")->text == "9");
  CHECK(root.find("x")->find("b")->text == "2");
  CHECK(root.find("x")->find("c")->text == "4");
  CHECK(root.find("y")->find("b")->text == "2");
  CHECK(root.find("y")->location.column() == 4);
  CHECK(root.find("z")->find("<<")->text == "1");
}

TEST_CASE("a bomb of aliases is refused at the limit of values") {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    text += fmt::format("a{0}: &a{0} [", i);
    for (int k = 0; k < 10; ++k) text += fmt::format("{}*a{}", k ? ", " : "", i - 1);
    text += "]\n";
  }
  CHECK_THAT(complaint(text), Catch::Contains("more than 2000000 values (aliases expanded)"));
  std::string nested;  // each anchor is a copy of what it holds
  for (int i = 0; i < 90; ++i) nested += fmt::format("&a{} [", i);
  for (int i = 0; i < 25000; ++i) nested += "x, ";
  CHECK_THAT(complaint(nested + std::string(90, ']')), Catch::Contains("more than 2000000 values"));
}

TEST_CASE("hostile sizes take bounded time") {
  std::string keys, duplicates, row, values = "[";
  for (int i = 0; i < 60000; ++i) keys += fmt::format("k{}: 1\n", i);
  for (int i = 0; i < 100000; ++i) duplicates += "a: 1\n";
  for (int i = 0; i < 2000; ++i) row += "~, ";
  for (int i = 0; i < 1000; ++i) values += "[" + row + "], ";
  CHECK_THAT(complaint(keys), Catch::Contains("more than 10000 keys in a map"));
  CHECK_THAT(complaint(duplicates), Catch::Contains("duplicate key 'a'"));
  CHECK_THAT(complaint(values + "]"), Catch::Contains("more than 2000000 values"));
  std::string unknown;
  for (int i = 0; i < 9000; ++i) unknown += fmt::format("k{}: 1\n", i);
  const std::string text = mistakes(unknown);
  CHECK_THAT(text, Catch::Contains("… and 8952 more"));  // 9000, 2 missing sections; 50 shown
}

TEST_CASE("columns count characters and the caret stands below them") {
  CHECK(complaint("é: {ü: 1, ü: 2}\n") ==
        "f.yaml:1:11: error: duplicate key 'ü', first given at f.yaml:1:5\n"
        "    1 | é: {ü: 1, ü: 2}\n"
        "      |           ^");
  const std::string wide = "{a: 1, " + std::string(500, ' ') + "a: 2}";
  const std::string text = complaint(wide);
  CHECK_THAT(text, Catch::StartsWith("f.yaml:1:508: error: duplicate key"));
  CHECK(text.size() < 400);
}

TEST_CASE("scalars follow YAML 1.2") {
  const auto type = [](const std::string& text) { return classify_plain(text); };
  for (const char* text : {"0", "-7", "+3", "0x1F", "0o17", "123456789"}) {
    CHECK(type(text) == ScalarType::integer);
  }
  for (const char* text :
       {"1e-3", "1.0e-3", "1.", ".5", "-1.5E+7", ".inf", "-.Inf", ".nan", "0.5"}) {
    CHECK(type(text) == ScalarType::number);
  }
  for (const char* text :
       {"012", "00", "1_000", "1e",  "e5",  ".",   "-",   "+",   "0x",  "0o8", "1.2.3", "yes",
        "No",  "on", "12:30", "inf", "nan", "NaN", "1,5", "- 1", "+-1", "0b1", "--1",   "01.5"}) {
    INFO(text);
    CHECK(type(text) == ScalarType::text);
  }
  for (const char* text : {"true", "False", "TRUE"}) CHECK(type(text) == ScalarType::boolean);
  for (const char* text : {"", "~", "null", "NULL"}) CHECK(type(text) == ScalarType::null);
  const ConfigNode root = tree("{a: 0x10, b: 0o17, c: +5, d: '3', e: 1e400, f: 1e-400}");
  CHECK(as_integer(*root.find("a")) == 16);
  CHECK(as_integer(*root.find("b")) == 15);
  CHECK(as_number(*root.find("c")) == 5.0);
  CHECK_FALSE(as_integer(*root.find("d")));
  CHECK(std::isinf(*as_number(*root.find("e"))));
  CHECK(as_number(*root.find("f")) == 0.0);
}

TEST_CASE("a literal block keeps its text") {
  CHECK(tree("a: |\n  x\n  \ty\n").find("a")->text == "x\n\ty\n");
}
