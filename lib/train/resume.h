// Whether a run may go on from a checkpoint, and with which changes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/diff.h"
#include "train/run_folder.h"
#include "train/session.h"

namespace dltrain {

// What tells the training data of a run from others: some of its samples; "" where they cannot be
// read.
std::string fingerprint(const Dataset& data);

// The tokenizer in the run folder of a checkpoint; nullptr: there is none. Throws Error(storage)
// where it is damaged, or not that with which the checkpoint was trained.
std::shared_ptr<const Tokenizer> run_tokenizer(const ResumeChoice& choice);

// The settings of this run that are not those of the checkpoint. Throws Error(usage) for what a
// resumed run keeps, and, without `allow_changes`, for another loss, model, teacher or other data.
std::vector<ConfigDifference> check_resume(const ResumeChoice& choice, const Session& session,
                                           bool allow_changes);

// Throws Error(usage) where the teacher of the loss lies in the run folder: it would be discarded,
// or the student would become its own teacher.
void check_teacher(const Session& session, const std::filesystem::path& run_folder);

}  // namespace dltrain
