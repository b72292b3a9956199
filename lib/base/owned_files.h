// Records which files of a folder dltrain has written, so that it replaces and removes no others.
//
// A folder that is filled step by step has the marker `.dltrain`: a header line, then one name per
// line, relative to the folder, each appended before the file is created. A folder that is
// published at once (base/atomic_directory.h) has checksums.json, which lists its files; if a
// marker lists such a folder, those files count as owned too. All other files are foreign: they are
// never touched, and --overwrite refuses a folder that has some. Folders written before the marker
// was introduced have no list, so nothing in them is removed.
//
// Threads: one process at a time changes a folder (base/run_lock.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace dltrain {

inline constexpr const char* kMarkerFile = ".dltrain";
// Prefixes of the names of unfinished files and folders, and of a folder that is being replaced.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-", kReplacedPrefix = ".old-";

bool has_marker(const std::filesystem::path& folder);
// Returns true if the marker of `folder` lists `name`.
bool lists_file(const std::filesystem::path& folder, const std::string& name);
// Writes a marker that lists `names`, and creates the folder if necessary. Throws Error(usage) if a
// file of that name exists that is not a marker.
void mark_folder(const std::filesystem::path& folder, const std::vector<std::string>& names = {});
// Lists names that are about to be created; listed names may be written again. Throws Error(usage)
// if one exists that is not listed. Does nothing in a folder without a marker.
void claim_files(const std::filesystem::path& folder, const std::vector<std::string>& names);

// Throws Error(usage) if `folder` has foreign entries, naming the first one, or if it has no list.
void check_all_owned(const std::filesystem::path& folder);
// Removes the owned files below `folder` and the folders that become empty, including `folder`. The
// marker and the lock of a run are kept. `also` has further owned names in case its list is
// damaged.
void remove_owned(const std::filesystem::path& folder, const std::vector<std::string>& also = {});

// Declares an output file of the user. If it exists, reading it as an input is Error(usage) from
// now on, because it would be replaced.
void declare_output(const std::filesystem::path& path);
// Returns true if an output was declared that exists.
bool any_output();
// Throws that error for an open file that was declared as an output.
void check_no_output(int fd, const std::filesystem::path& path);
// The same for a file that is not opened; any other path is ignored.
void check_no_output(const std::filesystem::path& path);
// Throws Error(usage) if a declared output, which need not exist, lies in a folder that is read.
void check_no_output_in(const std::filesystem::path& folder);
// Throws Error(usage) if a marker lists `path`, or a folder that it lies in.
void refuse_owned_file(const std::filesystem::path& path);
// Returns true if a declared output was opened as an input.
bool is_input_too(const std::filesystem::path& path);

// If the file that `file` writes to has been deleted, creates it and its folder again and returns
// true.
bool replace_deleted(FileWriter& file);

}  // namespace dltrain
