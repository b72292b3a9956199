#include "graph/schedule.h"

#include <string>

#include <fmt/format.h>

#include "catch.h"

namespace dltrain {
namespace {

// "F0 B0 F1 B1 U" with the frame of each after a slash.
std::string printed(const StepSchedule& schedule) {
  std::string out;
  for (const ScheduledSegment& s : schedule) {
    out += s.segment == Phase::update
               ? fmt::format("U/{}", s.frame)
               : fmt::format("{}{}/{} ", s.segment == Phase::forward ? 'F' : 'B', s.micro_batch,
                             s.frame);
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

}  // namespace
}  // namespace dltrain
