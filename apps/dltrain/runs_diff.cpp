// dltrain runs diff A B and dltrain runs reproduce RUN.
#include <algorithm>
#include <cmath>

#include "base/stop.h"
#include "base/utf8.h"
#include "base/verified_files.h"
#include "base/version.h"
#include "checkpoint/run_folder.h"
#include "config/diff.h"
#include "dltrain/commands.h"
#include "run/run.h"
#include "run/run_record.h"
#include "tensor/safetensors_set.h"

namespace dltrain {
namespace {

// The first difference between the curves of two runs, if any.
struct Parting {
  size_t common = 0;  // logged steps that both have, before it
  std::optional<std::pair<RunPoint, RunPoint>> at;
};

Parting compare_curves(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::map<int64_t, RunPoint> other;
  for (const RunPoint& point : read_curve(b)) other[point.step] = point;
  Parting out;
  for (const RunPoint& x : read_curve(a)) {
    const auto found = other.find(x.step);
    if (found == other.end()) continue;
    const RunPoint& y = found->second;
    const auto same = [](double p, double q) { return p == q || (std::isnan(p) && std::isnan(q)); };
    if (!same(x.loss, y.loss) || !same(x.grad_norm, y.grad_norm)) {
      out.at = {x, y};
      return out;
    }
    ++out.common;
  }
  return out;
}

std::string describe(const Parting& parting) {
  if (parting.at) {
    const auto& [x, y] = *parting.at;
    return fmt::format(
        "losses part at step {}: {:.9g} and {:.9g} (gradient norms {:.9g} and {:.9g}"
        "), after {} equal ones",
        x.step, x.loss, y.loss, x.grad_norm, y.grad_norm, parting.common);
  }
  if (parting.common == 0) return "the runs have no logged step in common";
  return fmt::format("losses and gradient norms are equal in all {} logged steps that both have",
                     parting.common);
}

// Compares by tensors: runs of other numbers of ranks divide them into other files.
bool same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const SafetensorsSet x(a, ExitCode::storage), y(b, ExitCode::storage);
  return x.tensors().size() == y.tensors().size() &&
         std::ranges::all_of(x.tensors(), [&](const SafetensorsSet::Tensor& tensor) {
           const auto* other = y.find(tensor.entry->name);
           return other != nullptr && other->entry->spec == tensor.entry->spec &&
                  std::ranges::equal(tensor.file->data(*tensor.entry),
                                     other->file->data(*other->entry));
         });
}

// Compares the newest checkpoints if their steps are equal, and prints the result. Returns nothing,
// and prints the reason, if they cannot be compared.
std::optional<bool> compare_weights(const std::filesystem::path& a,
                                    const std::filesystem::path& b) {
  std::string reason;
  try {
    const ResumeChoice x = find_checkpoint(a), y = find_checkpoint(b);
    if (x.state.step != y.state.step) {
      fail(ExitCode::storage, "the last checkpoints are of steps {} and {}", x.state.step,
           y.state.step);
    }
    const auto weights = [](const ResumeChoice& choice) {
      Checksums files = verify_checksums(choice.checkpoint);
      std::erase_if(files, [](const auto& file) { return !file.first.starts_with("model"); });
      return files;
    };
    const bool same = weights(x) == weights(y) || same_tensors(x.checkpoint, y.checkpoint);
    fmt::print("weights of the last checkpoints: {}\n", same ? "bit-identical" : "different");
    return same;
  } catch (const Error& error) {
    reason = error.what();
  }
  // What follows is advice on other checkpoints.
  fmt::print("weights were not compared: {}\n", printable(reason.substr(0, reason.find("; "))));
  return std::nullopt;
}

// Prints what the last starts of two runs were made with, where that differs.
void print_made_with(const RunRecord& a, const RunRecord& b) {
  std::vector<ConfigDifference> other;
  const auto compare = [&](const char* name, const std::string& x, const std::string& y) {
    if (x != y) other.push_back({name, x, y});
  };
  if (!a.attempts.empty() && !b.attempts.empty()) {
    const RunAttempt &x = a.attempts.back(), &y = b.attempts.back();
    compare("revision", x.revision, y.revision);
    compare("device", x.device, y.device);
    compare("host", x.host, y.host);
    compare("ranks", std::to_string(x.ranks), std::to_string(y.ranks));
    compare("threads", std::to_string(x.threads), std::to_string(y.threads));
    compare("data", x.data, y.data);
  }
  if (!other.empty()) fmt::print("made with:\n{}\n", describe_differences(other));
}

ExitCode diff_runs(const std::string& first, const std::string& second) {
  const RunRecord a = read_run(run_folder_given(first)), b = read_run(run_folder_given(second));
  auto differences = diff_dumps(a.config, b.config);
  fmt::print("{}", differences.empty() ? "settings: equal\n" : "settings:\n");
  if (!differences.empty()) fmt::print("{}\n", describe_differences(differences));
  print_made_with(a, b);
  std::vector<ConfigDifference> results;
  for (const auto& [key, value] : a.figures) {
    const auto found = b.figures.find(key);
    const bool result = key == "steps" || key == "accuracy" || key.find("eval_") != key.npos ||
                        key == "loss" || key == "step_ms_median" || key == "peak_rss_mib";
    if (!result || found == b.figures.end() || found->second == value) continue;
    results.push_back({key, fmt::format("{:.9g}", value), fmt::format("{:.9g}", found->second)});
  }
  if (!results.empty()) fmt::print("results:\n{}\n", describe_differences(results));
  fmt::print("{}\n", describe(compare_curves(a.folder, b.folder)));
  compare_weights(a.folder, b.folder);
  return ExitCode::ok;
}

struct ReproduceOptions {
  std::string run, folder;
  bool quiet = false;
};

ExitCode reproduce(const ReproduceOptions& options) {
  const RunRecord run = read_run(run_folder_given(options.run));
  const auto changed = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(run.folder)) {
      if (entry.path().filename().string().starts_with("config.until-step-")) return entry.path();
    }
    return std::filesystem::path();
  }();
  if (!changed.empty()) {
    fail(ExitCode::usage,
         "{}: settings changed in mid-run ({}), so config.yaml alone does not "
         "repeat it",
         run.folder.string(), changed.filename().string());
  }
  const std::string folder =
      options.folder.empty() ? run.folder.string() + "-reproduced" : options.folder;
  if (std::filesystem::exists(folder)) {
    fail(ExitCode::usage, "{} exists; remove it, or name another folder with --output-dir", folder);
  }
  ConfigOptions config;
  config.files = {(run.folder / "config.yaml").string()};
  Experiment experiment = config.load();
  if (!run.attempts.empty() && run.attempts.back().ranks > 1) {
    const int64_t ranks = run.attempts.back().ranks;
    std::string off;  // as below
    if (experiment.hooks.any()) off += " -s hooks=null";
    if (!experiment.logging.prometheus.empty()) off += " -s 'logging.prometheus=\"\"'";
    if (experiment.logging.wandb) off += " -s logging.wandb=null";
    fail(ExitCode::usage,
         "the run had {} ranks: start `dltrain launch --nproc-per-node {} {}/config.yaml "
         "--output-dir {}{}`, then `dltrain runs diff {} {}`",
         ranks, ranks, run.folder.string(), folder, off, run.folder.string(), folder);
  }
  if (!run.attempts.empty()) {
    const RunAttempt& a = run.attempts.back();
    if (a.revision != git_revision()) {
      print_message(fmt::format("the run was made by revision {}, this program is {}", a.revision,
                                git_revision()));
    }
  }
  install_stop_handlers();
  // Nothing outside of the new folder is written.
  experiment.hooks = HooksConfig();
  experiment.logging.prometheus.clear();
  experiment.logging.wandb.reset();
  RunOptions again;
  again.engines = engines();
  again.folder = folder;
  again.command = command_line();
  again.quiet = options.quiet;
  again.go_on = fmt::format("remove {} to start again", folder);
  const ExitCode code = run_training(experiment, again);
  if (code != ExitCode::ok) return code;
  print_made_with(run, read_run(folder));
  const Parting parting = compare_curves(run.folder, folder);
  fmt::print("{}\n", describe(parting));
  const auto same = compare_weights(run.folder, folder);
  const bool differs = parting.at || parting.common == 0 || !same.value_or(true);
  fmt::print("{}\n", differs ? "not reproduced"
                     : same  ? "reproduced"
                             : "only the logged losses are reproduced: no weights were compared");
  return !differs && same ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

CommandBody add_runs_diff(CLI::App& command) {
  auto runs = std::make_shared<std::array<std::string, 2>>();
  command.add_option("A", (*runs)[0], "A run folder")->required();
  command.add_option("B", (*runs)[1], "Another one")->required();
  return [runs] { return diff_runs((*runs)[0], (*runs)[1]); };
}

CommandBody add_runs_reproduce(CLI::App& command) {
  auto options = std::make_shared<ReproduceOptions>();
  command.add_option("RUN", options->run, "The run folder")->required();
  add_text(command, "--output-dir", options->folder,
           "The folder of the new run (default: that of the run with -reproduced)");
  command.add_flag("-q,--quiet", options->quiet, "Only warnings, errors and the comparison");
  return [options] { return reproduce(*options); };
}

}  // namespace dltrain
