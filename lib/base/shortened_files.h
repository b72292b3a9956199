// Handles mapped files that another process shortens. The kernel sends SIGBUS for reads past the
// new end; the handler maps zeros there, so that the reader can continue, and check_mapped_files()
// throws.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/error.h"

namespace dltrain {

// Called by MappedFile. A watched mapping must be forgotten before it is unmapped.
void watch_mapping(std::span<const std::byte> mapped, const std::filesystem::path& path,
                   ExitCode code);
void forget_mapping(const std::byte* begin);

// Must be called after reading from mapped files, before the result is used. Throws once for a file
// that was shortened, with its path and the code that it was mapped with.
void check_mapped_files();

}  // namespace dltrain
