// dltrain completion bash|zsh: a script for `eval "$(dltrain completion bash)"`.
#include <cstdio>
#include <set>

#include "config/key_index.h"
#include "dltrain/commands.h"
#include "nn/model_files.h"

namespace dltrain {
namespace {

std::string options_of(const CLI::App& app) {
  std::string out;
  for (const CLI::App* part : app.get_subcommands({})) {
    out += " " + part->get_name() + options_of(*part);
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) out += " --" + name;
  }
  return out;
}

// The names of its parts, and all options.
std::string words_of(const CommandRow& row) {
  CLI::App app;
  row.add(app);
  return options_of(app);
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
  for (const CommandRow& row : commands()) {
    names += std::string(" ") + row.name;
    const std::string words = words_of(row).substr(1);
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
  if [ "$COMP_CWORD" -eq 1 ] && [[ "$current" != -* ]]; then words="{}"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ "$files" = none ]; then return; fi
  COMPREPLY+=($(compgen -d -S / -- "$current"))
  for word in $(compgen -f -X "$files" -- "$current"); do
    [ -d "$word" ] || COMPREPLY+=("$word")
  done
}}
complete -o nospace -F _dltrain dltrain
)",
                     keys().substr(1), cases, words_of(commands()[0]).substr(1), names.substr(1));
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
