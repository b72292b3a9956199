#include "checkpoint/run_folder.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/owned_files.h"
#include "config/paths.h"
#include "config/suggest.h"
#include "nn/lora.h"
#include "runtime/remote_error.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

// The files that the marker lists from the start of a run; checkpoints and predictions are added
// when they are written. The first one shows that a run has started.
constexpr const char* kRunFiles[] = {"config.yaml",      "metrics.jsonl",
                                     "summary.json",     "log.txt",
                                     "attempts.jsonl",   "samples.jsonl",
                                     "classes.json",     "checkpoints/latest",
                                     "checkpoints/best", "tensorboard/events.out.tfevents.dltrain"};
// Folders that must not exist in a folder without a marker.
constexpr const char* kRunFolders[] = {"checkpoints", "tensorboard", "predictions", kMarkerFile};

ResumeChoice open_checkpoint(const fs::path& checkpoint, Verify verify) {
  ResumeChoice out;
  out.checkpoint = checkpoint;
  out.kept = keep_folder(checkpoint);
  out.state = read_checkpoint_state(checkpoint, verify == Verify::now ? nullptr : &out.tensors);
  return out;
}

// Returns the newest valid checkpoint before a step; its note begins with `note` and says why newer
// ones are not valid.
std::optional<ResumeChoice> newest_valid(const fs::path& checkpoints, Verify verify,
                                         int64_t before = INT64_MAX, std::string note = "") {
  const auto all = CheckpointFolder(checkpoints).list();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (checkpoint_step(*at) >= before) continue;
    try {
      ResumeChoice out = open_checkpoint(*at, verify);
      out.note = note;
      out.newest = true;
      return out;
    } catch (const Error& error) {
      if (error.code() != ExitCode::storage) throw;
      note += fmt::format("{}skipped: {}", note.empty() ? "" : "; ", error.what());
    }
  }
  if (!note.empty()) {
    fail(ExitCode::storage, "no checkpoint in {} is valid ({})", checkpoints.string(), note);
  }
  return std::nullopt;
}

// Returns the newest valid checkpoint. Its note also tells of a newer one that is missing.
std::optional<ResumeChoice> newest_of_run(const fs::path& checkpoints, Verify verify) {
  auto out = newest_valid(checkpoints, verify);
  std::error_code error, ignored;
  const fs::path latest = fs::read_symlink(checkpoints / "latest", error);
  if (out && !error && !fs::exists(checkpoints / latest, ignored)) {
    out->note += fmt::format("{}{} is missing, which was saved last", out->note.empty() ? "" : "; ",
                             (checkpoints / latest).string());
  }
  return out;
}

// Reports the damage of a checkpoint, and the newest valid one beside it.
[[noreturn]] void refuse_damaged(const fs::path& checkpoint, const std::string& damage) {
  const auto all = newest_valid(checkpoint.parent_path(), Verify::now);
  fail(ExitCode::storage, "{}{}", damage,
       all ? "; the newest valid checkpoint is " + all->checkpoint.string() : "");
}

// Returns the checkpoint that find_checkpoint() selects, or an empty path.
fs::path named_checkpoint(const fs::path& location) {
  std::error_code error;
  if (fs::exists(location / "state.json", error)) {
    const fs::path target = fs::read_symlink(location, error);
    return error ? location : location.parent_path() / target;
  }
  for (const fs::path& folder : {location / "checkpoints", location}) {
    const fs::path latest = fs::read_symlink(folder / "latest", error);
    if (!error) return folder / latest;
    if (const auto all = CheckpointFolder(folder).list(); !all.empty()) return all.back();
  }
  return {};
}

// Lists the checkpoints and run folders in `folder` for a message; empty if there are none.
std::string checkpoints_in(const fs::path& folder) {
  std::map<std::string, int64_t> found;  // the newest step of each
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto all = CheckpointFolder(entry.path() / "checkpoints").list();
    if (!all.empty()) found[entry.path().filename().string()] = checkpoint_step(all.back());
  }
  for (const fs::path& location : {folder, folder / "checkpoints"}) {
    for (const fs::path& path : CheckpointFolder(location).list()) {
      found[path.lexically_relative(folder).string()] = checkpoint_step(path);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, step] : found) names.push_back(fmt::format("{} (step {})", name, step));
  return some_names(names, 8);
}

[[noreturn]] void refuse_location(const fs::path& location) {
  std::error_code error;
  if (fs::exists(location / "trial-0000" / "run", error)) {
    fail(ExitCode::storage, "{} is the folder of a sweep: its runs are {}", location.string(),
         (location / "trial-*" / "run").string());
  }
  const bool there = fs::exists(location, error);
  if (error) fail_storage(location, "look at", error.value());
  std::string message = there ? fmt::format("{} contains no checkpoint", location.string())
                              : fmt::format("{} does not exist", location.string());
  if (fs::exists(location / kAdapterConfig, error)) {
    fail(ExitCode::storage,
         "{} has adapters of peft alone; an experiment with model: {{from: MODEL, lora: {{from: "
         "{}}}}} uses them, or evaluate the run they come from",
         location.string(), location.string());
  }
  for (const fs::path& near :
       {location, (fs::path(".") / location).parent_path(), fs::path("runs")}) {
    const std::string found = checkpoints_in(near);
    if (found.empty()) continue;
    message += fmt::format("; {} contains {}", near.lexically_normal().string(), found);
    break;
  }
  fail(ExitCode::storage, "{}{}", message, there ? "" : suggest_path(location));
}

bool holds_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  const auto all = CheckpointFolder(folder / "checkpoints").list();
  return std::any_of(all.begin(), all.end(), [&](const auto& checkpoint) {
    return fs::exists(checkpoint / "state.json", ignored);
  });
}

bool has_begun(const fs::path& folder) {
  return lists_file(folder, kRunFiles[0]);
}

std::vector<std::string> run_files(std::vector<std::string> also) {
  also.insert(also.begin(), std::begin(kRunFiles), std::end(kRunFiles));
  return also;
}

// Returns the first of the run's names that a file not written by dltrain has, or an empty name.
std::string foreign_name(const fs::path& folder, std::vector<std::string> names) {
  if (!has_marker(folder))
    names.insert(names.end(), std::begin(kRunFolders), std::end(kRunFolders));
  std::error_code ignored;
  for (const std::string& name : names) {
    const auto status = fs::symlink_status(folder / name, ignored);
    if (fs::exists(status) && !lists_file(folder, name)) return name;
  }
  return "";
}

// Returns whether `resume` is a path in `folder`.
bool rewinds(const fs::path& folder, const std::string& resume) {
  return resume != "never" && resume != "auto" && is_inside(resume, folder);
}

}  // namespace

bool is_inside(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  const auto inner = fs::weakly_canonical(path, ignored);
  const auto outer = fs::weakly_canonical(folder, ignored);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void mark_run_folder(const fs::path& folder) {
  if (!has_marker(folder) && !holds_checkpoint(folder)) mark_folder(folder);
}

std::optional<ResumeChoice> choose_resume(const fs::path& folder, const std::string& resume,
                                          Verify verify) {
  if (resume == "never") return std::nullopt;
  if (resume == "auto") return newest_of_run(folder / "checkpoints", verify);
  return find_checkpoint(resume, verify);
}

std::string load_chosen(Executor& executor, const ResumeChoice& choice, Collectives* group) {
  VerifiedFiles files(choice.checkpoint, choice.tensors, group ? group->rank() : 0,
                      group ? group->size() : 1);
  std::exception_ptr error;
  try {
    load_checkpoint(executor, choice.checkpoint, choice.state, files);
  } catch (...) {
    error = std::current_exception();  // damage, which the rank that has its bytes describes, comes
                                       // first
  }
  const std::string damage = first_finding(group, files.finish());
  if (!damage.empty()) return damage;
  run_on_all_ranks(group, [&] {
    if (error) std::rethrow_exception(error);
  });
  return "";
}

ResumeChoice instead_of_damaged(const ResumeChoice& damaged, const std::string& damage) {
  if (!damaged.newest) refuse_damaged(damaged.checkpoint, damage);
  const std::string& note = damaged.note;
  return *newest_valid(damaged.checkpoint.parent_path(), Verify::when_loaded, damaged.state.step,
                       fmt::format("{}{}skipped: {}", note, note.empty() ? "" : "; ", damage));
}

void check_run_folder(const fs::path& folder, const std::string& resume, bool overwrite,
                      const std::vector<std::string>& also) {
  std::error_code error;
  const auto status = fs::status(folder, error);
  if (error && status.type() != fs::file_type::not_found) {
    fail_storage(folder, "look at", error.value());
  }
  if (fs::exists(status) && !fs::is_directory(status)) {
    fail(ExitCode::storage, "{} is not a folder", folder.string());
  }
  const bool resuming = resume == "auto" || rewinds(folder, resume);
  const bool earlier_version = !has_marker(folder) && holds_checkpoint(folder);
  if (resuming && earlier_version) return;
  if (overwrite && !resuming && has_begun(folder)) return check_all_owned(folder);
  const auto refuse_run = [&](const char* discard) {
    fail(ExitCode::usage,
         "{} already contains a run; use --resume auto to continue it, {}or --output-dir or --name "
         "to write to another folder",
         folder.string(), discard);
  };
  if (!resuming && has_begun(folder)) refuse_run("--overwrite to discard it, ");
  const std::string foreign = foreign_name(folder, run_files(also));
  if (foreign.empty()) return;
  if (overwrite && !has_marker(folder)) check_all_owned(folder);
  if (earlier_version) refuse_run("");
  fail(ExitCode::usage,
       "{} exists and was not written by dltrain; move it, or choose another folder",
       (folder / foreign).string());
}

void check_no_newer(const fs::path& folder, const std::string& resume,
                    const ResumeChoice& resumed) {
  if (!rewinds(folder, resume)) return;
  const auto all = CheckpointFolder(folder / "checkpoints").list();
  if (all.empty() || checkpoint_step(all.back()) <= resumed.state.step) return;
  fail(
      ExitCode::usage,
      "{} contains later checkpoints, up to step {}: to continue from {} (step {}) in this folder, "
      "use --overwrite, which deletes them; or use --name NAME or --output-dir to write to another "
      "folder, or --resume auto to continue from the newest one",
      folder.string(), checkpoint_step(all.back()), resumed.checkpoint.string(),
      resumed.state.step);
}

void check_no_foreign(const fs::path& folder, const std::optional<ResumeChoice>& resumed) {
  if (!has_marker(folder)) return;
  for (const auto& checkpoint : CheckpointFolder(folder / "checkpoints").list()) {
    if (resumed && checkpoint_step(checkpoint) <= resumed->state.step) continue;
    if (lists_file(folder, checkpoint.lexically_relative(folder))) continue;
    fail(ExitCode::usage,
         "{} was not written by dltrain, and the run may save a checkpoint of that name; move it, "
         "or choose another folder",
         checkpoint.string());
  }
}

void check_resume_path(const std::string& resume) {
  if (resume == "never" || resume == "auto") return;
  const fs::path given = resume;
  const fs::path location = given.has_filename() ? given : given.parent_path();
  if (named_checkpoint(location).empty()) refuse_location(given);
}

RunFolder::RunFolder(fs::path folder, const std::string& resume, bool overwrite, bool owner,
                     std::vector<std::string> also)
    : path_(std::move(folder)), names_(run_files(also)) {
  if (!owner) return;
  // The folder is locked before its content is checked, which another process may be changing.
  if (has_marker(path_) || holds_checkpoint(path_)) lock_ = std::make_unique<RunLock>(path_);
  check_run_folder(path_, resume, overwrite, also);
  make_directories(path_);
  if (!lock_) {
    lock_ = std::make_unique<RunLock>(path_);
    check_run_folder(path_, resume, overwrite, also);  // a run may have begun and ended meanwhile
  }
  mark_run_folder(path_);
  CheckpointFolder(path_ / "checkpoints").clean();
  rewind_ = rewinds(path_, resume);
  discard_ = overwrite && resume != "auto" && !rewind_ && has_begun(path_);
}

void RunFolder::begin(const std::optional<ResumeChoice>& resumed) {
  check_no_foreign(path_, resumed);
  if (discard_) {
    remove_owned(fs::canonical(path_));  // it may be a link
    mark_folder(path_);
  }
  claim_files(path_, names_);
  if (!resumed) return;
  CheckpointFolder folder(path_ / "checkpoints");
  if (rewind_) {
    for (const auto& checkpoint : folder.list()) {
      if (checkpoint_step(checkpoint) > resumed->state.step) remove_owned(checkpoint);
    }
  }
  folder.repair_links(resumed->state);
}

void RunFolder::restore() {
  std::vector<std::string> names = names_;
  for (const auto& checkpoint : CheckpointFolder(path_ / "checkpoints").list()) {
    names.push_back(checkpoint.lexically_relative(path_));
  }
  make_directories(path_);
  lock_.reset();
  lock_ = std::make_unique<RunLock>(path_);
  mark_folder(path_, names);
}

ResumeChoice find_checkpoint(const fs::path& folder, Verify verify) {
  const fs::path location = folder.has_filename() ? folder : folder.parent_path();
  while (true) {
    const fs::path checkpoint = named_checkpoint(location);
    if (checkpoint.empty()) refuse_location(folder);
    try {
      return open_checkpoint(checkpoint, verify);
    } catch (const Error& error) {
      if (error.code() != ExitCode::storage) throw;
      if (named_checkpoint(location) != checkpoint) continue;  // the run has saved meanwhile
      refuse_damaged(checkpoint, error.what());
    }
  }
}

fs::path run_of(const fs::path& checkpoint) {
  // Without "." and a slash at the end; ".." can only come first.
  const auto normal = [](const fs::path& path) {
    return (path / "").lexically_normal().parent_path();
  };
  fs::path path = normal(checkpoint);
  const bool named =
      std::distance(path.begin(), path.end()) > 2 && path.parent_path().filename() != "..";
  if (!named) path = normal(fs::absolute(checkpoint));
  return path.parent_path().parent_path();
}

std::shared_ptr<const Tokenizer> run_tokenizer(const ResumeChoice& choice) {
  const auto run = run_of(choice.checkpoint);
  if (!holds_tokenizer(run)) {
    if (choice.state.tokenizer.empty()) return nullptr;
    fail(ExitCode::storage, "{}: the tokenizer it was trained with is not in {}",
         choice.checkpoint.string(), run.string());
  }
  std::string problem = "not the tokenizer it was trained with";
  try {
    auto tokenizer = load_tokenizer(run);
    const std::string& saved = choice.state.tokenizer;
    if (saved.empty() || saved == tokenizer->identity()) return tokenizer;
  } catch (const Error& error) {
    problem = error.what();
  }
  fail(ExitCode::storage, "{}: the tokenizer in {} is damaged or was replaced: {}",
       choice.checkpoint.string(), run.string(), problem);
}

}  // namespace dltrain
