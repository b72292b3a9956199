#include "train/run_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace dltrain {
namespace {

constexpr const char* kRunFiles[] = {"config.yaml", "metrics.jsonl", "summary.json",
                                     "log.txt",     "checkpoints",   "tensorboard",
                                     "predictions", "samples.jsonl"};

bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto inner = std::filesystem::weakly_canonical(path, ignored);
  const auto outer = std::filesystem::weakly_canonical(folder, ignored);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// The newest of `checkpoints` that is whole; the reasons why newer ones are not go to its note.
std::optional<ResumeChoice> newest_whole(const std::filesystem::path& checkpoints) {
  const auto all = CheckpointFolder(checkpoints).list();
  std::string note;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    try {
      return ResumeChoice{*at, read_checkpoint_state(*at), note};
    } catch (const Error& error) {
      if (error.code() != ExitCode::storage) throw;
      note += fmt::format("{}passed over: {}", note.empty() ? "" : "; ", error.what());
    }
  }
  if (!note.empty()) {
    fail(ExitCode::storage, "no checkpoint in {} is whole ({})", checkpoints.string(), note);
  }
  return std::nullopt;
}

// Whether `resume` names a place in `folder`.
bool rewinds(const std::filesystem::path& folder, const std::string& resume) {
  return resume != "never" && resume != "auto" && is_inside(resume, folder);
}

}  // namespace

bool holds_run(const std::filesystem::path& folder) {
  for (const char* name : kRunFiles) {
    if (std::filesystem::exists(folder / name)) return true;
  }
  return false;
}

std::optional<ResumeChoice> choose_resume(const std::filesystem::path& folder,
                                          const std::string& resume) {
  if (resume == "never") return std::nullopt;
  if (resume == "auto") return newest_whole(folder / "checkpoints");
  return find_checkpoint(resume);
}

void check_run_folder(const std::filesystem::path& folder, const std::string& resume,
                      bool overwrite) {
  if (std::filesystem::exists(folder) && !std::filesystem::is_directory(folder)) {
    fail(ExitCode::storage, "{} is not a folder", folder.string());
  }
  if (overwrite || resume == "auto" || rewinds(folder, resume) || !holds_run(folder)) return;
  fail(ExitCode::usage,
       "{} already holds a run; --resume auto goes on with it, --overwrite discards it, "
       "--output-dir or --name takes another folder",
       folder.string());
}

RunFolder::RunFolder(std::filesystem::path folder, const std::string& resume, bool overwrite,
                     bool owner)
    : path_(std::move(folder)) {
  if (!owner) return;
  // A folder in use is told as that first: what it holds may be another thing in a moment.
  if (std::filesystem::is_directory(path_)) lock_ = std::make_unique<RunLock>(path_);
  check_run_folder(path_, resume, overwrite);
  make_directories(path_);
  if (!lock_) lock_ = std::make_unique<RunLock>(path_);
  CheckpointFolder(path_ / "checkpoints").clean();
  rewind_ = rewinds(path_, resume);
  discard_ = overwrite && resume != "auto" && !rewind_ && holds_run(path_);
}

void RunFolder::begin(const std::optional<ResumeChoice>& resumed) {
  if (discard_) {
    for (const char* name : kRunFiles) remove_recursively(path_ / name);
  }
  if (!resumed) return;
  CheckpointFolder folder(path_ / "checkpoints");
  if (rewind_) {
    for (const auto& checkpoint : folder.list()) {
      if (checkpoint_step(checkpoint) > resumed->state.step) remove_recursively(checkpoint);
    }
  }
  folder.repair_links(resumed->state);
}

ResumeChoice find_checkpoint(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "state.json")) {
    return {folder, read_checkpoint_state(folder), {}};
  }
  for (const auto& place : {folder / "checkpoints", folder}) {
    if (!std::filesystem::is_directory(place)) continue;
    if (auto found = newest_whole(place)) return *found;
  }
  fail(ExitCode::storage, "{} holds no checkpoint", folder.string());
}

}  // namespace dltrain
