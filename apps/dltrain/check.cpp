#include <unistd.h>

#include "dltrain/commands.h"
#include "train/checks.h"

namespace dltrain {
namespace {

// By CheckOutcome.
constexpr const char* kWords[] = {"PASS", "FAIL", "SKIP"};
constexpr int kColours[] = {32, 31, 33};

}  // namespace

CommandBody add_check(CLI::App& command) {
  auto options = std::make_shared<ConfigOptions>();
  options->add_to(command);
  return [options] {
    const bool colour = isatty(STDOUT_FILENO) != 0 && getenv("NO_COLOR") == nullptr;
    const auto print = [&](const CheckResult& result) {
      const char* word = kWords[static_cast<size_t>(result.outcome)];
      if (colour) {
        fmt::print("\x1b[{}m{}\x1b[0m  {}: {}\n", kColours[static_cast<size_t>(result.outcome)],
                   word, result.name, result.detail);
      } else {
        fmt::print("{}  {}: {}\n", word, result.name, result.detail);
      }
      std::fflush(stdout);
    };
    const auto results = run_checks(
        {.engines = engines(),
         .load = [&](const std::vector<std::string>& extra) { return options->load(extra); },
         .on_result = print});
    const bool all = std::all_of(results.begin(), results.end(),
                                 [](const CheckResult& result) { return !result.failed(); });
    return all ? ExitCode::ok : ExitCode::check_failed;
  };
}

}  // namespace dltrain
