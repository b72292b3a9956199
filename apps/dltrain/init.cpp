// dltrain init [TEMPLATE]: a commented configuration to start from.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "config/scalar.h"
#include "data/csv.h"
#include "dltrain/commands.h"
#include "dltrain/template_files.h"

namespace dltrain {
namespace {

// "a small convolutional network on a folder of images with a sub-folder for each class"
std::string template_summary(const EmbeddedFile& file) {
  const size_t begin = file.text.find_first_not_of("# ");
  std::string out(file.text.substr(begin, file.text.find('\n', begin) - begin));
  out.resize(std::min(out.find(". "), out.size()));  // the first sentence
  if (out.ends_with('.')) out.pop_back();
  if (out.starts_with("A ") || out.starts_with("An ")) out[0] = 'a';
  return out;
}

// Replaces the line of `text` that begins with `begin`.
void replace_line(std::string& text, const std::string& begin, const std::string& line) {
  const size_t at = text.find("\n" + begin) + 1;
  text.replace(at, text.find('\n', at) - at, line);
}

// Returns the path for a configuration: relative to its folder if the data lies in that.
std::string path_beside(const std::string& config, const std::string& data) {
  if (config.empty() || std::filesystem::path(data).is_absolute()) return data;
  const auto normal = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal();
  };
  const auto beside = normal(data).lexically_relative(normal(config).parent_path());
  return *beside.begin() == ".." ? data : beside.string();
}

std::string untargeted_rows(const CsvProposal& found) {
  return fmt::format("the target is missing in {} row{}; remove such rows first", found.untargeted,
                     found.untargeted == 1 ? "" : "s");
}

// Fills in the template for tables for a file.
std::string describe_table(std::string text, const std::string& path, const CsvProposal& found) {
  replace_line(text,
               "name:", "name: " + quoted_when_needed(std::filesystem::path(path).stem().string()));
  replace_line(text, "  path:", "  path: " + quoted_when_needed(path));
  replace_line(text, "  target:",
               "  target: " + quoted_when_needed(found.target) +
                   (found.untargeted > 0 ? "    # " + untargeted_rows(found) : ""));
  std::string ignore;
  for (const auto& [column, why] : found.ignore) {
    ignore += (ignore.empty() ? "" : "\n") +
              fmt::format("    - {:<20}  # {}", quoted_when_needed(column), why);
  }
  if (!ignore.empty()) replace_line(text, "  # ignore:", "  ignore:\n" + ignore);
  replace_line(
      text, "  eval_fraction:",
      fmt::format("  eval_fraction: 0.2        # hold 20 % out{}{}",
                  found.number || found.sorted ? "" : ", of each class",
                  found.sorted ? "\n  eval_split: tail          # the last rows: training must not "
                                 "see what comes later"
                  : found.dates ? "\n  # eval_split: tail        # the last rows: for rows in "
                                  "the order of time"
                                : ""));
  if (found.empty) {
    replace_line(text,
                 "  # empty:", "  empty: category           # the mean, and an input that says so");
  }
  if (found.number) {
    // The network computes near 0 and 1, a fixed layer brings that to the units of the target.
    replace_line(text, "loss:", "loss: {type: mse}");
    replace_line(text, "    - linear: auto",
                 fmt::format("    - linear: 1\n    # from standard units to those of the target: "
                             "fixed, by its standard "
                             "deviation and mean\n    - {{linear: 1, name: units, weight_init: "
                             "{{type: constant, value: "
                             "{0:.4g}}}, bias_init: {{type: constant, value: {1:.4g}}}}}",
                             found.std, found.mean));
    replace_line(text, "  max_grad_norm:", "  max_grad_norm: 1.0\n  freeze: [\"units.*\"]");
    replace_line(text, "evaluation:", "evaluation: {eval_steps: 100, metrics: [r2, mae]}");
  }
  return text;
}

}  // namespace

CommandBody add_init(CLI::App& command) {
  struct Options {
    std::string name = "mlp", output, data, target = "last";
    bool force = false;
  };
  auto options = std::make_shared<Options>();
  std::string doc = "What to start from:";
  std::vector<std::string> names;
  for (const EmbeddedFile& file : template_files()) {
    doc += fmt::format("\n{}: {}", file.name, template_summary(file));
    names.emplace_back(file.name);
  }
  command.add_option("TEMPLATE", options->name, doc)->check(CLI::IsMember(names));
  add_output(command, "-o,--output", options->output, "File to write; the terminal without it");
  command.add_option("--data", options->data,
                     "A CSV file that the configuration is written for (mlp)");
  command.add_option("--target", options->target,
                     "Its column to predict: last, first, a number from 0, or a name");
  command.add_flag("--force", options->force, "Overwrite the file");
  return [options] {
    const EmbeddedFile& file =
        *std::ranges::find(template_files(), options->name, &EmbeddedFile::name);
    std::string text(file.text),
        summary = fmt::format("{}: the template {}", options->output, file.name);
    if (options->data.empty() && options->target != "last") {
      fail(ExitCode::usage, "--target names a column of --data FILE, which is missing");
    }
    if (!options->data.empty()) {
      if (options->name != "mlp")
        fail(ExitCode::usage,
             "--data belongs to the template mlp, which becomes a "
             "regression for a column of numbers");
      const CsvProposal found = propose_csv(options->data, options->target);
      text = describe_table(text, path_beside(options->output, options->data), found);
      summary += fmt::format(" for {}, target '{}'", options->data, found.target);
      for (const auto& [column, why] : found.ignore) summary += "\n  left out: " + why;
      for (const std::string& why : found.left_out) summary += "\n  left out: " + why;
      if (found.untargeted > 0) summary += "\n  " + untargeted_rows(found);
    }
    if (options->output.empty()) {
      std::fputs(text.c_str(), stdout);
    } else if (std::filesystem::exists(options->output) && !options->force) {
      fail(ExitCode::usage, "{} exists; --force overwrites it", options->output);
    } else {
      write_file_atomically(options->output, text);
      fmt::print("{}\n", summary);
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain
