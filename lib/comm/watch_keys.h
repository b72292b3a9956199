// What ranks write about themselves to the store, under the prefix of their attempt, for each other
// and for the launcher.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace dltrain {

namespace watch_keys {
inline constexpr const char* kVerdict = "watch/verdict";  // a Verdict; the first one counts
inline constexpr const char* kBegun = "watch/begun";  // "1": the run folder is this run's; rank 0
inline constexpr const char* kStep = "watch/step";    // steps done, as of a moment ago; rank 0
inline constexpr const char* kSaved = "watch/saved";  // step of the newest checkpoint; rank 0
inline constexpr const char* kTimeout = "watch/timeout";  // of the watch, in ms; rank 0
// "1": rank 0 has told that the run was stopped, and after which step.
inline constexpr const char* kToldStop = "watch/told_stop";
}  // namespace watch_keys

// Which rank makes the run end, and why.
struct Verdict {
  int rank = 0;
  bool stuck = false;      // it neither works nor ends by itself
  std::string message;     // one sentence that names the rank
  std::string where = {};  // of the rank, as " at step 3, in all_reduce 9"; empty: not known
  ExitCode code = ExitCode::rank;  // that the rank ends with: its own where it failed itself

  std::string to_text() const;
  // Nothing for a text that is none.
  static std::optional<Verdict> from_text(const std::string& text);
};

}  // namespace dltrain
