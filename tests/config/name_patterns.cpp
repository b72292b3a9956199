#include "config/name_patterns.h"

#include "catch.h"

namespace dltrain {
namespace {

TEST_CASE(
    "a pattern fits whole names, with any characters for a star and one for a question mark") {
  CHECK(matches_pattern("layers.0.weight", "layers.0.weight"));
  CHECK(matches_pattern("layers.*.weight", "layers.0.norm.weight"));
  CHECK(matches_pattern("*", ""));
  CHECK(matches_pattern("*.bias", "a.bias.b.bias"));
  CHECK(matches_pattern("a?c**", "abc"));
  CHECK_FALSE(matches_pattern("layers.1", "layers.10"));
  CHECK_FALSE(matches_pattern("ayers.1", "layers.1"));
  CHECK_FALSE(matches_pattern("layers.?", "layers."));
  CHECK_FALSE(matches_pattern("", "a"));
}

TEST_CASE("a hostile pattern takes no more than the product of the lengths") {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "a*";
  CHECK_FALSE(matches_pattern(pattern + "b", std::string(5000, 'a')));
}

TEST_CASE("the last pattern that fits decides, and ! takes out") {
  const std::vector<std::string> all_but_head{"*", "!head.*", "head.bias"};
  CHECK(selects(all_but_head, "layers.0.weight"));
  CHECK_FALSE(selects(all_but_head, "head.weight"));
  CHECK(selects(all_but_head, "head.bias"));
  CHECK_FALSE(selects({}, "x"));
}

TEST_CASE("patterns that fit nothing are reported with the names there are") {
  Diagnostics diagnostics;
  check_patterns(diagnostics, ConfigObject{}, "freeze", {"!a", "b*", "c"}, {"a", "bb", "d"},
                 "parameter");
  CHECK_THAT(diagnostics.describe(),
             Catch::Matchers::Contains("'!a' comes first and has nothing to exclude") &&
                 Catch::Matchers::Contains("'c' matches no parameter; they are a … d"));
  CHECK(diagnostics.all().size() == 2);
}

}  // namespace
}  // namespace dltrain
