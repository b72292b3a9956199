// Experts that no token of a batch chooses get no gradient and so may never learn.
#include "checks/checks_support.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

constexpr double kLeastRows = 8;  // of each expert, if the load were balanced: fewer are chance

}  // namespace

CheckResult check_dead_experts(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32);
  run_batch(run->session, first_batch(run->session));
  const std::vector<RouterSums> routers = read_routers(run->session);
  size_t experts = 0;
  std::vector<std::string> dead;
  double rows = 0;
  for (const RouterSums& router : routers) {
    for (size_t e = 0; e < static_cast<size_t>(router.info.experts); ++e) {
      ++experts;
      rows += router.sums[e];
      if (router.sums[e] == 0) dead.push_back(fmt::format("{} of {}", e, router.info.layer));
    }
  }
  const double balanced = rows / static_cast<double>(experts);
  if (balanced < kLeastRows) {
    return skipped("a micro-batch has too few tokens: {:.1f} for each expert", balanced);
  }
  if (!dead.empty()) {
    return pass_if(false,
                   "{} of {} experts get no token of the first batch: {} (balance_loss of "
                   "moe spreads the tokens)",
                   dead.size(), experts, some_names(dead, 8));
  }
  return pass_if(true, "each of {} experts gets tokens of the first batch", experts);
}

}  // namespace dltrain
