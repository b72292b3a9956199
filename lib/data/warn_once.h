// Warnings about data, which a command may open several times.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "base/log.h"

namespace dltrain {

// Logs a warning unless this process has logged it before.
inline void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (warned.insert(text).second) log_warning("{}", text);
}

}  // namespace dltrain
