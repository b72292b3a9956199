#include "run/loss_watch.h"

#include <cmath>

#include "base/philox.h"
#include "catch.h"

using namespace dltrain;

namespace {

// A falling loss with the noise of small batches.
double noisy(int64_t step, double floor = 0.5) {
  const double u = random_uniform(1, random_stream("test"), 0, static_cast<uint64_t>(step)) +
                   random_uniform(2, random_stream("test"), 0, static_cast<uint64_t>(step)) - 1;
  return floor + 2 * std::exp(-static_cast<double>(step) / 400) + 0.2 * u;
}

}  // namespace

TEST_CASE("a falling noisy loss is not notable") {
  LossWatch watch;
  for (int64_t step = 1; step <= 400; ++step) {
    CHECK(watch.add(step, noisy(step), 1).empty());
  }
}

TEST_CASE("a spike is named once, with its step and gradient") {
  LossWatch watch;
  int named = 0;
  for (int64_t step = 1; step <= 300; ++step) {
    const bool spike = step >= 200 && step < 205;
    const std::string said = watch.add(step, noisy(step) * (spike ? 4 : 1), spike ? 50 : 1);
    named += said.empty() ? 0 : 1;
    if (step == 200) CHECK(said.starts_with("step 200: the loss rose to "));
    if (step == 200) CHECK(said.ends_with("gradient norm 50"));
  }
  CHECK(named == 1);
}

TEST_CASE("a converged run and one with many spikes are not told again and again") {
  LossWatch converged, restless;
  int of_converged = 0, of_restless = 0;
  for (int64_t step = 1; step <= 20000; ++step) {
    const double tiny = step % 31 == 0 ? 7.5e-9 : 3.7e-9;
    of_converged +=
        converged.add(step, step == 1 ? 0.7 : tiny, 1).find("rose") != std::string::npos ? 1 : 0;
    of_restless +=
        restless.add(step, step % 31 == 0 ? 4 : 1, 1).find("rose") != std::string::npos ? 1 : 0;
  }
  CHECK(of_converged == 0);
  CHECK(of_restless >= 5);
  CHECK(of_restless <= 10);
}

TEST_CASE("a loss that no longer falls is named once, a slowly falling one is not") {
  LossWatch flat, slow;
  int of_flat = 0, of_slow = 0;
  for (int64_t step = 1; step <= 3000; ++step) {
    const double fall = std::exp(-static_cast<double>(step) / 20);
    of_flat += flat.add(step, 1 + fall, 1).empty() ? 0 : 1;
    of_slow += slow.add(step, 3 / std::sqrt(static_cast<double>(step)), 1).empty() ? 0 : 1;
  }
  CHECK(of_flat == 1);
  CHECK(of_slow == 0);
  LossWatch short_run;
  for (int64_t step = 1; step < 100; ++step) CHECK(short_run.add(step, 1, 1).empty());
  CHECK(short_run.add(100, NAN, 1).empty());
}
