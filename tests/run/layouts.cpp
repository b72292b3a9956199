// One global batch under every layout of ranks and micro-steps (docs/equality.md).
#include <cmath>

#include "refusal.h"
#include "run/layout_run.h"

using namespace dltrain;

namespace {

std::vector<std::string> micro_batches(int micro_batch, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("training.micro_batch_size={}", micro_batch));
  return more;
}

}  // namespace

TEST_CASE("a fixed reduction gives the same bits for every number of ranks and micro-steps") {
  for (const Network& network : networks()) {
    // 12 micro-batches of 2 samples, 8 of 3, and 24 of 1.
    for (const auto& [micro_batch, layouts] :
         {std::pair(2, std::vector<int>{3}), {3, {2, 4}}, {1, {3}}}) {
      const auto overrides = micro_batches(micro_batch, {"training.reduction=fixed"});
      const LayoutRun alone = layout_run(network, 1, overrides);
      REQUIRE(alone.losses.size() == 5);
      for (int ranks : layouts) {
        INFO(network.name << ", micro-batches of " << micro_batch << ", " << ranks << " ranks");
        const LayoutRun shared = layout_run(network, ranks, overrides);
        CHECK(shared.losses == alone.losses);
        CHECK(shared.norms == alone.norms);
        CHECK(shared.state == alone.state);
      }
    }
  }
}

TEST_CASE("a fast reduction of the same micro-batches is within rounding, and another order") {
  const Network& gpt = networks()[2];
  const LayoutRun fixed = layout_run(gpt, 1, micro_batches(3, {"training.reduction=fixed"}));
  const LayoutRun fast = layout_run(gpt, 1, micro_batches(3));
  for (size_t i = 0; i < fixed.losses.size(); ++i) {
    CHECK(fast.losses[i] == Approx(fixed.losses[i]).epsilon(1e-5));
  }
  CHECK(fast.state != fixed.state);
}

TEST_CASE("a configuration for several ranks with all keys of the batch can be used on one") {
  const auto keys = [](int steps, std::vector<std::string> more = {}) {
    more.push_back(fmt::format("training.gradient_accumulation_steps={}", steps));
    return layout_experiment(networks()[0], micro_batches(2, more));
  };
  CHECK(check_ranks(keys(6), 2).micro_steps == 6);
  CHECK_THROWS_WITH(check_ranks(keys(6), 1), Catch::Contains("6 contradicts global_batch_size 24"));
  const auto on_one = [&](int steps) {
    Experiment experiment = keys(steps, one_rank_overrides());
    accumulate_on_one_rank(experiment.training);
    return check_ranks(experiment, 1).micro_steps;
  };
  CHECK(on_one(6) == 12);
  CHECK_THROWS_WITH(on_one(24), Catch::Contains("contradicts"));
  // A user's `data: 1` is no such configuration.
  CHECK_THROWS_WITH(check_ranks(keys(6, {"parallelism.data=1"}), 1),
                    Catch::Contains("contradicts"));
}

TEST_CASE("micro-steps that the fixed tree has no branch for are refused") {
  const Experiment experiment =
      layout_experiment(networks()[0], micro_batches(2, {"training.reduction=fixed"}));
  CHECK_NOTHROW(check_ranks(experiment, 1));
  CHECK_NOTHROW(check_ranks(experiment, 3));
  // 24 samples: 12 a rank.
  CHECK_THROWS_WITH(
      check_ranks(experiment, 2),
      Catch::Contains("over 12 micro-batches has no branch for the 6 of one rank") &&
          Catch::Contains("a micro_batch_size of 3, or a global_batch_size of 16 or 32"));
  CHECK_NOTHROW(check_ranks(
      layout_experiment(networks()[0], micro_batches(3, {"training.reduction=fixed"})), 2));
}
