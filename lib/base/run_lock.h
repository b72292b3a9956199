// One process at a time writes to a run folder, and nobody removes a checkpoint while it is read.
#pragma once

#include <filesystem>
#include <memory>

namespace dltrain {

inline constexpr const char* kLockFile = ".lock";

// Holds the lock file `folder`/.lock while it lives (flock: the kernel releases it when the process
// dies, however it dies). The file itself stays and names the last holder.
// A file system without locks is accepted with a warning in the log.
class RunLock {
 public:
  // Throws Error(usage) naming process and host when another process (or another RunLock of this
  // one) holds the folder, Error(storage) when the folder cannot be written to.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

// Keeps remove_unless_kept() from removing a folder while the result lives, on file systems with
// locks. Waits for a removal that is under way.
std::shared_ptr<void> keep_folder(const std::filesystem::path& folder);
// Throws Error(storage) when the folder cannot be removed.
void remove_unless_kept(const std::filesystem::path& folder);

}  // namespace dltrain
