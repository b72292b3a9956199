#include "config/name_patterns.h"

#include "catch.h"

namespace dltrain {
namespace {

TEST_CASE(
    "a pattern fits whole names, with any characters for a star and one for a question mark") {
  CHECK(fits_pattern("layers.0.weight", "layers.0.weight"));
  CHECK(fits_pattern("layers.*.weight", "layers.0.norm.weight"));
  CHECK(fits_pattern("*", ""));
  CHECK(fits_pattern("*.bias", "a.bias.b.bias"));
  CHECK(fits_pattern("a?c**", "abc"));
  CHECK_FALSE(fits_pattern("layers.1", "layers.10"));
  CHECK_FALSE(fits_pattern("ayers.1", "layers.1"));
  CHECK_FALSE(fits_pattern("layers.?", "layers."));
  CHECK_FALSE(fits_pattern("", "a"));
}

TEST_CASE("a hostile pattern takes no more than the product of the lengths") {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "a*";
  CHECK_FALSE(fits_pattern(pattern + "b", std::string(5000, 'a')));
}

TEST_CASE("the last pattern that fits decides, and ! takes out") {
  const std::vector<std::string> all_but_head{"*", "!head.*", "head.bias"};
  CHECK(selects(all_but_head, "layers.0.weight"));
  CHECK_FALSE(selects(all_but_head, "head.weight"));
  CHECK(selects(all_but_head, "head.bias"));
  CHECK_FALSE(selects({}, "x"));
}

TEST_CASE("patterns that fit nothing are reported with the names there are") {
  Problems problems;
  check_patterns(problems, Located{}, "freeze", {"!a", "b*", "c"}, {"a", "bb", "d"}, "parameter");
  CHECK_THAT(problems.describe(),
             Catch::Matchers::Contains("'!a' comes first and has nothing to exclude") &&
                 Catch::Matchers::Contains("'c' matches no parameter; they are a … d"));
  CHECK(problems.all().size() == 2);
}

}  // namespace
}  // namespace dltrain
