// What is said of a command line that cannot be read.
#include "base/owned_files.h"
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

CLI::Option* add_path(CLI::App& command, const std::string& names, std::string& path,
                      const std::string& doc) {
  const auto check = [](const std::string& text) {
    return std::string(text.empty() ? "a path is needed, not an empty text" : "");
  };
  return command.add_option(names, path, doc)->take_last()->check(check);
}

CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& path,
                        const std::string& doc) {
  return add_path(command, names, path, doc)->each([](const std::string& text) {
    declare_output(text);
  });
}

}  // namespace dltrain
