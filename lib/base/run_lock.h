// Locks: one process at a time writes to a run folder, and a checkpoint is not removed while it is
// read.
#pragma once

#include <filesystem>
#include <memory>

#include "base/file_descriptor.h"

namespace dltrain {

inline constexpr const char* kLockFile = ".lock";

// Holds the lock file `folder`/.lock during its lifetime (flock: the kernel releases it when the
// process ends). The file remains and names the last holder. A file system without locks is
// accepted with a warning in the log.
class RunLock {
 public:
  // Throws Error(usage) naming process and host when another process (or another RunLock of this
  // one) holds the folder, Error(storage) when the folder cannot be written to.
  explicit RunLock(const std::filesystem::path& folder);

 private:
  FileDescriptor fd_;
};

// Returns whether a process holds the lock of a folder. Changes nothing; false where it cannot be
// told.
bool is_locked(const std::filesystem::path& folder);

// Prevents remove_unless_kept() from removing a folder during the lifetime of the result, on file
// systems with locks. Waits for a removal in progress.
std::shared_ptr<void> keep_folder(const std::filesystem::path& folder);
// Throws Error(storage) when the folder cannot be removed.
void remove_unless_kept(const std::filesystem::path& folder);

}  // namespace dltrain
