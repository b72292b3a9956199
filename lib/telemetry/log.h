// Sets up the log. The rest of the program only writes to it (base/log.h).
//
// Lines go to the console (above the progress bar, never into it) and, with a time stamp, to
// log.txt of the run folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "telemetry/console.h"

namespace dltrain {

struct LogOptions {
  LogLevel level = LogLevel::info;
  bool quiet = false;   // only warnings and errors on the console; no effect on log.txt
  int rank = 0;         // only rank 0 writes log.txt; the lines of others begin with "[rank N] "
  bool marked = false;  // the launcher adds that prefix itself
  std::optional<std::filesystem::path> run_folder = {};  // log.txt is appended to here
};

// trace, debug, info, warning (or warn), error, off. Throws Error(usage) for other names.
LogLevel log_level_from_name(std::string_view name);

// Replaces spdlog's default logger. Can be called again, because the run folder is known only after
// the first messages. Throws Error(storage) if log.txt cannot be written.
void set_up_log(const LogOptions& options, Console& console);

// Logs a line of progress to log.txt and the console. A terminal, which has a bar, does not show
// it.
void log_progress(const std::string& line);

}  // namespace dltrain
