// The times of a pipeline's segments against the formulas of the schedules' papers.
#include "graph/schedule_times.h"

#include "catch.h"

namespace dltrain {
namespace {

// Stages whose forward takes 1 s and backward 2 s of each micro-batch, and whose update takes 0.5.
std::vector<StageTimes> equal_stages(int stages, int64_t micro_batches, bool gpipe) {
  std::vector<StageTimes> out;
  for (int s = 0; s < stages; ++s) {
    StageTimes times{.schedule = step_schedule(micro_batches, gpipe ? micro_batches : stages - s),
                     .seconds = {}};
    for (const ScheduledSegment& segment : times.schedule) {
      times.seconds.push_back(segment.segment == Phase::forward    ? 1
                              : segment.segment == Phase::backward ? 2
                                                                   : 0.5);
    }
    out.push_back(times);
  }
  return out;
}

TEST_CASE("equal stages take the time of GPipe and 1F1B: (m + p - 1) micro-batches") {
  for (bool gpipe : {false, true}) {
    for (int stages : {1, 2, 4}) {
      for (int64_t micro_batches : {1, 4, 9}) {
        INFO(stages << " stages, " << micro_batches << " micro-batches, gpipe " << gpipe);
        const auto times = equal_stages(stages, micro_batches, gpipe);
        CHECK(step_seconds(times) == 3.0 * static_cast<double>(micro_batches + stages - 1) + 0.5);
      }
    }
  }
}

TEST_CASE("stages that compute weights while they would wait, wait a third: ZB-H1") {
  for (int stages : {2, 4, 8}) {
    for (int64_t micro_batches : {8, 20}) {
      INFO(stages << " stages, " << micro_batches << " micro-batches");
      std::vector<StageTimes> times;
      for (int s = 0; s < stages; ++s) {
        StageTimes& rank = times.emplace_back(
            StageTimes{.schedule = step_schedule(micro_batches, stages - s, s), .seconds = {}});
        rank.seconds.assign(rank.schedule.size(), 1);  // forward, backward, weights
        rank.seconds.back() = 0.5;
      }
      CHECK(step_seconds(times) == 3.0 * static_cast<double>(micro_batches) + stages - 1 + 0.5);
    }
  }
}

TEST_CASE("a segment begins when its neighbour has ended, and the update after all stages") {
  std::vector<StageTimes> stages = equal_stages(2, 2, false);
  for (double& seconds : stages[1].seconds) seconds *= 2;  // the second stage is slower
  const auto begins = begin_times(stages);
  // Stage 0: F0 F1 B0 B1 U; stage 1: F0 B0 F1 B1 U.
  CHECK(begins[0] == std::vector<double>{0, 1, 7, 13, 15});
  CHECK(begins[1] == std::vector<double>{1, 3, 7, 9, 15});
  stages[1].delays = {0.5, 0, 0.5, 0, 0};  // the first message is late, the second one in time
  CHECK(begin_times(stages)[1] == std::vector<double>{1.5, 3.5, 7.5, 9.5, 15.5});
}

}  // namespace
}  // namespace dltrain
