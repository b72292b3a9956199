// dltrain init [TEMPLATE]: a commented configuration to start from.
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

struct Template {
  const char* name;
  const char* doc;
  const char* text;
};

constexpr Template kTemplates[] = {
    {"mlp", "a multi-layer perceptron on a table of numbers",
     R"(# A multi-layer perceptron on a CSV file. Every key: docs/config.md, or `dltrain schema`.
name: my-mlp
seed: 0

data:
  type: csv
  path: data.csv            # numbers; one sample a line, plain or .gz
  target: last              # which column holds the class: last, first, a number, or a header name
  # header: true            # the first line has names
  eval_fraction: 0.2        # hold the last 20 % out

model:
  layers:                   # applied in order; `dltrain list layers` shows them all
    - linear: 128
    - relu
    - dropout: 0.1
    - linear: 10            # as many outputs as there are classes

loss: {type: cross_entropy}
optimizer: {type: adamw, learning_rate: 1.0e-3, weight_decay: 0.01}
lr_scheduler: {type: cosine, warmup_steps: 50, min_ratio: 0.1}

training:
  global_batch_size: 32     # samples a step, on any number of ranks
  num_epochs: 20            # or max_steps
  max_grad_norm: 1.0

evaluation: {eval_steps: 200}
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
    - linear: 10

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

}  // namespace

CommandBody add_init(CLI::App& command) {
  struct Options {
    std::string name = "mlp", output;
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
  command.add_flag("--force", options->force, "Overwrite the file");
  return [options] {
    for (const Template& t : kTemplates) {
      if (options->name != t.name) continue;
      if (options->output.empty()) {
        std::fputs(t.text, stdout);
      } else if (std::filesystem::exists(options->output) && !options->force) {
        fail(ExitCode::usage, "{} exists; --force overwrites it", options->output);
      } else {
        write_file_atomically(options->output, t.text);
      }
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain
