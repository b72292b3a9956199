// `dltrain profile` observes a few steps of the real training.
//
// The loop, the loader, the plans and the ranks are those of `dltrain train`. The first steps warm
// up. Then come steps without observation, whose time is that of a run, and as many whose calls are
// observed. Nothing is evaluated, sampled or saved, and training.max_time does not count. Observed
// segments run call by call even if the device would replay them captured, so that each kernel
// belongs to an op; the report states how much longer observed steps take.
#pragma once

#include <filesystem>
#include <optional>

#include "profile/report.h"
#include "run/session.h"

namespace dltrain {

struct ProfileOptions {
  Engines engines;
  RunRanks ranks = RunRanks();
  int64_t warmup = 3;  // at least 1
  int64_t steps = 10;  // without observation, and as many that are observed; at least 1
  // The folder for trace.json, which is created if it is missing. Empty: runs/<name>.
  std::filesystem::path folder;
};

// Returns the report on rank 0, nothing on the others; all ranks must call it. Writes the trace of
// all ranks. Throws as training does, and Error(storage).
std::optional<ProfileReport> profile_training(Experiment& experiment,
                                              const ProfileOptions& options);

}  // namespace dltrain
