#include "train/run_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace dltrain {
namespace {

constexpr const char* kRunFiles[] = {"config.yaml", "metrics.jsonl", "summary.json", "log.txt",
                                     "checkpoints"};

bool holds_run(const std::filesystem::path& folder) {
  for (const char* name : kRunFiles) {
    if (std::filesystem::exists(folder / name)) return true;
  }
  return false;
}

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

}  // namespace

RunFolder::RunFolder(std::filesystem::path folder, const std::string& resume, bool overwrite,
                     bool owner)
    : path_(std::move(folder)) {
  if (!owner) return;
  if (std::filesystem::exists(path_) && !std::filesystem::is_directory(path_)) {
    fail(ExitCode::storage, "{} is not a folder", path_.string());
  }
  make_directories(path_);
  lock_ = std::make_unique<RunLock>(path_);
  CheckpointFolder(path_ / "checkpoints").clean();
  const bool named = resume != "never" && resume != "auto";
  rewind_ = named && is_inside(resume, path_);
  if (!holds_run(path_) || resume == "auto" || rewind_) return;
  if (!overwrite) {
    fail(ExitCode::usage,
         "{} already holds a run; --resume auto goes on with it, --overwrite discards it, "
         "--output-dir or --name takes another folder",
         path_.string());
  }
  discard_ = true;
}

void RunFolder::begin(const std::optional<ResumeChoice>& resumed) {
  if (discard_) {
    for (const char* name : kRunFiles) remove_recursively(path_ / name);
  }
  if (!rewind_ || !resumed) return;
  for (const auto& checkpoint : CheckpointFolder(path_ / "checkpoints").list()) {
    if (checkpoint_step(checkpoint) > resumed->state.step) remove_recursively(checkpoint);
  }
}

std::optional<ResumeChoice> RunFolder::resume(const std::string& resume) const {
  if (resume == "never") return std::nullopt;
  if (resume == "auto") return newest_whole(path_ / "checkpoints");
  return find_checkpoint(resume);
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
