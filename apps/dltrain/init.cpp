// dltrain init [TEMPLATE]: a commented configuration to start from.
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "config/scalar.h"
#include "data/csv.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

struct Template {
  const char* name;
  const char* doc;
  const char* text;
};

constexpr Template kTemplates[] = {
    {"mlp", "a multi-layer perceptron on a table",
     R"(# A multi-layer perceptron on a table. Every key: docs/config.md, or `dltrain schema`.
name: my-mlp
seed: 0

data:
  type: csv
  path: data.csv            # one sample a line, numbers or texts; plain or .gz
  target: last              # the column to predict: last, first, a number from 0, or its name
  # ignore: [Name]          # columns that are no inputs
  # empty: mean             # what empty cells mean; without this key they are errors
  normalize: auto           # every column of numbers to mean 0 and standard deviation 1
  eval_fraction: 0.2        # hold 20 % out, of each class

model:
  layers:                   # applied in order; `dltrain list layers` shows them all
    - linear: 128
    - relu
    - dropout: 0.1
    - linear: auto          # as many outputs as there are classes

loss: {type: cross_entropy} # mse, to predict a number
optimizer: {type: adamw, learning_rate: 1.0e-3, weight_decay: 0.01}
lr_scheduler: {type: cosine, warmup_steps: 50, min_ratio: 0.1}

training:
  global_batch_size: 32     # samples a step, on any number of ranks
  max_steps: 1000           # or num_epochs
  max_grad_norm: 1.0

evaluation: {eval_steps: 100}
checkpoint: {save_steps: 500}
)"},
    {"convnet", "a small convolutional network on images in a CSV file",
     R"(# A small convolutional network. Images are [height, width, channels].
name: my-convnet
seed: 0

data:
  type: csv
  path: data.csv
  target: last
  shape: [28, 28, 1]        # of one sample
  scale: 0.00392156862745098  # 1/255
  eval_fraction: 0.1

model:
  layers:
    - conv2d: {out_channels: 16, kernel_size: 3, padding: 1, bias: false}
    - batch_norm
    - relu
    - max_pool2d: 2
    - conv2d: {out_channels: 32, kernel_size: 3, padding: 1, bias: false}
    - batch_norm
    - relu
    - max_pool2d: 2
    - flatten
    - linear: auto          # as many outputs as there are classes

loss: {type: cross_entropy}
optimizer: {type: sgd, learning_rate: 0.1, momentum: 0.9, weight_decay: 5.0e-4}
lr_scheduler: {type: cosine, warmup_steps: 100}

training:
  global_batch_size: 64
  num_epochs: 10

evaluation: {eval_steps: 200}
checkpoint: {save_steps: 500}
)"},
};

// Replaces the line of `text` that begins with `begin`.
void replace_line(std::string& text, const std::string& begin, const std::string& line) {
  const size_t at = text.find("\n" + begin) + 1;
  text.replace(at, text.find('\n', at) - at, line);
}

// Fills in the template for tables for a file.
std::string describe_table(std::string text, const std::string& path, const std::string& target) {
  const CsvProposal found = propose_csv(path, target);
  replace_line(text,
               "name:", "name: " + quoted_when_needed(std::filesystem::path(path).stem().string()));
  replace_line(text, "  path:", "  path: " + quoted_when_needed(path));
  replace_line(text, "  target:", "  target: " + quoted_when_needed(found.target));
  std::string ignore;
  for (const auto& [column, why] : found.ignore) {
    ignore += (ignore.empty() ? "" : "\n") +
              fmt::format("    - {:<20}  # {}", quoted_when_needed(column), why);
  }
  if (!ignore.empty()) replace_line(text, "  # ignore:", "  ignore:\n" + ignore);
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
  for (const Template& t : kTemplates) {
    doc += fmt::format(" {} ({})", t.name, t.doc);
    names.push_back(t.name);
  }
  command.add_option("TEMPLATE", options->name, doc)->check(CLI::IsMember(names));
  add_output(command, "-o,--output", options->output, "File to write; the terminal without it");
  command.add_option("--data", options->data,
                     "A CSV file that the configuration is written for (mlp)");
  command.add_option("--target", options->target,
                     "Its column to predict: last, first, a number from 0, or a name");
  command.add_flag("--force", options->force, "Overwrite the file");
  return [options] {
    for (const Template& t : kTemplates) {
      if (options->name != t.name) continue;
      std::string text = t.text;
      if (!options->data.empty()) {
        if (options->name != "mlp") fail(ExitCode::usage, "--data belongs to the template mlp");
        text = describe_table(text, options->data, options->target);
      }
      if (options->output.empty()) {
        std::fputs(text.c_str(), stdout);
      } else if (std::filesystem::exists(options->output) && !options->force) {
        fail(ExitCode::usage, "{} exists; --force overwrites it", options->output);
      } else {
        write_file_atomically(options->output, text);
      }
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain
