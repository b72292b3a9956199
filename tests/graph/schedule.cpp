#include "graph/schedule.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "catch.h"
#include "graph/schedule_times.h"

namespace dltrain {
namespace {

// "F0 B0 F1 B1 U" with the frame of each after a slash.
std::string printed(const StepSchedule& schedule) {
  std::string out;
  for (const ScheduledSegment& s : schedule) {
    out += s.segment == Phase::update ? fmt::format("U/{}", s.frame)
                                      : fmt::format("{}{}/{} ", "FBW"[static_cast<int>(s.segment)],
                                                    s.micro_batch, s.frame);
  }
  return out;
}

TEST_CASE("a schedule has at most so many micro-batches between forward and backward") {
  CHECK(printed(step_schedule(1)) == "F0/0 B0/0 U/0");
  CHECK(printed(step_schedule(3)) == "F0/0 B0/0 F1/0 B1/0 F2/0 B2/0 U/0");
  CHECK(printed(step_schedule(4, 2)) == "F0/0 F1/1 B0/0 F2/0 B1/1 F3/1 B2/0 B3/1 U/1");
  CHECK(printed(step_schedule(3, 3)) == "F0/0 F1/1 F2/2 B0/0 B1/1 B2/2 U/2");
  CHECK(frames_of(step_schedule(3)) == 1);
  CHECK(frames_of(step_schedule(4, 2)) == 2);
  CHECK(frames_of(step_schedule(2, 5)) == 2);
}

TEST_CASE("weights follow the backward that is `weights_lag` micro-batches later") {
  CHECK(printed(step_schedule(3, 2, 0)) == "F0/0 F1/1 B0/0 W0/0 F2/0 B1/1 W1/1 B2/0 W2/0 U/0");
  CHECK(printed(step_schedule(4, 1, 1)) ==
        "F0/0 B0/0 F1/1 B1/1 W0/0 F2/2 B2/2 W1/1 F3/0 B3/0 W2/2 W3/0 U/0");
  CHECK(printed(step_schedule(2, 1, 3)) == "F0/0 B0/0 F1/1 B1/1 W0/0 W1/1 U/1");
  // The frame of a forward that is received before the gradients of a backward are sent is free.
  for (int64_t lag : {0, 1, 3}) {
    const StepSchedule schedule = step_schedule(12, 4 - lag, lag);
    CHECK(frames_of(schedule) == (lag == 0 ? 4 : 5));
    for (size_t i = 0; i < schedule.size(); ++i) {
      for (size_t later : schedule[i].before_sends) {
        CHECK(schedule[later].segment == Phase::forward);
        for (size_t k = i; k < later && lag > 0; ++k) {
          CHECK(schedule[k].frame != schedule[later].frame);
        }
      }
    }
  }
}

TEST_CASE("the variant of a segment follows from the place of its micro-batch in the step") {
  CHECK(micro_step_of(0, 1) == MicroStep::only);
  CHECK(micro_step_of(0, 3) == MicroStep::first);
  CHECK(micro_step_of(1, 3) == MicroStep::middle);
  CHECK(micro_step_of(2, 3) == MicroStep::last);
  const StepSchedule schedule = step_schedule(3, 3);
  CHECK(schedule[3].variant == MicroStep::first);  // the first backward overwrites the gradients
  CHECK(schedule[5].variant == MicroStep::last);   // the last one reduces them over ranks
  CHECK(schedule[6].variant == MicroStep::only);
}

TEST_CASE("interleaved chunks take turns, as in the paper's figure 4") {
  const std::vector<StepSchedule> all = interleaved_schedules(4, 2, 2);
  std::string text;
  for (const ScheduledSegment& s : all[1]) {
    text += s.segment == Phase::update
                ? "U"
                : fmt::format("{}{}.{} ", s.segment == Phase::forward ? 'F' : 'B', s.chunk,
                              s.micro_batch);
  }
  CHECK(text ==
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3 U");
}

// Every rank runs its schedule, in which a message blocks sender and receiver until both are there.
TEST_CASE("interleaved schedules with blocking messages end, for all sizes") {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (int chunks = 2; chunks <= 5; ++chunks) {
      for (int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        INFO(ranks << " ranks, " << chunks << " chunks, " << micro_batches << " micro-batches");
        struct Message {
          int from, to;  // ranks
          Phase phase;
          int stage;  // that receives
          int64_t micro_batch;
          bool operator==(const Message&) const = default;
        };
        const int stages = ranks * chunks;
        std::vector<std::vector<Message>> queues;
        size_t left = 0;
        for (const StepSchedule& schedule : interleaved_schedules(micro_batches, ranks, chunks)) {
          const int rank = static_cast<int>(queues.size());
          std::vector<Message>& queue = queues.emplace_back();
          std::vector<bool> received(schedule.size());
          const auto receive = [&](size_t i) {
            const ScheduledSegment& s = schedule[i];
            const int to = s.chunk * ranks + rank, step = s.segment == Phase::forward ? 1 : -1;
            if (received[i] || to - step < 0 || to - step >= stages) return;
            received[i] = true;
            queue.push_back({(to - step) % ranks, rank, s.segment, to, s.micro_batch});
          };
          for (size_t i = 0; i + 1 < schedule.size(); ++i) {
            const ScheduledSegment& s = schedule[i];
            for (size_t early : s.first) receive(early);
            receive(i);
            for (size_t early : s.before_sends) receive(early);
            const int step = s.segment == Phase::forward ? 1 : -1;
            const int to = s.chunk * ranks + rank + step;
            if (to < 0 || to >= stages) continue;
            queue.push_back({rank, to % ranks, s.segment, to, s.micro_batch});
          }
          left += queue.size();
        }
        std::vector<size_t> next(queues.size());
        const auto exchange = [&](size_t rank) {
          if (next[rank] == queues[rank].size()) return false;
          const Message& message = queues[rank][next[rank]];
          const auto peer = static_cast<size_t>(
              static_cast<int>(rank) == message.from ? message.to : message.from);
          if (next[peer] == queues[peer].size() || !(queues[peer][next[peer]] == message)) {
            return false;
          }
          ++next[rank];
          ++next[peer];
          left -= 2;
          return true;
        };
        for (bool moved = true; std::exchange(moved, false);) {
          for (size_t rank = 0; rank < queues.size(); ++rank) moved = exchange(rank) || moved;
        }
        REQUIRE(left == 0);
      }
    }
  }
}

TEST_CASE("no frame of an interleaved schedule is in use twice, and the bubble is divided") {
  for (const auto& [ranks, chunks, micro_batches] :
       {std::tuple(2, 2, 8), {4, 2, 16}, {4, 3, 9}, {3, 4, 7}, {8, 2, 64}}) {
    INFO(ranks << " ranks, " << chunks << " chunks, " << micro_batches << " micro-batches");
    std::vector<StageTimes> times;
    for (StepSchedule& schedule : interleaved_schedules(micro_batches, ranks, chunks)) {
      for (const auto& part : frame_lives(schedule)) {
        size_t runs = 0;
        for (const std::vector<FrameLife>& frame : part) {
          runs += frame.size();
          for (size_t i = 1; i < frame.size(); ++i) CHECK(frame[i].first > frame[i - 1].last);
        }
        CHECK(runs == static_cast<size_t>(micro_batches));
      }
      CHECK(frames_of(schedule) <= static_cast<size_t>(2 * ranks + ranks));
      StageTimes& rank = times.emplace_back(StageTimes{std::move(schedule), {}});
      for (const ScheduledSegment& s : rank.schedule) {
        rank.seconds.push_back(s.segment == Phase::forward    ? 1
                               : s.segment == Phase::backward ? 2
                                                              : 0);
      }
    }
    // The paper's bubble, (p − 1)/v micro-batches, where groups are of p micro-batches.
    const double least = 3.0 * (micro_batches * chunks + ranks - 1);
    CHECK(step_seconds(times) >= least);
    if (micro_batches % ranks == 0) CHECK(step_seconds(times) == least);
  }
}

}  // namespace
}  // namespace dltrain
