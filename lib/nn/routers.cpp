#include "nn/routers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

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
    const std::span all(router.sums);
    if (all.size() == experts + 3) return;
    dropped = rows > 0 ? all[experts + 3] / rows : 0;
    overflows = all[experts + 4];
    for (size_t bin = experts + 5; bin < all.size(); ++bin) {
      if (all[bin] > 0) needed = std::exp2(static_cast<double>(bin - experts - 5) / 8);
    }
  }
  std::vector<double> load;
  double balance, z, entropy;
  double dropped = 0, overflows = 0, needed = 0;
};

}  // namespace

RouterReport report_routers(std::span<const RouterSums> routers) {
  RouterReport out;
  if (routers.empty()) return out;
  double balance = 0, z = 0, entropy = 0, most = 0, dropped = 0, needed = 0;
  const auto count = static_cast<double>(routers.size());
  for (const RouterSums& router : routers) {
    RouterMeans means(router);
    balance += means.balance / count;
    z += means.z / count;
    entropy += means.entropy / count;
    dropped += means.dropped / count;
    needed = std::max(needed, means.needed);
    most = std::max(most, *std::ranges::max_element(means.load));
    out.load.emplace_back(router.info.layer, std::move(means.load));
  }
  out.values = {{"balance_loss", balance},
                {"router_z_loss", z},
                {"router_entropy", entropy},
                {"max_expert_load", most}};
  const RouterInfo& info = routers.front().info;
  if (info.capacity > 0) out.values.emplace_back("dropped_share", dropped);
  if (info.owners > 1) out.values.emplace_back("expert_buffer", needed);
  return out;
}

std::string check_buffers(std::span<const RouterSums> routers) {
  double needed = 0, rows = 0;
  const RouterInfo* first = nullptr;
  for (const RouterSums& router : routers) {
    const RouterMeans means(router);
    if (means.overflows > 0 && first == nullptr) first = &router.info;
    rows += means.overflows;
    needed = std::max(needed, means.needed);
  }
  if (first == nullptr) return {};
  return fmt::format(
      "{}: {:.0f} rows had no room in the buffers between the ranks of the experts; "
      "parallelism.expert_buffer is {}, {:.2f} would have been enough in this step, and `worst` "
      "always is; --resume auto continues from the last checkpoint",
      first->layer, rows, first->buffer, std::ceil(needed * 100) / 100);
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
