#include "optim/schedule.h"

#include <cmath>

#include "catch.h"

namespace dltrain {
namespace {

std::unique_ptr<Schedule> schedule(const char* kind, int64_t warmup, double min_ratio) {
  auto made = make_kind(schedule_table(), kind);
  made->warmup_steps = warmup;
  made->min_ratio = min_ratio;
  return made;
}

TEST_CASE("the warmup rises in equal steps to the peak and does not begin at zero") {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    const auto s = schedule(kind, 4, 0.1);
    CHECK(s->factor(0, 100) == 0.25);
    CHECK(s->factor(1, 100) == 0.5);
    CHECK(s->factor(3, 100) == 1.0);
  }
}

TEST_CASE("the decay ends at min_ratio in the last step") {
  CHECK(schedule("constant", 10, 0)->factor(99, 100) == 1);
  CHECK(schedule("linear", 0, 0.1)->factor(99, 100) == Approx(0.1));
  CHECK(schedule("cosine", 10, 0.1)->factor(99, 100) == Approx(0.1));
  CHECK(schedule("cosine", 0, 0)->factor(99, 100) == Approx(0).margin(1e-15));
}

TEST_CASE("schedules at known points") {
  const auto linear = schedule("linear", 10, 0.2), cosine = schedule("cosine", 10, 0.2);
  CHECK(linear->factor(54, 100) == Approx(0.6));  // half way from step 10 to 100
  CHECK(cosine->factor(54, 100) == Approx(0.6));
  const double quarter = 0.25;  // of 80 steps after the warmup of 20
  CHECK(schedule("cosine", 20, 0)->factor(39, 100) ==
        Approx((1 + std::cos(quarter * 3.14159265358979)) / 2));
  CHECK(schedule("linear", 20, 0)->factor(39, 100) == Approx(1 - quarter));
}

TEST_CASE("a run that is no longer than its warmup, or goes on past its end, stays defined") {
  const auto s = schedule("cosine", 10, 0.1);
  CHECK(s->factor(4, 5) == 0.5);
  CHECK(s->factor(9, 10) == 1.0);
  CHECK(s->factor(500, 100) == Approx(0.1));
}

TEST_CASE("every schedule begins at the peak and never rises") {
  for (const KindRow<Schedule>& row : schedule_table().rows) {
    const auto s = schedule(std::string(row.name).c_str(), 0, 0.25);
    CHECK(s->decay(0) == Approx(1));
    double last = 1;
    for (int64_t step = 0; step < 50; ++step) {
      const double factor = s->factor(step, 50);
      CHECK(factor <= last);
      CHECK(factor >= 0.25 - 1e-12);
      last = factor;
    }
  }
}

}  // namespace
}  // namespace dltrain
