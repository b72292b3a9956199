// What a person sees on the terminal (stderr): lines, and below them at most one status line that
// is redrawn in place. Lines and status never mix, whichever thread prints.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace dltrain {

struct ConsoleOptions {
  bool terminal = false;  // a person looks at it: status line allowed
  bool color = false;
  bool utf8 = false;
  // Columns; asked again before each status line, since windows change.
  std::function<int()> width = [] { return 80; };
  std::function<void(std::string_view)> write;  // receives everything, in whole pieces
};

// Of this process: stderr; NO_COLOR, TERM, COLUMNS and the locale variables decide.
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
  int width() const;

  // One or more lines, without the last newline. The status line moves below them.
  void print(std::string_view text);
  // Replaces the status line; cut to the width. Nothing happens where there is no terminal.
  void set_status(std::string_view text);
  void clear_status();

 private:
  ConsoleOptions options_;
  std::mutex mutex_;
  std::string status_;
};

// The console of this process.
Console& console();

// As much of UTF-8 text as fits `columns`: each code point takes one, colour sequences none.
std::string_view cut_to_width(std::string_view text, int columns);

}  // namespace dltrain
