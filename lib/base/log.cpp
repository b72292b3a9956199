#include "base/log.h"

#include <spdlog/spdlog.h>

namespace dltrain {

static_assert(static_cast<int>(LogLevel::warning) == SPDLOG_LEVEL_WARN &&
              static_cast<int>(LogLevel::off) == SPDLOG_LEVEL_OFF);

namespace {

thread_local bool is_log_paused = false;

}  // namespace

LogPause::LogPause(bool pause) : before_(is_log_paused) {
  is_log_paused |= pause;
}
LogPause::~LogPause() {
  is_log_paused = before_;
}

void log_message(LogLevel level, std::string_view text) {
  if (is_log_paused) return;
  spdlog::log(static_cast<spdlog::level::level_enum>(level), "{}", text);
}

}  // namespace dltrain
