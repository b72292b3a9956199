#include "config/diff.h"

#include "catch.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;

namespace {

std::string differences(const std::string& before, const std::string& after) {
  return describe_differences(diff_dumps(before, after));
}

}  // namespace

TEST_CASE("a difference names the key path and both values") {
  CHECK(differences("{a: 1, b: {c: x, d: [1, 2]}}", "{b: {d: [1, 3, 4], c: 'x y'}, e: {f: g}}") ==
        "  a: 1 -> absent\n"
        "  b.c: x -> \"x y\"\n"
        "  b.d[1]: 2 -> 3\n"
        "  b.d[2]: absent -> 4\n"
        "  e: absent -> {f: g}");
  CHECK(differences("a: {b: 1}", "a: [1]") == "  a: {b: 1} -> [1]");
}

TEST_CASE("dumps of many values are compared") {
  std::string files = "files:\n";
  for (int i = 0; i < 110'000; ++i) files += fmt::format("- /data/{:06}\n", i);
  CHECK(differences(files, files + "- x\n") == "  files[110000]: absent -> x");
  CHECK(keys_of_dump(files).size() == 110'000);
}

TEST_CASE("spelling is no difference, type is") {
  CHECK(differences("{a: 1e-3, b: x, c: null}", "{c: ~, b: 'x', a: 0.001}") == "");
  CHECK(differences("a: 1", "a: '1'") == "  a: 1 -> \"1\"");
}
