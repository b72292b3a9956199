// The settings of the tests' CUPTI, and the events that its NVTX listener has received.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct FakeTools {
  bool refuses = false;  // another tool is there already
  int enabled = 0;       // kinds of activities that are switched on
  int64_t pushed = 0, popped = 0;
  std::vector<std::string> ranges;  // opened by NVTX
  int64_t open_ranges = 0;
};

// Where CUPTI's clock stands when that of the host says 0.
inline constexpr int64_t kFakeClock = 1'000'000'000'000;
// Every tagged call launches one kernel that begins at once and takes so long; and an untagged
// copy ends each flush.
inline constexpr int64_t kFakeKernel = 2000;

// The library's symbol: extern "C" FakeTools* fake_tools().
using FakeToolsEntry = FakeTools* (*)();
