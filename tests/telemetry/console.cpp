#include "telemetry/console.h"

#include <atomic>
#include <thread>
#include <vector>

#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/log.h"
#include "catch.h"
#include "telemetry/log.h"
#include "telemetry/progress.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

struct FakeTerminal {
  std::string text;  // all that was written
  int width = 60;

  ConsoleOptions options(bool terminal, bool color = false, bool utf8 = false) {
    return {.terminal = terminal,
            .color = color,
            .utf8 = utf8,
            .width = [this] { return width; },
            .write = [this](std::string_view piece) { text += piece; }};
  }

  // Returns the content of the screen: interprets carriage return, clear-line and newline.
  std::vector<std::string> screen() const {
    std::vector<std::string> rows(1);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') {
        rows.emplace_back();
      } else if (text.compare(i, 4, "\r\x1b[K") == 0) {
        rows.back().clear();
        i += 3;
      } else {
        rows.back() += text[i];
      }
    }
    return rows;
  }
};

struct FakeClock {
  std::chrono::steady_clock::time_point time{};
  auto function() {
    return [this] { return time; };
  }
  void advance(double seconds) {
    time += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
  }
};

std::string detail() {
  return "loss 1.5";
}

}  // namespace

TEST_CASE("lines stand above the status line and never in it") {
  FakeTerminal terminal;
  Console console(terminal.options(true));
  console.set_status("bar 1");
  console.print("a line\nand another");
  console.set_status("bar 2");
  console.print("third");
  CHECK(terminal.screen() == std::vector<std::string>{"a line", "and another", "third", "bar 2"});
  console.clear_status();
  CHECK(terminal.screen().back().empty());
}

TEST_CASE("without a terminal there is no status line and no control character") {
  FakeTerminal terminal;
  Console console(terminal.options(false));
  console.set_status("bar");
  console.print("line");
  console.clear_status();
  CHECK(terminal.text == "line\n");
}

TEST_CASE("text is cut by characters, not bytes, and colours take no room") {
  CHECK(cut_to_width("━━━", 2) == "━━");
  CHECK(cut_to_width("ab", 5) == "ab");
  CHECK(cut_to_width("\x1b[36mab\x1b[0mcd", 3) == "\x1b[36mab\x1b[0mc");
  CHECK(cut_to_width("a\x1b[", 3) == "a\x1b[");
}

TEST_CASE("lines of several threads stay whole") {
  FakeTerminal terminal;
  Console console(terminal.options(true));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) console.print("a whole line");
    });
  }
  for (int i = 0; i < 200; ++i) console.set_status("the bar");
  for (std::thread& thread : threads) thread.join();
  console.clear_status();
  const auto rows = terminal.screen();
  CHECK(rows.size() == 801);
  for (size_t i = 0; i < 800; ++i) CHECK(rows[i] == "a whole line");
}

TEST_CASE("the bar shows part, rate and time to go, as wide as the terminal allows") {
  FakeTerminal terminal;
  terminal.width = 80;
  Console console(terminal.options(true));
  FakeClock clock;
  Progress progress(console, {.total = 100, .now = clock.function()});
  clock.advance(100);  // the first step says nothing about the others
  progress.update(1, detail);
  CHECK_THAT(terminal.screen().back(), !Contains("left"));
  clock.advance(10);
  progress.update(51, detail);
  CHECK(terminal.screen().back() ==
        "train  51% [============-            ] 51/100  loss 1.5  5.0 steps/s  0:10 left");
  CHECK(terminal.screen().back().size() <= 79);
  terminal.width = 30;
  clock.advance(10);
  progress.update(75, detail);
  CHECK(terminal.screen().back() == "train  75% 75/100  loss 1.5  ");
  clock.advance(5);
  progress.update(100, detail);
  progress.finish("loss 1.25");
  CHECK(terminal.screen()[0] == "train 100% 100/100  loss 1.25  4.0 steps/s  2.1 min");
  CHECK(terminal.screen().back().empty());
}

TEST_CASE("a UTF-8 terminal gets a line, in colour where allowed, that fits") {
  for (bool color : {false, true}) {
    FakeTerminal terminal;
    terminal.width = 100;
    Console console(terminal.options(true, color, true));
    FakeClock clock;
    Progress progress(console, {.first = 10, .total = 30, .now = clock.function()});
    progress.update(11, detail);
    clock.advance(40);
    progress.update(21, detail);
    const std::string row = terminal.screen().back();
    CHECK_THAT(row, Contains("━━━━━━━━"));
    CHECK_THAT(row, Contains("21/30  loss 1.5  4.0 s/step  0:36 left"));
    CHECK((row.find("\x1b[36m") != std::string::npos) == color);
  }
}

TEST_CASE("elsewhere there is no bar, and the same as lines for the log") {
  FakeTerminal terminal;
  Console console(terminal.options(false));
  FakeClock clock;
  Progress progress(console, {.total = 1000, .now = clock.function()});
  clock.advance(7);
  CHECK(progress.line(1, "loss 2") == "train   0% 1/1000  loss 2");
  clock.advance(0.3);
  progress.update(4, detail);
  CHECK(progress.line(4, "loss 2") == "train   0% 4/1000  loss 2");
  clock.advance(49.7);
  CHECK(progress.line(501, "loss 1") == "train  50% 501/1000  loss 1  10.0 steps/s  0:50 left");
  progress.finish("loss 1");
  CHECK(terminal.text.empty());
}

TEST_CASE("quiet progress shows nothing") {
  FakeTerminal terminal;
  Console console(terminal.options(true));
  Progress progress(console, {.total = 2, .quiet = true});
  progress.update(1, detail);
  progress.finish("loss 1");
  CHECK(terminal.text.empty());
}

TEST_CASE("durations read as clocks") {
  CHECK(format_duration(75.2) == "1:15");
  CHECK(format_duration(4000) == "1:06:40");
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(1e300) == "?");
  CHECK(format_time(0.42) == "0.4 s");
  CHECK(format_time(150) == "2.5 min");
  CHECK(format_time(9000) == "2.5 h");
}

TEST_CASE("the log goes to the console above the bar and to log.txt") {
  TemporaryFolder folder;
  FakeTerminal terminal;
  Console console(terminal.options(true, true));
  set_up_log({.run_folder = folder.path()}, console);
  console.set_status("bar");
  log_info("hello {}", 1);
  log_warning("careful");
  log_debug("not shown");
  log_progress("train  50%");  // a terminal has the bar
  const auto rows = terminal.screen();
  CHECK(rows[0] == "hello 1");
  CHECK(rows[1] == "\x1b[33mwarning: \x1b[0mcareful");
  CHECK(rows[2] == "bar");
  const std::string file = slurp(folder / "log.txt");
  CHECK_THAT(file, Contains(" info    hello 1\n"));
  CHECK_THAT(file, Contains(" warning careful\n"));
  CHECK_THAT(file, Contains(" info    train  50%\n"));
  CHECK(file.find("not shown") == std::string::npos);
  CHECK(file.find('\x1b') == std::string::npos);

  set_up_log({.quiet = true, .rank = 1, .run_folder = folder.path()}, console);
  log_info("rank 1 speaks");
  log_message(LogLevel::error, "rank 1 fails");
  CHECK_THAT(terminal.text, Contains("[rank 1] \x1b[31merror: \x1b[0mrank 1 fails"));
  CHECK(terminal.text.find("rank 1 speaks") == std::string::npos);
  CHECK(slurp(folder / "log.txt").find("rank 1") == std::string::npos);
  set_up_log({.rank = 1, .marked = true}, console);
  log_info("a launcher says who");
  CHECK_THAT(terminal.text, Contains("a launcher says who"));
  CHECK(terminal.text.find("[rank 1] a launcher") == std::string::npos);
  CHECK_THROWS_AS(set_up_log({.run_folder = "/proc/none"}, console), Error);
  CHECK(log_level_from_name("warning") == LogLevel::warning);
  CHECK_THROWS_AS(log_level_from_name("loud"), Error);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("none"));
}

TEST_CASE("lines of the training go to a console that is no terminal") {
  FakeTerminal terminal;
  Console console(terminal.options(false));
  set_up_log({}, console);
  log_progress("train  50%");
  CHECK(terminal.text == "train  50%\n");
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("none"));
}

TEST_CASE("NO_COLOR and the locale are heard") {
  ::setenv("NO_COLOR", "1", 1);
  ::setenv("LC_ALL", "en_US.UTF-8", 1);
  CHECK_FALSE(console_options_from_environment().color);
  CHECK(console_options_from_environment().utf8);
  ::setenv("LC_ALL", "C", 1);
  CHECK_FALSE(console_options_from_environment().utf8);
  ::unsetenv("NO_COLOR");
  ::unsetenv("LC_ALL");
}
