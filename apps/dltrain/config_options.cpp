#include <filesystem>
#include <mutex>
#include <set>

#include "config/load.h"
#include "config/paths.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

// Prints each warning once: many commands load a configuration several times, some in threads.
void print_warning(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (printed.insert(text).second) print_message_once("warning: " + text);
}

}  // namespace

void ConfigOptions::add_to(CLI::App& command, Use use, const char* name_of_files,
                           const char* about_files) {
  command.add_option(name_of_files, files, about_files);
  command.add_option("-c,--config", also_files, "The same as CONFIG")->type_name("FILE");
  command.add_option("-s,--set", sets, "Set one key: -s optimizer.learning_rate=3e-4")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  if (use != Use::data) {
    add_text(command, "--device", device, "auto, cpu, cuda or cuda:<index>");
    add_text(command, "--autotune", autotune, "off, quick or full: timing of algorithms on a GPU");
    add_text(command, "--name", name, "Name of the run");
  }
  command.add_option("--seed", seed, "Seed of weights, data order and dropout")
      ->check(whole_number)
      ->take_last();
  if (use != Use::training) return;
  command
      .add_option("--max-steps", max_steps, "Steps of the run; replaces max_steps or num_epochs")
      ->check(whole_number)
      ->take_last();
}

std::vector<std::string> ConfigOptions::arguments() const {
  std::vector<std::string> out;
  for (const auto* list : {&files, &also_files}) {
    for (const std::string& file : *list) out.insert(out.end(), {"--config", file});
  }
  for (const std::string& set : sets) out.insert(out.end(), {"-s", set});
  if (!device.empty()) out.insert(out.end(), {"--device", device});
  if (!autotune.empty()) out.insert(out.end(), {"--autotune", autotune});
  if (max_steps) out.insert(out.end(), {"--max-steps", std::to_string(*max_steps)});
  return out;
}

Experiment ConfigOptions::load(const std::vector<std::string>& extra,
                               const std::function<void(ConfigNode&)>& change) const {
  ConfigInputs inputs;
  for (const auto* list : {&files, &also_files}) {
    inputs.files.insert(inputs.files.end(), list->begin(), list->end());
  }
  if (inputs.files.empty() && !change) {
    fail(ExitCode::usage,
         "no configuration given: name an experiment file (exp.yaml); dltrain init writes one");
  }
  for (const std::filesystem::path& file : inputs.files) {
    if (file.string().find('=') == std::string::npos || std::filesystem::exists(file)) continue;
    fail(ExitCode::usage, "there is no file '{0}'; a key is set with -s {0}", file.string());
  }
  inputs.overrides = sets;
  if (!device.empty()) inputs.overrides.push_back("--device device=" + device);
  if (!autotune.empty()) inputs.overrides.push_back("--autotune autotune=" + autotune);
  if (!name.empty()) inputs.overrides.push_back("--name name=" + name);
  if (seed) inputs.overrides.push_back(fmt::format("--seed seed={}", *seed));
  if (max_steps) {
    inputs.overrides.push_back(fmt::format("--max-steps training.max_steps={}", *max_steps));
  }
  inputs.overrides.insert(inputs.overrides.end(), extra.begin(), extra.end());

  Diagnostics diagnostics;
  Experiment experiment;
  auto tree = load_tree(inputs, diagnostics);
  if (tree) refuse_outputs(*tree);  // before `change`, which may replace the data
  if (tree && tree->find("layers") != nullptr && tree->find("model") == nullptr &&
      !inputs.files.empty()) {
    const std::string name = std::filesystem::path(inputs.files.front()).stem();
    diagnostics.add_cause(
        tree->location,
        fmt::format("this file describes a model, not an experiment: `model: "
                    "{{type: {}}}` in an experiment takes it (`dltrain list models`)",
                    name));
    diagnostics.throw_if_any();
  }
  // The length of the run given beside the files replaces theirs, in steps or in epochs.
  const auto is_set = [&](const char* key) {
    return std::any_of(inputs.overrides.begin(), inputs.overrides.end(),
                       [&](const std::string& text) { return text.starts_with(key); });
  };
  const bool steps = max_steps || is_set("training.max_steps="),
             epochs = is_set("training.num_epochs=");
  ConfigNode* training = tree ? tree->find("training") : nullptr;
  if (training != nullptr && (max_steps || (steps && !epochs))) training->erase("num_epochs");
  if (training != nullptr && epochs && !steps) training->erase("max_steps");
  if (tree && change) change(*tree);
  if (tree) bind(experiment, *tree, diagnostics);
  diagnostics.throw_if_any();
  for (const std::string& warning : diagnostics.warnings()) print_warning(warning);
  return experiment;
}

}  // namespace dltrain
