// Which files of a folder dltrain has written, so that it replaces and removes no others.
//
// A folder that is filled bit by bit has the marker `.dltrain`: a line that says what it is, then
// one name a line, relative to the folder, each appended before the file is created. A folder that
// is published whole (base/atomic_directory.h) has checksums.json, which lists its files; where a
// marker lists such a folder, the files that its checksums.json lists are ours too. All else is
// foreign: it is never touched, and --overwrite refuses a folder that holds it. Folders of versions
// before the marker have no list, so nothing in them is removed either.
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
// Of what is written beside a file or folder, and of a folder that is being replaced.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-", kReplacedPrefix = ".old-";

bool has_marker(const std::filesystem::path& folder);
// Whether the marker of `folder` lists `name`.
bool lists_file(const std::filesystem::path& folder, const std::string& name);
// Gives a folder, which is made where it is not there, a marker that lists nothing. Throws
// Error(usage) when a file of that name is there that is no marker.
void mark_folder(const std::filesystem::path& folder);
// Lists names that are about to be created; those that are listed may be written again. Throws
// Error(usage) when one is there that is not listed. Does nothing in a folder without a marker.
void claim_files(const std::filesystem::path& folder, const std::vector<std::string>& names);

// Throws Error(usage) unless all that is in `folder` is ours, naming the first entry that is not,
// or what to do where there is no list.
void check_all_ours(const std::filesystem::path& folder);
// Removes what is ours below `folder`, and the folders that are empty then, with `folder` itself.
// The marker and the lock of a run stay. `also`: names in it that are ours too, should its list be
// damaged.
void remove_ours(const std::filesystem::path& folder, const std::vector<std::string>& also = {});

// A file that the user has named for output: where it is there already, reading it as an input is
// Error(usage) from now on, since it would be replaced.
void declare_output(const std::filesystem::path& path);
// Throws that error for an open file that was declared.
void check_no_output(int fd, const std::filesystem::path& path);
// Whether a file that was declared has turned out to be an input.
bool is_input_too(const std::filesystem::path& path);

// What `folder`/checksums.json lists. Throws Error(storage) when it is no such file of a known
// format.
Checksums read_checksums(const std::filesystem::path& folder);

// Whether the file that `file` writes to has been deleted, so that nobody can read it any more.
// Then a new one is opened in its place, and its folder is made.
bool replace_deleted(FileWriter& file);

}  // namespace dltrain
