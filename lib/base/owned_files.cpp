#include "base/owned_files.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <sys/stat.h>

#include "base/checksum.h"
#include "base/run_lock.h"
#include "base/system_calls.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFirstLine =
    "dltrain 1: the files that dltrain has written here; --overwrite removes these and no others\n";
constexpr uint64_t kMaxMarkerBytes = 256 << 20;

using Names = std::set<std::string>;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// Returns the complete lines of the marker. A partial last line is ignored: its file was not
// created.
std::optional<std::string> marker_text(const fs::path& folder) {
  std::error_code ignored;
  const fs::path path = folder / kMarkerFile;
  if (!fs::is_regular_file(fs::symlink_status(path, ignored))) return std::nullopt;
  std::string text = read_file(path, kMaxMarkerBytes, ExitCode::storage);
  if (!text.starts_with(kFirstLine)) return std::nullopt;
  text.resize(text.rfind('\n') + 1);
  return text;
}

std::optional<Names> marked_names(const fs::path& folder) {
  const auto text = marker_text(folder);
  if (!text) return std::nullopt;
  Names names;
  for (size_t begin = kFirstLine.size(); begin < text->size();) {
    const size_t end = text->find('\n', begin);
    names.insert(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// Returns the names in the checksums of a published folder.
std::optional<Names> published_names(const fs::path& folder) {
  if (!is_there(folder / kChecksumsFile)) return std::nullopt;
  try {
    Names names{kChecksumsFile};
    for (const auto& [name, digest] : read_checksums(folder)) names.insert(name);
    return names;
  } catch (const Error&) {
    return std::nullopt;  // the list is damaged
  }
}

std::optional<Names> listed_names(const fs::path& folder) {
  auto names = marked_names(folder);
  if (!names) return published_names(folder);
  names->insert({kMarkerFile, kLockFile});
  return names;
}

// The content of a folder.
struct Inventory {
  std::vector<fs::path> files;    // owned, including unfinished folders
  std::vector<fs::path> folders;  // of owned files, inner ones first
  fs::path foreign;               // the first foreign entry; may be empty
};

void collect_inventory(const fs::path& folder, const std::string& prefix, const Names& names,
                       Inventory& out) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error) fail_storage(folder, "list", error.value());
  std::sort(entries.begin(), entries.end());
  for (const fs::path& path : entries) {
    const std::string own = path.filename().string(), name = prefix + own;
    const auto below = names.lower_bound(name + "/");
    const auto listed_after = [&](std::string_view before) {
      return own.starts_with(before) && names.contains(prefix + own.substr(before.size()));
    };
    if (listed_after(kTemporaryPrefix) || (!is_folder(path) && names.contains(name))) {
      out.files.push_back(path);
    } else if (is_folder(path) && (names.contains(name) || listed_after(kReplacedPrefix))) {
      collect_inventory(path, "", listed_names(path).value_or(Names()), out);
      out.folders.push_back(path);
    } else if (is_folder(path) && below != names.end() && below->starts_with(name + "/")) {
      collect_inventory(path, name + "/", names, out);
      out.folders.push_back(path);
    } else if (out.foreign.empty()) {
      out.foreign = path;
    }
  }
}

using FileId = std::pair<dev_t, ino_t>;
FileId id_of(const struct stat& info) {
  return {info.st_dev, info.st_ino};
}
std::mutex output_mutex;                  // guards the following
std::map<FileId, bool> declared_outputs;  // true: the file is also an input
std::vector<fs::path> output_paths;       // of all declared ones

void refuse_if_output(const struct stat& info, const fs::path& path) {
  const std::lock_guard lock(output_mutex);
  const auto output = declared_outputs.find(id_of(info));
  if (output == declared_outputs.end()) return;
  output->second = true;
  throw Error(ExitCode::usage, "is an input that the output would replace; name another file",
              path.string());
}

}  // namespace

bool has_marker(const fs::path& folder) {
  return marker_text(folder).has_value();
}

bool lists_file(const fs::path& folder, const std::string& name) {
  const auto names = marked_names(folder);
  return names && names->contains(name);
}

void mark_folder(const fs::path& folder, const std::vector<std::string>& names) {
  if (is_there(folder / kMarkerFile) && !has_marker(folder)) {
    fail(ExitCode::usage, "{} was not written by dltrain; choose another folder",
         (folder / kMarkerFile).string());
  }
  make_directories(folder);
  std::string text(kFirstLine);
  for (const std::string& name : names) text += name + "\n";
  write_file_atomically(folder / kMarkerFile, text);
}

void claim_files(const fs::path& folder, const std::vector<std::string>& names) {
  static std::mutex mutex;  // checkpoints are written by another thread
  const std::lock_guard lock(mutex);
  const auto text = marker_text(folder);
  if (!text) return;
  const Names listed = *marked_names(folder);
  std::string lines;
  for (const std::string& name : names) {
    if (listed.contains(name)) continue;
    if (is_there(folder / name)) {
      fail(ExitCode::usage,
           "{} exists and was not written by dltrain; move it, or choose another folder",
           (folder / name).string());
    }
    lines += name + "\n";
  }
  if (lines.empty()) return;
  truncate_file(folder / kMarkerFile, text->size());
  FileWriter marker(folder / kMarkerFile, /*append=*/true);
  marker.write(lines);
  marker.close();
}

void check_all_owned(const fs::path& folder) {
  const auto names = listed_names(folder);
  if (!names) {
    fail(ExitCode::usage,
         "{} has no list of the files that dltrain has written ({} in a run, {} in a model that it "
         "exported), so --overwrite removes nothing; choose another folder, or remove this one "
         "yourself",
         folder.string(), kMarkerFile, kChecksumsFile);
  }
  Inventory found;
  collect_inventory(folder, "", *names, found);
  if (found.foreign.empty()) return;
  fail(ExitCode::usage,
       "{} was not written by dltrain, so --overwrite removes nothing in {}: move it, or choose "
       "another folder",
       found.foreign.string(), folder.string());
}

void remove_owned(const fs::path& folder, const std::vector<std::string>& also) {
  Names names = listed_names(folder).value_or(Names());
  names.insert(also.begin(), also.end());
  if (!is_folder(folder)) return;
  Inventory found;
  collect_inventory(folder, "", names, found);
  found.folders.push_back(folder);
  // The list of a folder is removed last, in case of an interruption.
  std::stable_partition(found.files.begin(), found.files.end(),
                        [](const fs::path& path) { return path.filename() != kChecksumsFile; });
  for (const fs::path& path : found.files) {
    if (path != folder / kMarkerFile && path != folder / kLockFile) remove_recursively(path);
  }
  for (const fs::path& path : found.folders) {
    // A folder that is not empty has foreign files.
    if (system_calls().remove_directory(path.c_str()) != 0 && errno != ENOTEMPTY &&
        errno != EEXIST && errno != ENOENT) {
      fail_storage(path, "remove", errno);
    }
  }
}

void declare_output(const fs::path& path) {
  struct stat info {};
  const std::lock_guard lock(output_mutex);
  output_paths.push_back(path);
  if (path.empty() || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  declared_outputs.emplace(id_of(info), false);
}

bool any_output() {
  const std::lock_guard lock(output_mutex);
  return !declared_outputs.empty();
}

void check_no_output(int fd, const fs::path& path) {
  struct stat info {};
  if (any_output() && ::fstat(fd, &info) == 0) refuse_if_output(info, path);
}

void check_no_output(const fs::path& path) {
  struct stat info {};
  if (any_output() && ::stat(path.c_str(), &info) == 0) refuse_if_output(info, path);
}

void check_no_output_in(const fs::path& folder) {
  std::error_code ignored;
  const std::lock_guard lock(output_mutex);
  for (const fs::path& path : output_paths) {
    const fs::path inner = fs::weakly_canonical(fs::absolute(path, ignored), ignored)
                               .lexically_relative(fs::weakly_canonical(folder, ignored));
    if (inner.empty() || *inner.begin() == "..") continue;
    throw Error(
        ExitCode::usage,
        fmt::format("lies in {}, whose files are inputs; name another folder", folder.string()),
        path.string());
  }
}

void refuse_owned_file(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  for (fs::path folder = file.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    const auto names = marked_names(folder);
    if (!names) continue;
    for (fs::path name = file.lexically_relative(folder); !name.empty();
         name = name.parent_path()) {
      if (!names->contains(name.string())) continue;
      throw Error(ExitCode::usage,
                  fmt::format("is a file that dltrain has written in {} and that the output would "
                              "replace; name another file",
                              folder.string()),
                  path.string());
    }
  }
}

bool is_input_too(const fs::path& path) {
  const std::lock_guard lock(output_mutex);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  const auto output = declared_outputs.find(id_of(info));
  return output != declared_outputs.end() && output->second;
}

bool replace_deleted(FileWriter& file) {
  const fs::path path = file.path();
  if (is_there(path)) return false;
  // The folder can be deleted again while the file is created.
  for (int attempt = 1;; ++attempt) {
    try {
      make_directories(path.parent_path());
      file = FileWriter(path);
      return true;
    } catch (const Error&) {
      if (attempt == 100) throw;
    }
  }
}

}  // namespace dltrain
