// The records that the ranks write to the store about themselves, under the prefix of their
// attempt. The other ranks and the launcher read them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace dltrain {

namespace watch_keys {
inline constexpr const char* kFailure = "watch/failure";  // a RankFailure; the first one is final
// Written by rank 0:
inline constexpr const char* kBegun = "watch/begun";  // "1": the run owns its run folder
inline constexpr const char* kStep = "watch/step";    // number of completed steps, with some delay
// "1": rank 0 has logged that the run was stopped, and after which step.
inline constexpr const char* kStopLogged = "watch/stop_logged";
// Written by each rank: its WatchPosition, and the members of a group that is not all ranks.
inline constexpr const char* kPositions = "watch/rank/";
inline std::string position(int rank) {
  return kPositions + std::to_string(rank);
}
inline std::string members(int rank, int group) {
  return "watch/members/" + std::to_string(rank) + "/" + std::to_string(group);
}
}  // namespace watch_keys

// The ranks of a group as text. Ranks outside of [0, size) are left out.
std::string members_text(std::span<const int> ranks);
std::vector<int> members_from_text(const std::string& text, int size);

// The rank that ends the run, and the reason.
struct RankFailure {
  int rank = 0;
  bool stuck = false;      // the rank makes no progress and does not exit by itself
  std::string message;     // one sentence that names the rank
  std::string where = {};  // position of the rank: " at step 3, in all_reduce 9"; may be empty
  ExitCode code = ExitCode::rank;  // exit code of the rank

  std::string to_text() const;
  // Returns nothing if the text is malformed.
  static std::optional<RankFailure> from_text(const std::string& text);
};

// An operation that a rank waits for or that a device executes. Group −1: none.
struct WatchWait {
  // The number of an operation of two ranks, which the others do not count.
  static constexpr uint64_t kOfTwo = ~uint64_t{0};

  int group = -1;
  uint64_t number = 0;  // position in the sequence of the group's collectives, from 1
  int peer = -1;        // the other one of two ranks; −1: a collective of the group
  int64_t ms = 0;       // duration so far
};

// The position of a rank in the run.
struct WatchPosition {
  int rank = 0;
  uint64_t heartbeat = 0;  // increases with every update
  std::string name = {};   // "rank 2 (process 77 on host)"
  int64_t step = -1;       // the current or last one; −1: before the first
  int64_t steps_done = 0;
  int64_t busy_us = 0;                  // time in steps, without waiting for other ranks
  std::map<int, uint64_t> issued = {};  // number of issued collectives of each group
  WatchWait host = {};                  // of the training thread
  bool finished = false;                // the rank ends normally; no more updates follow
  std::string operation = {};           // description of the last operation
  // For groups whose operations a device executes asynchronously:
  WatchWait device = {};
  std::map<int, uint64_t> done = {};  // number of completed collectives of each group
  std::string device_operation = {};  // description of the last operation that the device started
  int64_t device_step = -1;           // the step that it belongs to

  bool waits() const { return host.group >= 0 || device.group >= 0; }

  std::string to_text() const;
  // Returns nothing if the text is malformed or names ranks outside of [0, size).
  static std::optional<WatchPosition> from_text(const std::string& text, int size);
};

}  // namespace dltrain
