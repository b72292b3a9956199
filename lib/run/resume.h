// Checks whether a run may resume from a checkpoint, and with which changes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/run_folder.h"
#include "config/diff.h"
#include "run/session.h"

namespace dltrain {

// Hashes of some training samples, which identify the data of a run; empty if a sample cannot be
// read.
struct DataFingerprint {
  std::string inputs, targets;
};
DataFingerprint fingerprint(const Dataset& data);
// Returns how training data differs from that of a checkpoint, as far as hashes and number tell.
std::vector<ConfigDifference> data_changes(const CheckpointState& saved, const Dataset& now);

// Returns the settings of this run that differ from the checkpoint. Throws Error(usage) for
// settings that cannot change and, without `allow_changes`, for another loss, model, teacher or
// other data. If other data has other statistics (data.normalize, data.empty), those of the
// checkpoint are kept: the session then opens the data again.
std::vector<ConfigDifference> check_resume(const ResumeChoice& choice, Session& session,
                                           bool allow_changes);

// Sets keys of `experiment` whose defaults have changed, unless they are given, to the values of
// the run in `folder` (or a checkpoint): the samples that eval_fraction holds out, and the order of
// `type: tensors`. training.micro_batch_size: auto gets that run's number if it divides the same
// global batch on `world` ranks. Does nothing if there is no run.
void keep_saved_defaults(Experiment& experiment, const std::filesystem::path& folder, int world);

// Throws Error(usage) if the teacher of the loss lies in the run folder: it would be discarded, or
// the student would become its own teacher. `discards`: the folder is overwritten, so that initial
// weights must not lie there either.
void check_sources(const Session& session, const std::filesystem::path& run_folder, bool discards);

}  // namespace dltrain
