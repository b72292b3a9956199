// dltrain: reads the command line, runs one command, and turns errors into messages and exit codes.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/shortened_files.h"
#include "comm/environment.h"
#include "config/diagnostics.h"
#include "cpu/engine.h"
#include "dltrain/commands.h"
#include "launch/signal_source.h"
#include "reference/engine.h"
#include "runtime/remote_error.h"
#include "telemetry/log.h"

namespace dltrain {

namespace {
std::vector<std::string> given_arguments;
}  // namespace

const std::vector<std::string>& command_line() {
  return given_arguments;
}

Engines engines() {
  return {.cpu = &cpu_engine(), .reference = &reference_engine()};
}

const std::vector<CommandRow>& commands() {
  static const std::vector<CommandRow> table{
      {"train", "Train a model; the default command", add_train},
      {"launch", "Start the ranks of a run on one node or several, with torchrun's flags",
       add_launch},
      {"check", "Sanity checks of configuration, data, gradients and resume", add_check, true},
      {"plan", "Print memory, FLOP and shapes without running anything", add_plan, true},
      {"fit", "Print the micro-batches that fit, and the best of them, from plans", add_fit, true},
      {"lr-find", "Find a learning rate by a short training with a growing one", add_lr_find, true},
      {"sweep", "Train with many values of some keys, and rank the results", add_sweep, true},
      {"profile", "Measure where the time of a step goes: table and Chrome trace", add_profile},
      {"eval", "Evaluate a checkpoint", add_eval, true},
      {"predict", "Write the predictions of a checkpoint as CSV or JSONL", add_predict, true},
      {"average", "Average the weights of several checkpoints", add_average, true},
      {"export", "Export a trained model as a Hugging Face folder", add_export, true},
      {"import", "Check a Hugging Face folder and prepare it for training", add_import, true},
      {"generate", "Continue texts with a trained language model", add_generate, true},
      {"score", "Compute how likely a language model finds continuations of texts", add_score,
       true},
      {"runs", "List runs, show one, compare two (diff), repeat one (reproduce)", add_runs, true},
      {"report", "Write runs as an HTML page: curves, tables, model, settings", add_report, true},
      {"watch", "Serve the report of a run on 127.0.0.1, which follows the training", add_watch,
       true},
      {"data",
       "Look at data (inspect, show), prepare images and texts (prepare), learn a vocabulary "
       "(tokenizer)",
       add_data, true},
      {"init", "Write a commented starting configuration", add_init, true},
      {"list", "List layers, losses, optimizers, data sets, ops, devices, and the keys of each",
       add_list},
      {"schema", "Print the JSON Schema of experiment files, for editors", add_schema},
      {"completion", "Print the tab completion for bash or zsh", add_completion},
      {"version", "Print the version and the libraries", add_version}};
  return table;
}

// `dltrain --config exp.yaml` and `dltrain exp.yaml` mean `dltrain train …`.
std::vector<std::string> with_command(std::vector<std::string> arguments) {
  if (arguments.empty()) return {"--help"};
  const std::string& first = arguments[0];
  if (first == "--version") return {"version"};
  if (first == "help") return {"--help"};
  const bool help = first == "-h" || first == "--help";
  const auto& table = commands();
  const bool named = std::any_of(table.begin(), table.end(),
                                 [&](const CommandRow& row) { return first == row.name; });
  std::error_code ignored;
  const bool file = first.ends_with(".yaml") || first.ends_with(".yml") ||
                    std::filesystem::exists(first, ignored);
  if (help || named) return arguments;
  if (!first.starts_with("-") && !file) {
    fail(ExitCode::usage, "'{}' is neither a command nor a file{}", first, command_hint(first));
  }
  arguments.insert(arguments.begin(), "train");
  return arguments;
}

namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 internal error; 2 configuration or usage; 3 data; 4 diverged;\n"
    "5 memory; 6 a rank was lost; 7 storage; 8 device; 9 a check failed; 75 stopped by a\n"
    "signal, time limit or --stop-at: --resume auto continues (a sweep: the same command).\n";

int run_main(int argc, char** argv) {
  CLI::App app{"dltrain trains neural networks from declarative YAML files"};
  app.name("dltrain");
  app.footer(kFooter);
  app.failure_message(usage_message);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, CommandBody>> bodies;
  for (const CommandRow& row : commands()) {
    CLI::App* command = app.add_subcommand(row.name, row.doc);
    bodies.emplace_back(command, row.add(*command));
  }
  given_arguments.assign(argv + 1, argv + argc);
  std::vector<std::string> arguments = with_command(given_arguments);
  if (arguments[0] == "launch") keep_rank_arguments(*app.get_subcommand("launch"), arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return static_cast<int>(status == 0 ? ExitCode::ok : ExitCode::usage);
  }
  for (size_t i = 0; i < bodies.size(); ++i) {
    const auto& [command, body] = bodies[i];
    if (!command->parsed()) continue;
    if (commands()[i].alone && rank_environment(process_environment()).distributed()) {
      fail(ExitCode::usage, "`dltrain {}` runs on one rank; start it without a launcher",
           commands()[i].name);
    }
    set_up_log({}, console());
    return static_cast<int>(body());
  }
  return static_cast<int>(ExitCode::usage);
}

// Opens closed standard streams, so that no other file gets their numbers. Reading and writing them
// fail.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Prints the error on stderr. Returns the exit code.
ExitCode print_exception(const std::exception& error) {
  if (std::ferror(stdout)) {
    print_message(
        fmt::format("dltrain: error: cannot write to the standard output: {}", error.what()));
    return ExitCode::storage;
  }
  const ExitCode code = exit_code_of(error);
  if (dynamic_cast<const ConfigError*>(&error)) {
    print_message(error.what());  // every line contains its place
  } else if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    print_message(
        fmt::format("dltrain: error: {}: {}", file->path1().string(), file->code().message()));
  } else if (dynamic_cast<const std::bad_alloc*>(&error)) {
    print_message("dltrain: error: out of memory");
  } else {
    print_message(fmt::format("dltrain: {}error: {}",
                              dynamic_cast<const Error*>(&error) ? "" : "internal ", error.what()));
  }
  return code;
}

}  // namespace
}  // namespace dltrain

int main(int argc, char** argv) {
  using namespace dltrain;
  try {
    hold_standard_streams();
    // A launcher that is stopped before it has started ranks prints the same message as later.
    if (argc > 1 && std::string(argv[1]) == "launch") end_on_interruption();
    // Exceeding the file size limit is a failed write, with path and reason.
    std::signal(SIGXFSZ, SIG_IGN);
    const int code = run_main(argc, argv);
    check_mapped_files();
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    throw std::system_error(errno, std::generic_category());
  } catch (const std::exception& error) {
    return static_cast<int>(print_exception(error));
  }
}
