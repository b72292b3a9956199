// Sets up the log. Everything else of the program just writes to it (base/log.h).
//
// Lines go to the console (above the progress bar, never into it) and, with a time stamp, to
// log.txt of the run folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "telemetry/console.h"

namespace dltrain {

struct LogOptions {
  LogLevel level = LogLevel::info;
  bool quiet = false;   // only warnings and errors on the console; log.txt is not affected
  int rank = 0;         // only rank 0 writes log.txt; the lines of others begin with "[rank N] "
  bool marked = false;  // a launcher puts that before the lines of this rank itself
  std::optional<std::filesystem::path> run_folder = {};  // log.txt is appended to here
};

// trace, debug, info, warning (or warn), error, off. Throws Error(usage) for other names.
LogLevel log_level_from_name(std::string_view name);

// Replaces spdlog's default logger; may be called again (the run folder is known later than the
// first message). Throws Error(storage) when log.txt cannot be written.
void set_up_log(const LogOptions& options, Console& console);

// A line of the training, for log.txt and for a console that is no terminal: that one has a bar.
void log_progress(const std::string& line);

}  // namespace dltrain
