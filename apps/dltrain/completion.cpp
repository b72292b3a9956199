// dltrain completion bash|zsh: a script for `eval "$(dltrain completion bash)"`.
#include <cstdio>
#include <set>

#include "config/key_index.h"
#include "dltrain/commands.h"
#include "nn/model_files.h"

namespace dltrain {
namespace {

// Flags that take a value, with what the values can be: "" for any text or file.
using Values = std::map<std::string, std::string>;

// The values of an option that is a choice, from CLI11's TEXT:{train,eval}; else "".
std::string choices_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::ranges::replace(type, ',', ' ');
  return " " + type.substr(begin + 1, end - begin - 1);
}

std::string options_of(const CLI::App& app, Values& values) {
  std::string out;
  for (const CLI::App* part : app.get_subcommands({})) {
    out += " " + part->get_name() + options_of(*part, values);
  }
  for (const CLI::Option* option : app.get_options()) {
    std::vector<std::string> flags;
    for (const std::string& name : option->get_lnames())
      out += " " + flags.emplace_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
    if (flags.empty()) out += choices_of(*option);
    if (option->get_items_expected_max() == 0) continue;
    for (const std::string& flag : flags) values[flag] = choices_of(*option);
  }
  return out;
}

// The names of its parts, all options, and the values of an argument that is a choice.
std::string words_of(const CommandRow& row, Values& values) {
  CLI::App app;
  row.add(app);
  return options_of(app, values);
}

// Returns the cases of the shell for the word after a flag that takes a value.
std::string value_cases(Values values) {
  values["--device"] = " auto cpu cuda";
  values["--autotune"] = " off quick full";
  values["--resume"] = " auto never";
  std::string any, out;
  for (const auto& [flag, words] : values) {
    if (words.empty()) {
      any += (any.empty() ? "" : " | ") + flag;
    } else {
      out += fmt::format("    {}) words=\"{}\"{} ;;\n", flag, words.substr(1),
                         flag == "--resume" ? "" : " files=none");
    }
  }
  return out + fmt::format("    {}) words=\"\" ;;\n", any);
}

// `list` has no files, but families, and names after a family.
std::string list_case(const std::string& options) {
  std::string families, cases;
  for (const auto& [family, names] : list_families()) {
    families += " " + family;
    cases += fmt::format("      {}) words=\"{}\" ;;\n", family, fmt::join(names, " "));
  }
  return fmt::format("files=none words=\"{}\"; case \"$before\" in\n{}    esac", options + families,
                     cases);
}

// All keys that -s can set.
std::string keys() {
  Experiment experiment;
  std::set<std::string> paths;
  for (const IndexedKey& key : all_keys(ObjectRef::of(experiment))) {
    if (key.path.empty()) continue;
    paths.insert(key.path);
    const size_t dot = key.path.rfind('.');
    if (!key.kind.empty() && dot != std::string::npos) {
      paths.insert(key.path.substr(0, dot) + ".type");
    }
  }
  for (const EmbeddedFile& file : model_files()) {
    for (const auto& parameter : summarize(file).parameters) {
      paths.insert("model." + parameter.name.text);
    }
  }
  std::string out;
  for (const std::string& path : paths) out += " " + path;
  return out;
}

std::string script() {
  std::string names, cases;
  Values values;
  for (const CommandRow& row : commands()) {
    names += std::string(" ") + row.name;
    const std::string words = words_of(row, values).substr(1);
    cases += fmt::format("    {}) {} ;;\n", row.name,
                         row.name == std::string_view("list") ? list_case(words)
                                                              : fmt::format("words=\"{}\"", words));
  }
  return fmt::format(R"(_dltrain() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" words="" word
  local before="${{COMP_WORDS[COMP_CWORD - 1]}}" files='!*.y*ml'  # which are left out
  if [ "$COMP_CWORD" -gt 2 ]; then files=""; fi  # a value of a flag, or a later argument
  case "$before" in
    -s | --set) COMPREPLY=($(compgen -S = -W "{}" -- "$current")); return ;;
  esac
  if [ "$command" = launch ]; then  # the flags of train follow its own
    for word in "${{COMP_WORDS[@]:2}}"; do
      case "$word" in *.y*ml | train | --) command=train ;; esac
    done
  fi
  case "$command" in
{}    *) words="{}" ;;
  esac
  case "$before" in
{}  esac
  if [ "$COMP_CWORD" -eq 1 ] && [[ "$current" != -* ]]; then words="{}"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ "$files" = none ]; then return; fi
  local IFS=$'\n' slash=/  # names may have blanks
  if [ ${{#COMPREPLY[@]}} -eq 0 ] && compopt -o filenames 2> /dev/null; then slash=""; fi  # quotes names and adds slashes
  COMPREPLY+=($(compgen -d -S "$slash" -- "$current"))
  for word in $(compgen -f -X "$files" -- "$current"); do
    [ -d "$word" ] || COMPREPLY+=("$word")
  done
}}
complete -o nospace -F _dltrain dltrain
)",
                     keys().substr(1), cases, words_of(commands()[0], values).substr(1),
                     value_cases(values), names.substr(1));
}

}  // namespace

CommandBody add_completion(CLI::App& command) {
  auto shell = std::make_shared<std::string>("bash");
  command.add_option("SHELL", *shell, "bash or zsh")->check(CLI::IsMember({"bash", "zsh"}));
  return [shell] {
    if (*shell == "zsh") std::puts("autoload -U +X bashcompinit && bashcompinit");
    std::fputs(script().c_str(), stdout);
    return ExitCode::ok;
  };
}

}  // namespace dltrain
