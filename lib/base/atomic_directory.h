// Creates a folder atomically: its files are written to a temporary folder beside it, synced and
// listed in checksums.json, and the folder is renamed.
//
//   AtomicDirectory folder(run / "checkpoints" / "step-000500");
//   FileWriter& file = folder.create("state.json");
//   file.write(text);
//   folder.publish();
//
// Names beginning with ".tmp-" and ".old-" in the parent folder are reserved for this class. When a
// folder is replaced, only the files in its checksums.json are removed (base/owned_files.h). A
// failure throws Error(storage) and does not change published folders. A killed process leaves at
// most a temporary folder, which remove_leftovers() removes on the next start. One process at a
// time may publish into a parent folder (base/run_lock.h).
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"

namespace dltrain {

class AtomicDirectory {
 public:
  // Creates the temporary folder (and missing parents of `path`).
  explicit AtomicDirectory(std::filesystem::path path);
  // Removes the temporary folder if publish() was not called.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // Creates a file in the folder, valid until publish(). `name` has no folders.
  FileWriter& create(const std::string& name);
  // Adds a file that another process has written and synced in the temporary folder, whose path
  // temporary_folder() returns in every process.
  void adopt(const std::string& name, const FileDigest& digest) { adopted_[name] = digest; }
  static std::filesystem::path temporary_folder(const std::filesystem::path& path);
  // Returns the names of the files so far.
  std::vector<std::string> names() const;
  // Syncs and closes all files, writes checksums.json and renames the folder. Replaces a folder of
  // the same name.
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::deque<FileWriter> files_;
  Checksums adopted_;
  bool published_ = false;
};

// Cleans up after killed processes: removes unfinished folders and files in `parent`, and restores
// a folder whose replacement was interrupted between its two renames.
void remove_leftovers(const std::filesystem::path& parent);

}  // namespace dltrain
