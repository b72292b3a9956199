// Log messages: log_info("{} samples", n). telemetry/log.h configures their destination.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace dltrain {

enum class LogLevel { trace, debug, info, warning, error, critical, off };

void log_message(LogLevel level, std::string_view text);

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
