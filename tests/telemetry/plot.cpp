#include "telemetry/plot.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.h"

using namespace dltrain;

TEST_CASE("a falling curve is drawn with its limits") {
  const std::vector<double> values{4, 3, 2, 1};
  CHECK(plot(values, {.width = 4, .height = 2, .utf8 = true}) ==
        "4 ┤█▃\n"
        "1 ┤██▆▁");
  CHECK(plot(values, {.width = 4, .height = 2, .utf8 = false}) ==
        "4 +#.\n"
        "1 +##-_");
}

TEST_CASE("many values are averaged into the columns, missing ones leave a gap") {
  std::vector<double> values(1000, 2.0);
  for (size_t i = 0; i < 500; ++i) values[i] = i % 2 ? 5 : 3;
  CHECK(plot(values, {.width = 4, .height = 1}) == "4 ┤██▁▁");
  values.assign({1, NAN, INFINITY, 2});
  CHECK(plot(values, {.width = 4, .height = 1}) == "2 ┤▁  █");
}

TEST_CASE("too few values give no drawing") {
  CHECK(plot(std::vector<double>{}, {}).empty());
  CHECK(plot(std::vector<double>{1, NAN}, {}).empty());
}

TEST_CASE("points are drawn at their places, and the worst tenth at the border") {
  const std::vector<double> x{0, 0.5, 0.99}, y{1, 3, 2};
  CHECK(scatter(x, y, true, {.width = 5, .height = 3, .utf8 = false}) ==
        "3 +  *\n"
        "  |    *\n"
        "1 +*");
  std::vector<double> many_x, many_y;
  for (int i = 0; i < 20; ++i) {
    many_x.push_back(i / 20.0);
    many_y.push_back(i == 7 ? 1e6 : i);
  }
  const std::string limited = scatter(many_x, many_y, true, {.height = 4});
  CHECK(limited.starts_with("18 "));
  CHECK(limited.ends_with("\n^: 2 points above 18"));
  CHECK(std::ranges::count(limited, '^') == 3);
  const std::string greater = scatter(many_x, many_y, false, {.height = 4, .utf8 = false});
  CHECK(greater.ends_with("\nv: 2 points below 2"));
  CHECK(scatter(std::vector<double>{0.5}, std::vector<double>{NAN}, true, {}).empty());
}

TEST_CASE("the first columns of a table begin at one place, the others end at one") {
  CHECK(aligned({{"run", "loss", "time"}, {"a/b/c", "1", ""}}, 1) ==
        "run    loss  time\n"
        "a/b/c     1\n");
  CHECK(aligned({{"x", "10"}, {"yy", "2"}}) == " x  10\nyy   2\n");
}
