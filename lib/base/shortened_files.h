// Mapped files that another process shortens. Reading past the new end makes the kernel send
// SIGBUS; zeros then take the place of what is missing, so that the reader comes to an end, and
// check_mapped_files() throws.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/error.h"

namespace dltrain {

// MappedFile calls these; what is watched must be forgotten before it is unmapped.
void watch_mapping(std::span<const std::byte> mapped, const std::filesystem::path& path,
                   ExitCode code);
void forget_mapping(const std::byte* begin);

// Whoever has read from mapped files calls this before the result is used. Throws, once, where a
// file turned out to be shorter than it was: its path, and the code that it was mapped with.
void check_mapped_files();

}  // namespace dltrain
