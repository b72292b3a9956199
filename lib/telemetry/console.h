// The output on the terminal (stderr): lines, and below them at most one status line that is
// redrawn in place. Lines and status never mix, whichever thread prints.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace dltrain {

struct ConsoleOptions {
  bool terminal = false;  // the output is a terminal: the status line is shown
  bool color = false;
  bool utf8 = false;
  // Returns the number of columns; called before each status line, because windows change.
  std::function<int()> width = [] { return 80; };
  std::function<void(std::string_view)> write;  // receives all output
};

// Options for stderr of this process, from NO_COLOR, TERM, COLUMNS and the locale variables.
ConsoleOptions console_options_from_environment();

class Console {
 public:
  explicit Console(ConsoleOptions options) : options_(std::move(options)) {}
  ~Console() { clear_status(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool terminal() const { return options_.terminal; }
  bool color() const { return options_.color; }
  bool utf8() const { return options_.utf8; }
  int width() const { return options_.width(); }

  // Prints one or more lines, without the last newline, above the status line.
  void print(std::string_view text);
  // Replaces the status line, truncated to the width. Does nothing without a terminal.
  void set_status(std::string_view text);
  void clear_status();

 private:
  ConsoleOptions options_;
  std::mutex mutex_;
  std::string status_;
};

// The console of this process.
Console& console();

// Truncates UTF-8 text to `columns`. A code point takes one column, a colour sequence none.
std::string_view cut_to_width(std::string_view text, int columns);

}  // namespace dltrain
