// Reading and writing files with errors that name the path and the reason.
//
// Files that are read are never trusted: they must be regular files, and whoever reads one whole
// states the largest size that makes sense. The ExitCode argument says whose fault a failure is:
// `data` for data sets, `storage` for checkpoints, `usage` for configurations.
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

namespace dltrain {

// Throws Error(storage): "<path>: cannot <action>: <reason of errno>".
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view action,
                               int error_number);

// A file open for writing that hashes what passes through. Not thread-safe. Move-only.
// Every failure is Error(storage). A FileWriter that is destroyed without close() closes the file
// without syncing it.
class FileWriter {
 public:
  // Creates the file, or empties an existing one. With `append`, writes at the end of it instead
  // (the digest then covers only what was appended).
  explicit FileWriter(std::filesystem::path path, bool append = false);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  void write(std::span<const std::byte> data);
  void write(std::string_view text);
  // Waits until the bytes are on the disk.
  void sync();
  // Closes the file (without sync) and returns size and hash of what was written.
  FileDigest close();

  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  Hasher hasher_;
};

// The whole file, mapped read-only. Where another process shortens it meanwhile, zeros are read in
// the place of what is missing, and check_mapped_files() (base/shortened_files.h) throws.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const std::filesystem::path& path, ExitCode on_error);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The content of a regular file of at most `max_bytes`.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes, ExitCode on_error);
// The same into memory that is used again and again.
void read_file(const std::filesystem::path& path, uint64_t max_bytes, ExitCode on_error,
               std::vector<uint8_t>& content);

// Makes `path` hold `content`, whole or not at all: written beside, synced, renamed, folder synced.
// A symbolic link keeps pointing; a pipe or device is written to directly, and what is called
// /dev/stdout, /dev/stderr or /dev/fd/<n> is appended to.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Shortens a file to its first `bytes`.
void truncate_file(const std::filesystem::path& path, uint64_t bytes);

// Waits until the entries of a folder (creations, renames) are on the disk.
void sync_directory(const std::filesystem::path& path);

// Creates a folder and its missing parents.
void make_directories(const std::filesystem::path& path);

// Removes a file, a link or a folder with all that is in it; links inside are not followed. Nothing
// there is fine.
void remove_recursively(const std::filesystem::path& path);

}  // namespace dltrain
