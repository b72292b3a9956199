// `dltrain profile`: a few steps of the real training, watched.
//
// The loop, the loader, the plans and the ranks are those of `dltrain train`. First steps to warm
// up, then steps that nobody watches (their time is what a run takes), then as many that are
// watched call by call. Nothing is evaluated, sampled or saved, and training.max_time does not
// count. Watched segments run call by call also where the device would replay them captured, so
// that each kernel belongs to an op; what watching costs is part of the report.
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
  int64_t steps = 10;  // plain ones, and as many that are watched; at least 1
  // Where trace.json is written; made where it is not. Empty: runs/<name>.
  std::filesystem::path folder;
};

// The report on rank 0, nothing on the others; all ranks must call it. Writes the trace of all
// ranks. Throws as training does, and Error(storage).
std::optional<ProfileReport> profile_training(Experiment& experiment,
                                              const ProfileOptions& options);

}  // namespace dltrain
