// The subcommands: one file each, all listed in commands() (main.cpp). A command adds its options
// to a CLI11 subcommand and returns what to run when it was chosen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "compile/traffic.h"
#include "train/engines.h"
#include "train/experiment.h"
#include "train/session.h"

namespace dltrain {

// What a command does; may throw Error.
using CommandBody = std::function<ExitCode()>;

struct CommandRow {
  const char* name;
  const char* doc;
  CommandBody (*add)(CLI::App& command);
  bool alone = false;  // one process does it: refused where a launcher has started several
};

CommandBody add_train(CLI::App& command);
CommandBody add_launch(CLI::App& command);
CommandBody add_plan(CLI::App& command);
CommandBody add_profile(CLI::App& command);
CommandBody add_check(CLI::App& command);
CommandBody add_eval(CLI::App& command);
CommandBody add_data(CLI::App& command);
CommandBody add_predict(CLI::App& command);
CommandBody add_export(CLI::App& command);
CommandBody add_import(CLI::App& command);
CommandBody add_generate(CLI::App& command);
CommandBody add_list(CLI::App& command);
CommandBody add_schema(CLI::App& command);
CommandBody add_init(CLI::App& command);
CommandBody add_version(CLI::App& command);
CommandBody add_completion(CLI::App& command);

// The table, in the order of `dltrain --help`.
const std::vector<CommandRow>& commands();

// Puts the name of the command that is meant before arguments that begin with none: `train`.
std::vector<std::string> with_command(std::vector<std::string> arguments);

// Takes what follows the launcher's own flags off the arguments of `dltrain launch`, for the ranks.
void keep_rank_arguments(const CLI::App& launch, std::vector<std::string>& arguments);

// Reads the arguments of a `dltrain train` whose ranks `start` starts: mistakes in them and in the
// configuration are told here, once. `ranks`: of the run; 0: not known yet. Options that start
// nothing (--dry-run, --print-config, --help) are done here. Returns what `start` returns.
ExitCode train_launched(const std::vector<std::string>& arguments, int ranks,
                        const std::function<int()>& start);

// The arguments of this process, as they came.
const std::vector<std::string>& command_line();

// The engines of this program.
Engines engines();

// The options that name a configuration, shared by train, plan, check and eval.
struct ConfigOptions {
  std::vector<std::string> files, also_files, sets;
  std::string device, autotune, name;
  std::optional<int64_t> seed, max_steps;

  // `files`: what the positional arguments are called, and what they are.
  void add_to(
      CLI::App& command, const char* name_of_files = "CONFIG",
      const char* about_files = "Experiment files (YAML); later ones override earlier ones");
  bool empty() const { return files.empty() && also_files.empty(); }
  // Loads, with `extra` overrides after the person's own, and what `change` then makes of the tree;
  // with it there may be no file. Throws ConfigError.
  Experiment load(const std::vector<std::string>& extra = {},
                  const std::function<void(ConfigNode&)>& change = {}) const;
};

struct PlanRequest {
  int world = 1;           // data-parallel ranks
  int ranks_per_node = 0;  // 0: all are on one
  bool passes = false;     // print the graph after each, too
  // The ranks are not there: each will have its share of the CPUs, of which this process has all.
  bool on_paper = true;
  Rates rates = {};
};

// What `dltrain plan` prints. `also` is called with the compiled session at the end.
void print_plan(Experiment& experiment, const PlanRequest& request,
                const std::function<void(const Session&)>& also = {});

// One line or several to stderr, marked with the rank where there are several whose lines nobody
// else marks.
void tell(const std::string& text);
// The same by the first of several ranks alone, or by the launcher that starts them.
void tell_once(const std::string& text);

// An option that names a file or folder: an empty text is refused.
CLI::Option* add_path(CLI::App& command, const std::string& names, std::string& path,
                      const std::string& doc);
// The same of a file to write, which must be none of the inputs.
CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& path,
                        const std::string& doc);

// For CLI::App::failure_message: the error, and the nearest flag to one that is not known.
std::string usage_message(const CLI::App* app, const CLI::Error& error);
// "; did you mean dltrain train?" of a word that is no command, or all commands.
std::string command_hint(const std::string& wrong);

}  // namespace dltrain
