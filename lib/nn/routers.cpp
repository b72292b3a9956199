#include "nn/routers.h"

#include <algorithm>
#include <numeric>

namespace dltrain {
namespace {

// The parts of the sums of router_losses.
struct RouterMeans {
  explicit RouterMeans(const RouterSums& router) {
    const auto experts = static_cast<size_t>(router.info.experts);
    const double rows = std::accumulate(router.sums.begin(), router.sums.begin() + experts, 0.0);
    const double tokens = rows / static_cast<double>(router.info.choices);
    const auto mean = [&](size_t i) { return tokens > 0 ? router.sums[i] / tokens : 0; };
    for (size_t e = 0; e < experts; ++e) load.push_back(mean(e));
    balance = mean(experts);
    z = mean(experts + 1);
    entropy = mean(experts + 2);
  }
  std::vector<double> load;
  double balance, z, entropy;
};

}  // namespace

RouterReport report_routers(std::span<const RouterSums> routers) {
  RouterReport out;
  if (routers.empty()) return out;
  double balance = 0, z = 0, entropy = 0, most = 0;
  const auto count = static_cast<double>(routers.size());
  for (const RouterSums& router : routers) {
    RouterMeans means(router);
    balance += means.balance / count;
    z += means.z / count;
    entropy += means.entropy / count;
    most = std::max(most, *std::ranges::max_element(means.load));
    out.load.emplace_back(router.info.layer, std::move(means.load));
  }
  out.values = {{"balance_loss", balance},
                {"router_z_loss", z},
                {"router_entropy", entropy},
                {"max_expert_load", most}};
  return out;
}

double added_loss(std::span<const RouterSums> routers) {
  double sum = 0;
  for (const RouterSums& router : routers) {
    const RouterMeans means(router);
    sum += router.info.balance_loss * means.balance + router.info.router_z_loss * means.z;
  }
  return sum;
}

}  // namespace dltrain
