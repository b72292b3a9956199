#include "profile/intervals.h"

#include "catch.h"

using namespace dltrain;

namespace {

std::vector<std::pair<int64_t, int64_t>> pairs(const Intervals& intervals) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const Interval& i : intervals) out.emplace_back(i.begin, i.end);
  return out;
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

TEST_CASE("intervals are joined, cut and counted") {
  const Intervals a = merged({{5, 9}, {0, 2}, {8, 12}, {2, 3}, {20, 20}});
  CHECK(pairs(a) == Pairs{{0, 3}, {5, 12}});
  CHECK(total(a) == 10);
  const Intervals b = merged({{1, 6}, {7, 8}, {11, 30}});
  CHECK(pairs(common(a, b)) == Pairs{{1, 3}, {5, 6}, {7, 8}, {11, 12}});
  CHECK(pairs(without(a, b)) == Pairs{{0, 1}, {6, 7}, {8, 11}});
  CHECK(pairs(without(b, a)) == Pairs{{3, 5}, {12, 30}});
  CHECK(pairs(without(a, {})) == pairs(a));
  CHECK(common(a, {}).empty());
  CHECK(without(a, a).empty());
}

// Every moment of `a` is in `b` or not.
TEST_CASE("what is common and what is not make the whole") {
  uint64_t seed = 1;
  const auto next = [&] {
    return static_cast<int64_t>((seed = seed * 6364136223846793005u + 1) >> 57);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> x, y;
    for (int i = 0; i < 8; ++i) {
      const int64_t at = next(), to = next();
      x.push_back({at, at + next() / 8});
      y.push_back({to, to + next() / 8});
    }
    const Intervals a = merged(x), b = merged(y);
    CHECK(total(common(a, b)) + total(without(a, b)) == total(a));
    CHECK(total(common(a, b)) == total(common(b, a)));
    CHECK(total(common(without(a, b), b)) == 0);
  }
}

}  // namespace
