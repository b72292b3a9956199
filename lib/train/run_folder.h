// The folder of one run: who may write to it, what it holds, where to resume from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/run_lock.h"
#include "train/checkpoint.h"

namespace dltrain {

struct ResumeChoice {
  std::filesystem::path checkpoint;
  CheckpointState state;
  std::string note;            // where newer checkpoints were passed over: why
  std::shared_ptr<void> kept;  // the run does not remove the checkpoint meanwhile
};

// Whether `path` is `folder`, or lies in it.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder);

// What --resume means for the run folder `folder`. "never": nothing. "auto": the newest checkpoint
// that is whole, or nothing when there is none at all; Error(storage) when there are some but none
// is whole. A path: see find_checkpoint().
std::optional<ResumeChoice> choose_resume(const std::filesystem::path& folder,
                                          const std::string& resume);

// Throws Error(usage) when `folder` holds a run that neither `resume` (auto, or a place in this
// folder) goes on with nor `overwrite` discards, or files that dltrain has not written and that are
// in the way: of the run's names, of which `also` are some, or any where a run is to be discarded
// (base/owned_files.h). Touches nothing.
void check_run_folder(const std::filesystem::path& folder, const std::string& resume,
                      bool overwrite, const std::vector<std::string>& also = {});

// Gives a folder a marker, so that what is written there can be told from what was there; not that
// of a run from before there were markers, which stays without.
void mark_run_folder(const std::filesystem::path& folder);

class RunFolder {
 public:
  // Creates the folder and locks it, after check_run_folder(). Ranks other than 0 pass `owner`
  // false: they create, lock and remove nothing. `also`: files that this run will have besides
  // those that all have.
  RunFolder(std::filesystem::path folder, const std::string& resume, bool overwrite, bool owner,
            std::vector<std::string> also = {});

  const std::filesystem::path& path() const { return path_; }

  // The run begins: now an earlier run that is to be overwritten is removed, and so are, when an
  // older checkpoint was named, the newer ones of this folder, whose steps are done anew.
  void begin(const std::optional<ResumeChoice>& resumed);

 private:
  std::filesystem::path path_;
  std::unique_ptr<RunLock> lock_;
  std::vector<std::string> names_;  // of the run's files
  bool discard_ = false;            // begin() removes the run that is here
  bool rewind_ = false;             // begin() removes newer checkpoints
};

// The checkpoint `folder`, or of a run folder or its checkpoints folder that which `latest` names
// at this moment. Error(storage) when it is damaged, which names the newest whole one, and when
// there is none, which names those that are near.
ResumeChoice find_checkpoint(const std::filesystem::path& folder);
// The run folder in which a checkpoint of one lies.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);

}  // namespace dltrain
