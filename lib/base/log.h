// Log messages: log_info("{} samples", n). telemetry/log.h configures their destination.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace dltrain {

enum class LogLevel { trace, debug, info, warning, error, critical, off };

void log_message(LogLevel level, std::string_view text);

// Drops the messages of this thread while it exists: those that another rank logs too.
class LogPause {
 public:
  explicit LogPause(bool pause);
  ~LogPause();
  LogPause(const LogPause&) = delete;
  LogPause& operator=(const LogPause&) = delete;

 private:
  bool before_;
};

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace dltrain
