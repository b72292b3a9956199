// Error messages for invalid command lines.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/owned_files.h"
#include "config/key_index.h"
#include "config/suggest.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

const CLI::App* chosen_command(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names,
                         std::string_view before = "") {
  const std::string near = nearest_name(wrong, names);
  return near.empty() ? "" : fmt::format("; did you mean {}{}?", before, near);
}

// Whether a section has this key, and the experiment the section, whatever types are chosen.
bool is_of_every_type(const std::string& key, const std::vector<IndexedKey>& keys) {
  std::map<std::string, std::set<std::string>> types;  // that have a key; of a section under "a.*"
  for (const IndexedKey& known : keys) {
    if (known.kind.empty() || known.path.empty()) continue;
    types[known.path].insert(known.kind);
    types[known.path.substr(0, known.path.rfind('.')) + ".*"].insert(known.kind);
  }
  for (size_t end = key.find('.');; end = key.find('.', end + 1)) {
    const std::string path = key.substr(0, end);
    const auto with = types.find(path);
    if (with != types.end() && with->second != types[path.substr(0, path.rfind('.')) + ".*"]) {
      return false;
    }
    if (end == key.npos) return true;
  }
}

// Returns a hint for an unknown flag: a similar flag, or a key of the configuration with this name.
std::string flag_hint(const CLI::App& command, std::string flag) {
  flag = flag.substr(0, flag.find('='));
  const bool is_long = flag.starts_with("--");
  std::vector<std::string> known;
  bool sets_keys = false;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    sets_keys = sets_keys || option->check_lname("set");
  }
  if (sets_keys) {
    std::string name = flag.substr(is_long ? 2 : 1);
    std::replace(name.begin(), name.end(), '-', '_');
    Experiment experiment;
    const std::vector<IndexedKey> keys = all_keys(ObjectRef::of(experiment));
    const std::string key = find_in_other_sections(name, keys);
    if (!key.empty() && is_of_every_type(key, keys)) {
      const bool section = std::ranges::any_of(
          keys, [&](const IndexedKey& below) { return below.path.starts_with(key + "."); });
      return fmt::format("; keys of the configuration are set with -s {}{}=VALUE", key,
                         section ? ".KEY" : "");
    }
  }
  return is_long ? did_you_mean(flag, known) : "";
}

// Rewrites "A not in {b,c}" of the library in the style of the program.
std::string choice_text(const std::string& text) {
  const size_t at = text.find(" not in {"), colon = text.find(": ");
  if (at == std::string::npos || colon > at) return text;
  std::vector<std::string> names;
  std::string name;
  for (const char c : text.substr(at + 9)) {
    if (c != ',' && c != '}') {
      name += c;
    } else {
      names.push_back(std::exchange(name, ""));
    }
  }
  const std::string wrong = text.substr(colon + 2, at - colon - 2);
  const std::string hint = did_you_mean(wrong, names);
  return fmt::format("{}: unknown name '{}'{}", text.substr(0, colon), wrong,
                     hint.empty() ? "; known: " + join_names(names) : hint);
}

// Rewrites the library's messages about numbers: "Could not convert: --max-steps = five" and
// "--top-p: Value 0 not in range 0.000000 to 1.000000".
std::string number_text(const CLI::App& command, const std::string& text) {
  constexpr std::string_view kConvert = "Could not convert: ", kValue = ": Value ";
  const bool converted = text.starts_with(kConvert);
  const size_t begin = converted ? kConvert.size() : 0, at = text.find(converted ? " = " : kValue);
  if (at == std::string::npos) return text;
  const std::string flag = text.substr(begin, at - begin);
  const CLI::Option* option = command.get_option_no_throw(flag);
  if (option == nullptr) return text;
  std::string value = text.substr(at + (converted ? 3 : kValue.size()));
  if (!converted) value = value.substr(0, value.find(" not in range"));
  const std::string type = option->get_type_name();  // "INT", "FLOAT:FLOAT in [0 - 1]"
  const size_t range = type.find(" in [");
  return fmt::format("{}: '{}' is not a {}number{}", flag, value,
                     type.starts_with("FLOAT") ? "" : "whole ",
                     range == std::string::npos ? "" : type.substr(range));
}

}  // namespace

std::string command_hint(const std::string& wrong) {
  std::vector<std::string> names;
  for (const CommandRow& row : commands()) names.emplace_back(row.name);
  const std::string hint = did_you_mean(wrong, names, "dltrain ");
  return hint.empty() ? "; commands: " + join_names(names) : hint;
}

std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* command = chosen_command(app);
  std::string message = number_text(*command, choice_text(error.what()));
  if (const size_t at = message.find(": 1 required "); at != std::string::npos) {
    message = message.substr(0, at) + " needs a value";
  }
  const std::vector<std::string> rest = app->remaining(true);
  const auto is_flag = [](const std::string& word) { return word.starts_with("-"); };
  const auto unknown =
      command->get_allow_extras() ? rest.end() : std::ranges::find_if(rest, is_flag);
  const bool extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!rest.empty() && (extra || unknown != rest.end())) {
    // A misspelt flag explains why one that is required lacks.
    message = "unknown argument " + (extra ? rest.front() : *unknown);
    if (command->get_name() == "generate" && !rest.front().starts_with("-")) {
      message += "; a prompt is given with --prompt TEXT";
    }
  }
  for (const std::string& word : rest) {
    if (is_flag(word)) message += flag_hint(*command, word);
  }
  const auto parts = command->get_subcommands([](const CLI::App*) { return true; });
  if (error.get_name() == "RequiredError" && !parts.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* part : parts) names.push_back(part->get_name());
    const std::string wrong = rest.empty() ? "" : rest.front();
    const std::string hint = did_you_mean(wrong, names);
    message = fmt::format("dltrain {} needs one of {}{}", command->get_name(), join_names(names),
                          wrong.empty() ? "" : fmt::format(", not '{}'{}", wrong, hint));
  }
  return fmt::format("dltrain: error: {}\nRun with --help for more information.\n", message);
}

CLI::Option* add_text(CLI::App& command, const std::string& names, std::string& value,
                      const std::string& doc) {
  const std::string flag = names.substr(names.find("--"));
  const auto check = [flag](const std::string& text) -> std::string {
    if (text.empty()) return "expected a value, not an empty text";
    // `--name --overwrite` lacks a value. `--sort -KEY` and `-o -` have one.
    const bool is_flag = text.starts_with("-") && text != "-" && flag != "--sort";
    return is_flag ? fmt::format("expected a value that does not begin with '-', not '{}'", text)
                   : "";
  };
  return command.add_option(names, value, doc)->take_last()->check(check);
}

CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& path,
                        const std::string& doc, bool of_run) {
  const bool result = names == "--result" || names == "--timeline";  // always JSON
  return add_text(command, names, path, doc)->each([=](const std::string& text) {
    std::error_code ignored;
    if (result && (text.ends_with(".yaml") || text.ends_with(".yml")) &&
        std::filesystem::exists(text, ignored)) {
      throw Error(ExitCode::usage,
                  "is a configuration that the output would replace; name another file", text);
    }
    if (!of_run || std::filesystem::path(text).filename() != "summary.json") {
      refuse_owned_file(text);
    }
    declare_output(text);
  });
}

std::string whole_number(const std::string& text) {
  errno = 0;
  const bool in_range = std::strtoll(text.c_str(), nullptr, 0) >= 0 && errno != ERANGE;
  return in_range ? "" : fmt::format("{} is not a whole number from 0 to {}", text, INT64_MAX);
}

}  // namespace dltrain
