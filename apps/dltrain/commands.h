// The subcommands: one file each, listed in commands() (main.cpp). A command adds its options to a
// CLI11 subcommand and returns the function that runs it.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "compile/traffic.h"
#include "dltrain/plan_checkpoint.h"
#include "experiment/experiment.h"
#include "run/engines.h"
#include "run/run_record.h"
#include "run/session.h"

namespace dltrain {

// Runs a command; may throw Error.
using CommandBody = std::function<ExitCode()>;

struct CommandRow {
  const char* name;
  const char* doc;
  CommandBody (*add)(CLI::App& command);
  bool alone = false;  // runs in one process: refused if a launcher has started several
};

CommandBody add_train(CLI::App& command);
CommandBody add_launch(CLI::App& command);
CommandBody add_plan(CLI::App& command);
CommandBody add_fit(CLI::App& command);
CommandBody add_lr_find(CLI::App& command);
CommandBody add_sweep(CLI::App& command);
CommandBody add_watch(CLI::App& command);
CommandBody add_profile(CLI::App& command);
CommandBody add_check(CLI::App& command);
CommandBody add_eval(CLI::App& command);
CommandBody add_report(CLI::App& command);
CommandBody add_runs(CLI::App& command);
// The run folder `folder`, or runs/`folder`. Throws Error(storage) if neither is one, and for the
// folder of a sweep.
std::filesystem::path run_folder_given(const std::string& folder);
bool is_sweep(const std::filesystem::path& folder);
// Throws Error(storage) with the way to its runs if the folder is that of a sweep.
void refuse_sweep(const std::filesystem::path& folder);
// The runs in and below folders, each once. Throws Error(storage) for one that is no folder or, if
// `required`, has no runs.
std::vector<RunRecord> read_runs(const std::vector<std::string>& folders, bool required);
CommandBody add_runs_diff(CLI::App& command);
CommandBody add_runs_reproduce(CLI::App& command);
CommandBody add_data(CLI::App& command);
CommandBody add_data_inspect(CLI::App& command);
CommandBody add_data_show(CLI::App& command);
CommandBody add_data_prepare(CLI::App& command);
CommandBody add_data_tokenizer(CLI::App& command);
CommandBody add_predict(CLI::App& command);
CommandBody add_average(CLI::App& command);
CommandBody add_export(CLI::App& command);
CommandBody add_import(CLI::App& command);
CommandBody add_generate(CLI::App& command);
CommandBody add_score(CLI::App& command);
CommandBody add_list(CLI::App& command);
CommandBody add_schema(CLI::App& command);
CommandBody add_init(CLI::App& command);
CommandBody add_version(CLI::App& command);
CommandBody add_completion(CLI::App& command);

// A command that consists of subcommands.
CommandBody add_parts(CLI::App& command, const std::vector<CommandRow>& rows);

// The table, in the order of `dltrain --help`.
const std::vector<CommandRow>& commands();

// Inserts the default command, `train`, if the arguments name none.
std::vector<std::string> with_command(std::vector<std::string> arguments);

// Removes the arguments of the ranks, which follow the launcher's flags, from those of `dltrain
// launch`, and keeps them.
void keep_rank_arguments(const CLI::App& launch, std::vector<std::string>& arguments);

// Starts the ranks of a run (launch/launcher.h) and returns the exit code.
struct LaunchedRun;
using StartRanks = std::function<int(const LaunchedRun& run)>;

// Parses the arguments of a `dltrain train` whose ranks are started by `start`, so that errors in
// them and in the configuration are reported once. `ranks`: number of ranks; 0: unknown. Options
// that start no ranks (--dry-run, --print-config, --help) are executed. Returns the result of
// `start`.
ExitCode train_launched(const std::vector<std::string>& arguments, int ranks,
                        const StartRanks& start);

// The arguments of this process.
const std::vector<std::string>& command_line();

// The engines of this program.
Engines engines();
// Opens the first GPU; returns nullptr with the reason in `why` if none can be used.
std::unique_ptr<Device> open_first_gpu(std::string& why);

// The options that name a configuration, shared by train, plan, check and eval.
struct ConfigOptions {
  std::vector<std::string> files, also_files, sets;
  std::string device, autotune, name;
  std::optional<int64_t> seed, max_steps;

  // Reading data needs no device and no name, and only training a number of steps.
  enum class Use { data, model, training };
  // `name_of_files` and `about_files`: name and description of the positional arguments.
  void add_to(
      CLI::App& command, Use use, const char* name_of_files = "CONFIG",
      const char* about_files = "Experiment files (YAML); later ones override earlier ones");
  bool empty() const { return files.empty() && also_files.empty(); }
  // The same options for another process, without name and seed.
  std::vector<std::string> arguments() const;
  // Loads the configuration. `extra`: overrides applied after the user's. `change` modifies the
  // tree; with it, files are optional. Throws ConfigError.
  Experiment load(const std::vector<std::string>& extra = {},
                  const std::function<void(ConfigNode&)>& change = {}) const;
};

struct PlanRequest {
  int world = 1;           // data-parallel ranks
  int ranks_per_node = 0;  // 0: all are on one node
  bool passes = false;     // print the graph after each pass
  bool frontier = false;   // print memory against time of recomputation instead of the plan
  bool movement = false;   // print the bytes that kernels move instead
  // The ranks do not exist: each would have a share of this process's CPUs.
  bool unconnected = true;
  bool on_this_machine = false;  // the ranks share its memory
  MachineRates rates = {};
  StorageRates storage = {};
  std::string timeline = {};   // the file for a trace of the estimated step; empty: none
  std::vector<Gpu> gpus = {};  // plan for these instead of the device; several: a line for each
};

using LoadExperiment = std::function<Experiment(const std::vector<std::string>& overrides)>;
// Prints the fastest layouts of `request.world` ranks on the first of `request.gpus` that fit:
// data, tensor and pipeline ranks, ZeRO stage, micro-batch and recomputation, for the same global
// batch. Estimates order all of them; in this order the first are planned, with exact memory.
// Throws Error(memory) if none fits.
void search_layouts(const LoadExperiment& load, const PlanRequest& request);
// The settings of the fastest layout, and a line about it. Throws like search_layouts(), and
// ConfigError for a micro_batch_size on which losses do not depend, or none where they do.
struct FastestLayout {
  std::vector<std::string> overrides;
  std::string summary;
};
FastestLayout fastest_layout(const LoadExperiment& load, const PlanRequest& request);
// If parallelism.layout of the experiment is auto and there are several ranks, loads it with the
// layout that is fastest by `rates`, or without rates.gpu by those of this machine. The leader
// chooses; the others get its choice from the store, where the ranks have one. Returns on the
// leader the line about it. Throws ConfigError for settings that the choice would replace, and
// where losses would depend on it.
std::string choose_layout(Experiment& experiment, const LoadExperiment& load, const RunRanks& ranks,
                          MachineRates rates = {});
// Opens the session of rank 0 of a plan for GPUs that need not be there, or for this machine.
Session open_planned(Experiment& experiment, int world, int ranks_per_node,
                     const std::optional<Gpu>& gpu, const std::optional<DataSplit>& data,
                     bool evaluation = false);

// Prints memory and time of all kinds of recomputation that `dltrain plan --frontier` compares.
void print_frontier(Experiment& experiment, SessionOptions options);
// Prints the memory traffic of a step by kind of kernel, with and without fusion.
void print_movement(Experiment& experiment, SessionOptions options);

// Prints the plan. `also` is called with the compiled session at the end. Returns ExitCode::memory
// if it does not fit the GPU or this machine, with what would need less.
ExitCode print_plan(Experiment& experiment, const PlanRequest& request,
                    const std::function<void(Session&)>& also = {});

// Prints lines on stderr, prefixed with the rank unless there is one rank or the launcher does
// that.
void print_message(const std::string& text);
// Prints likewise, but only on rank 0, or in the launcher.
void print_message_once(const std::string& text);

// Adds an option for a path or a name; an empty text is refused.
CLI::Option* add_text(CLI::App& command, const std::string& names, std::string& value,
                      const std::string& doc);
// Adds an option for a number from `low` to `high`.
template <typename T, typename Limit>
CLI::Option* add_number(CLI::App& command, const std::string& names, T& value, Limit low,
                        Limit high, const std::string& doc) {
  return command.add_option(names, value, doc)->check(CLI::Range(low, high))->take_last();
}
// Throws Error(usage) if the ranks need more than one node and do not fill all of them.
void check_nodes(int world, int ranks_per_node);
// Adds --link and --node-link, and returns them.
std::array<CLI::Option*, 2> add_links(CLI::App& command, MachineRates& rates);
// Adds an option for a file to write. It must be none of the inputs, no file that dltrain
// has written as part of a run (but with `of_run` a summary.json) and, as a result, no
// configuration.
CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& path,
                        const std::string& doc, bool of_run = false);
// A check for CLI11, which clips integers to 64 bits: returns an error for one that is negative or
// too large.
std::string whole_number(const std::string& text);

// The registries that `dltrain list` knows, each with the names that it lists the keys of.
std::map<std::string, std::vector<std::string>> list_families();

// For CLI::App::failure_message: the error, with the nearest flag to an unknown one.
std::string usage_message(const CLI::App* app, const CLI::Error& error);
// Returns "; did you mean dltrain train?" for an unknown command, or the list of all commands.
std::string command_hint(const std::string& wrong);

}  // namespace dltrain
