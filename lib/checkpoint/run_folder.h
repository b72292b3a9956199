// The folder of one run: checks and locks, and the choice of the checkpoint to resume from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/run_lock.h"
#include "checkpoint/checkpoint.h"
#include "device/collectives.h"
#include "text/tokenizer.h"

namespace dltrain {

struct ResumeChoice {
  std::filesystem::path checkpoint;
  CheckpointState state;
  std::string note;            // why newer checkpoints were skipped
  std::shared_ptr<void> kept;  // prevents the run from removing the checkpoint
  Checksums tensors;           // of the files that are not verified yet
  bool newest = false;         // chosen as the newest valid one of its folder
};

// The time at which the files with a checkpoint's tensors are verified: when it is chosen, or when
// load_chosen() loads them; until then only the other files are read.
enum class Verify : uint8_t { now, when_loaded };

// Returns whether `path` is `folder` or lies in it.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder);

// Returns the checkpoint that --resume selects for the run folder `folder`. "never": nothing.
// "auto": the newest valid checkpoint, or nothing if there are no checkpoints; throws
// Error(storage) if none of them is valid. A path: see find_checkpoint().
std::optional<ResumeChoice> choose_resume(const std::filesystem::path& folder,
                                          const std::string& resume, Verify verify = Verify::now);

// Loads a chosen checkpoint and verifies its tensors' files in the same pass; each rank of `group`
// (nullptr: this one alone) verifies a share of the bytes, and of the rest reads only what it
// stores. All ranks must call it. Returns, on all ranks, a description of the damage that the first
// of them has found, or an empty text. Throws the errors of load_checkpoint().
std::string load_chosen(Executor& executor, const ResumeChoice& choice, Collectives* group);
// Returns the newest checkpoint before a damaged one that was chosen as the newest. Throws
// Error(storage) if there is none, or if another one was chosen, naming the newest valid one.
ResumeChoice instead_of_damaged(const ResumeChoice& damaged, const std::string& damage);

// Throws Error(usage) if `folder` contains a run that `resume` (auto, or a path in this folder)
// does not continue and `overwrite` does not discard, or files not written by dltrain: with a name
// of the run's files, to which `also` adds some, or any such file if a run is to be discarded
// (base/owned_files.h). Changes nothing.
void check_run_folder(const std::filesystem::path& folder, const std::string& resume,
                      bool overwrite, const std::vector<std::string>& also = {});

// Throws Error(usage) if `resume` is a path in `folder` and the folder has checkpoints newer than
// the one that it selects, `resumed`: RunFolder::begin() would remove them.
void check_no_newer(const std::filesystem::path& folder, const std::string& resume,
                    const ResumeChoice& resumed);

// Throws Error(storage) if --resume is a path without a checkpoint. Reads no checkpoint.
void check_resume_path(const std::string& resume);
// Throws Error(usage) if a foreign folder has the name of a checkpoint after the resumed one.
void check_no_foreign(const std::filesystem::path& folder,
                      const std::optional<ResumeChoice>& resumed);

// Creates the marker of a folder, which lists the files that dltrain writes there. A run of a
// version without markers gets none.
void mark_run_folder(const std::filesystem::path& folder);

class RunFolder {
 public:
  // Creates and locks the folder after check_run_folder(). Ranks other than 0 pass `owner` false:
  // they create, lock and remove nothing. `also`: additional files of this run.
  RunFolder(std::filesystem::path folder, const std::string& resume, bool overwrite, bool owner,
            std::vector<std::string> also = {});

  // Starts the run: removes an earlier run that is to be overwritten and, if an older checkpoint of
  // this folder is resumed, the newer ones, whose steps are repeated (check_no_newer()).
  void begin(const std::optional<ResumeChoice>& resumed);
  // Creates, locks and marks the folder again after somebody has deleted or moved it.
  void restore();

 private:
  std::filesystem::path path_;
  std::unique_ptr<RunLock> lock_;
  std::vector<std::string> names_;  // of the run's files
  bool discard_ = false;            // begin() removes the earlier run
  bool rewind_ = false;             // begin() removes newer checkpoints
};

// Returns the checkpoint `folder`, or for a run folder or its checkpoints folder the one that
// `latest` points to. Throws Error(storage) if it is damaged, naming the newest valid one, or if
// there is none, naming checkpoints near it.
ResumeChoice find_checkpoint(const std::filesystem::path& folder, Verify verify = Verify::now);
// The run folder of a checkpoint.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);

// Returns the tokenizer in the run folder of a checkpoint, or nullptr if there is none. Throws
// Error(storage) if it is damaged or not the one the checkpoint was trained with.
std::shared_ptr<const Tokenizer> run_tokenizer(const ResumeChoice& choice);

}  // namespace dltrain
