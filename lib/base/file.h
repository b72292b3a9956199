// Reading and writing files with errors that name the path and the reason.
//
// Input files are not trusted: they must be regular files, and the caller limits their size. The
// ExitCode argument is the code of errors: `data` for data sets, `storage` for checkpoints, `usage`
// for configurations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_descriptor.h"

namespace dltrain {

// Returns the text of an errno.
std::string errno_text(int error_number);

// Throws Error(storage): "<path>: cannot <action>: <text of errno>".
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view action,
                               int error_number);

// Opens a regular file for reading and stores its size. Refuses an output of declare_output()
// (base/owned_files.h).
FileDescriptor open_regular(const std::filesystem::path& path, ExitCode on_error,
                            uint64_t* size = nullptr);

// A file open for writing that hashes its content. Not thread-safe. Move-only. Every failure is
// Error(storage). The destructor closes the file without syncing it.
class FileWriter {
 public:
  // Creates the file or empties an existing one. With `append`, writes at the end of it instead;
  // the digest then covers only the appended bytes.
  explicit FileWriter(std::filesystem::path path, bool append = false);

  void write(std::span<const std::byte> data);
  void write(std::string_view text);
  // Waits until the bytes are on the disk.
  void sync();
  // Closes the file (without sync) and returns size and hash of the written bytes.
  FileDigest close();

  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  uint64_t bytes_ = 0;
  FileHasher hasher_;
};

// A file mapped read-only. If another process shortens it, the missing bytes read as zeros and
// check_mapped_files() (base/shortened_files.h) throws.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const std::filesystem::path& path, ExitCode on_error);

  std::span<const std::byte> bytes() const { return {data_.get(), data_.get_deleter().size}; }

 private:
  struct Unmap {
    size_t size;
    void operator()(const std::byte* data) const;
  };
  std::unique_ptr<const std::byte, Unmap> data_;
};

// Returns whether there is a regular file; false where it cannot be told.
bool is_file(const std::filesystem::path& path);

// Returns the content of a regular file of at most `max_bytes`.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes, ExitCode on_error);
// Reads into a vector that can be reused.
void read_file(const std::filesystem::path& path, uint64_t max_bytes, ExitCode on_error,
               std::vector<uint8_t>& content);

// Replaces the content of a file atomically: writes a temporary file beside it, syncs, renames, and
// syncs the folder. Follows symbolic links. Writes pipes and devices directly, and appends to
// /dev/stdout, /dev/stderr and /dev/fd/<n>. `mark` ends the name of the temporary file, so that
// processes with different marks can write the same file.
void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           std::string_view mark = {});

// Shortens a file to its first `bytes`.
void truncate_file(const std::filesystem::path& path, uint64_t bytes);

// Waits until the entries of a folder (creations, renames) are on the disk.
void sync_directory(const std::filesystem::path& path);

// Creates a folder and its missing parents.
void make_directories(const std::filesystem::path& path);

// Removes a file, a link or a folder with its content, without following links. The path need not
// exist.
void remove_recursively(const std::filesystem::path& path);

}  // namespace dltrain
