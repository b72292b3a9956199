// A folder that appears complete or not at all: its files are written in a temporary folder beside
// it, synced, listed in checksums.json, and the folder is renamed into place.
//
//   AtomicDirectory folder(run / "checkpoints" / "step-000500");
//   FileWriter& file = folder.create("state.json");
//   file.write(text);
//   folder.publish();
//
// Names beginning with ".tmp-" and ".old-" in the parent folder belong to this class; of a folder
// that is replaced only the files that its checksums.json lists are removed (base/owned_files.h). A
// failure at any point throws Error(storage) and leaves whatever was published before as it was; a
// process that is killed leaves at most a temporary folder, which remove_leftovers() clears on the
// next start. One process at a time may publish into a parent folder (base/run_lock.h).
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
  // Removes the temporary folder when publish() did not happen.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // A new file in the folder, valid until publish(). `name` has no folders in it.
  FileWriter& create(const std::string& name);
  // Lists a file that another process has written and synced in the temporary folder, whose path
  // temporary_folder() gives for every process alike.
  void adopt(const std::string& name, const FileDigest& digest) { adopted_[name] = digest; }
  static std::filesystem::path temporary_folder(const std::filesystem::path& path);
  // Of the files so far.
  std::vector<std::string> names() const;
  // Syncs and closes all files, writes checksums.json and puts the folder in place. A folder that
  // was there under the same name is replaced.
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::deque<FileWriter> files_;
  Checksums adopted_;
  bool published_ = false;
};

// Clears what killed writers left in `parent`: removes unfinished folders and files, and puts a
// folder back whose replacement had been interrupted between its two renames.
void remove_leftovers(const std::filesystem::path& parent);

}  // namespace dltrain
