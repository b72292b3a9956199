#include "base/log.h"

#include <spdlog/spdlog.h>

namespace dltrain {

static_assert(static_cast<int>(LogLevel::warning) == SPDLOG_LEVEL_WARN &&
              static_cast<int>(LogLevel::off) == SPDLOG_LEVEL_OFF);

void log_message(LogLevel level, std::string_view text) {
  spdlog::log(static_cast<spdlog::level::level_enum>(level), "{}", text);
}

}  // namespace dltrain
