#include "telemetry/console.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"

namespace dltrain {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int width = columns ? std::atoi(columns) : 0;
  return width > 0 ? width : 80;
}

// The first locale variable that is set is used (POSIX).
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!is_set(name)) continue;
    const std::string value = lower_ascii(std::getenv(name));
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a closed stderr must not stop the training
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

ConsoleOptions console_options_from_environment() {
  ConsoleOptions options;
  const char* term = std::getenv("TERM");
  const bool dumb = !term || std::string_view(term) == "dumb" || !*term;
  options.terminal = ::isatty(STDERR_FILENO) == 1 && !dumb;
  options.color = options.terminal && !is_set("NO_COLOR");
  options.utf8 = locale_is_utf8();
  options.width = terminal_width;
  options.write = write_stderr;
  return options;
}

void Console::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  std::string out;
  if (!status_.empty()) out += kClearLine;
  out += text;
  out += '\n';
  out += status_;
  options_.write(out);
}

void Console::set_status(std::string_view text) {
  if (!options_.terminal) return;
  const std::lock_guard lock(mutex_);
  // The last column stays free: a full line would wrap on some terminals.
  status_ = cut_to_width(text, options_.width() - 1);
  options_.write(std::string(kClearLine) + status_);
}

void Console::clear_status() {
  const std::lock_guard lock(mutex_);
  if (status_.empty()) return;
  status_.clear();
  options_.write(kClearLine);
}

Console& console() {
  // Never destroyed: threads may still print while the process ends.
  static Console* process = std::make_unique<Console>(console_options_from_environment()).release();
  return *process;
}

std::string_view cut_to_width(std::string_view text, int columns) {
  size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i).starts_with("\x1b[")) {
      // A colour: as long as it gets, no columns.
      i = std::min(text.find('m', i), text.size() - 1) + 1;
      continue;
    }
    const bool begins_character = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins_character && columns-- <= 0) break;
    ++i;
  }
  return text.substr(0, i);
}

}  // namespace dltrain
