// The metrics of routers of experts in reports.
#include "nn/routers.h"

#include <cmath>

#include "catch.h"

namespace dltrain {

TEST_CASE("reports of routers are means over the tokens, and over the layers") {
  // 4 tokens choose 2 of 3 experts.
  const RouterSums first{{.layer = "a", .experts = 3, .choices = 2, .balance_loss = 0.5},
                         {4, 3, 1, 8, 2, 1}};
  const RouterSums second{{.layer = "b", .experts = 3, .choices = 2, .router_z_loss = 0.25},
                          {2, 2, 4, 12, 6, 3}};
  const RouterReport report = report_routers(std::vector{first, second});
  REQUIRE(report.values.size() == 4);
  CHECK(report.values[0] == std::pair<std::string, double>("balance_loss", 2.5));
  CHECK(report.values[1] == std::pair<std::string, double>("router_z_loss", 1.0));
  CHECK(report.values[2] == std::pair<std::string, double>("router_entropy", 0.5));
  CHECK(report.values[3] == std::pair<std::string, double>("max_expert_load", 1.0));
  REQUIRE(report.load.size() == 2);
  CHECK(report.load[0].second == std::vector<double>{1, 0.75, 0.25});
  CHECK(report.load[1].first == "b");
  CHECK(added_loss(std::vector{first, second}) == Approx(0.5 * 2 + 0.25 * 1.5));
  CHECK(report_routers({}).values.empty());
}

TEST_CASE("reports of experts over ranks tell what was dropped, and what buffers were needed") {
  // 4 of 16 pairs were dropped; one message needed 1.5 times the average, at most.
  const RouterInfo info{
      .layer = "a", .experts = 2, .choices = 2, .owners = 2, .buffer = 2, .capacity = 1};
  RouterSums sums{info, {8, 8, 1, 1, 1, 4, 0, 1, 0, 0, 0, 0, 3, 0, 0, 0}};
  const RouterReport report = report_routers(std::vector{sums});
  REQUIRE(report.values.size() == 6);
  CHECK(report.values[4] == std::pair<std::string, double>("dropped_share", 0.25));
  CHECK(report.values[5].first == "expert_buffer");
  CHECK(report.values[5].second == Approx(std::exp2(5.0 / 8)));
  CHECK(check_buffers(std::vector{sums}).empty());
  sums.info.buffer = 1;
  sums.sums[6] = 7;
  CHECK(check_buffers(std::vector{sums}) ==
        "a: 7 rows had no room in the buffers between the ranks of the experts; "
        "parallelism.expert_buffer is 1, 1.55 would have been enough in this step, and `worst` "
        "always is; --resume auto continues from the "
        "last checkpoint");
}

}  // namespace dltrain
