#include "base/atomic_directory.h"

#include <cerrno>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/owned_files.h"
#include "base/system_calls.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

fs::path beside(const fs::path& path, std::string_view prefix) {
  return path.parent_path() / (std::string(prefix) + path.filename().string());
}

// The folder that a link leads to is replaced, not the link.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path), out = fs::weakly_canonical(whole, error);
  return error ? whole.lexically_normal() : out;
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (system_calls().rename(from.c_str(), to.c_str()) != 0) {
    fail_storage(to, "put in place", errno);
  }
}

}  // namespace

fs::path AtomicDirectory::temporary_folder(const fs::path& path) {
  return beside(resolved(path), kTemporaryPrefix);
}

AtomicDirectory::AtomicDirectory(fs::path path)
    : path_(resolved(path)), temporary_(temporary_folder(path_)) {
  make_directories(path_.parent_path());
  remove_recursively(temporary_);
  if (system_calls().make_directory(temporary_.c_str(), 0777) != 0) {
    fail_storage(temporary_, "create the folder", errno);
  }
}

AtomicDirectory::~AtomicDirectory() {
  if (published_) return;
  files_.clear();
  try {
    remove_recursively(temporary_);
  } catch (const Error&) {
    // The original error is reported; remove_leftovers() tries again.
  }
}

FileWriter& AtomicDirectory::create(const std::string& name) {
  check_internal(fs::path(name).filename() == name && !name.empty(), "file name '{}'", name);
  return files_.emplace_back(temporary_ / name);
}

std::vector<std::string> AtomicDirectory::names() const {
  std::vector<std::string> out;
  for (const FileWriter& file : files_) out.push_back(file.path().filename().string());
  for (const auto& [name, digest] : adopted_) out.push_back(name);
  return out;
}

void AtomicDirectory::publish() {
  Checksums checksums = adopted_;
  for (FileWriter& file : files_) {
    file.sync();
    checksums[file.path().filename().string()] = file.close();
  }
  FileWriter list(temporary_ / kChecksumsFile);
  list.write(checksums_to_json(checksums));
  list.sync();
  list.close();
  sync_directory(temporary_);

  const fs::path parent = path_.parent_path();
  const fs::path old = beside(path_, kReplacedPrefix);
  std::error_code ignored;
  const bool replaces = fs::exists(path_, ignored);
  std::vector<std::string> names;  // used if the list of the replaced folder is damaged
  for (const auto& [name, digest] : checksums) names.push_back(name);
  if (replaces) {
    remove_owned(old, names);
    rename_or_fail(path_, old);
  }
  try {
    rename_or_fail(temporary_, path_);
  } catch (const Error&) {
    if (replaces) system_calls().rename(old.c_str(), path_.c_str());
    throw;
  }
  published_ = true;
  sync_directory(parent);
  if (replaces) remove_owned(old, names);
}

void remove_leftovers(const fs::path& parent) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail_storage(parent, "list", error.value());
  }
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (name.starts_with(kTemporaryPrefix)) {
      remove_recursively(entry);
    } else if (name.starts_with(kReplacedPrefix)) {
      const fs::path original = parent / name.substr(kReplacedPrefix.size());
      if (fs::exists(original, error)) {
        remove_owned(entry);
      } else {
        rename_or_fail(entry, original);
      }
    }
  }
}

}  // namespace dltrain
