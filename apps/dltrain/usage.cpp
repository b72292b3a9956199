// What is said of a command line that cannot be read.
#include "config/suggest.h"
#include "dltrain/commands.h"

namespace dltrain {

std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  std::string message = fmt::format("dltrain: error: {}", error.what());
  const CLI::App* command = app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& extra : app->remaining(true)) {
    if (!extra.starts_with("--")) continue;
    const std::string near = nearest_name(extra.substr(0, extra.find('=')), known);
    if (!near.empty()) message += fmt::format("; did you mean {}?", near);
  }
  return message + "\nRun with --help for more information.\n";
}

}  // namespace dltrain
