// dltrain average CHECKPOINT... -o FOLDER: the mean of the weights of several checkpoints.
#include "checkpoint/average.h"

#include "dltrain/commands.h"

namespace dltrain {

CommandBody add_average(CLI::App& command) {
  auto request = std::make_shared<AverageRequest>();
  command
      .add_option("CHECKPOINTS", request->checkpoints,
                  "Run folders (their newest checkpoints) or checkpoints of one model")
      ->required();
  command.add_option("-o,--output", request->folder, "The folder to write")->required();
  command
      .add_option("--weights", request->weights,
                  "A weight for each checkpoint, divided by their sum; absent: equal")
      ->delimiter(',');
  command.add_flag("--overwrite", request->overwrite,
                   "Replace an earlier result or run in this folder");
  return [request] {
    const AverageReport report = average_checkpoints(*request);
    for (size_t i = 0; i < report.checkpoints.size(); ++i) {
      fmt::print("{:.4f} of {}\n", report.weights[i], report.checkpoints[i].string());
    }
    fmt::print("{}: {} tensors, {} numbers{}\n", report.checkpoint.string(), report.tensors,
               report.numbers, report.averages ? ", of the averages that training.ema kept" : "");
    if (report.statistics) {
      fmt::print(
          "running statistics of batch norm were averaged too, which is an approximation: training "
          "steps with model.init_from={} and optimizer.learning_rate=0 estimate them again\n",
          request->folder.string());
    }
    if (report.adapters) {
      fmt::print(
          "adapters were averaged factor by factor, and the product of the averages is not the "
          "average of the products: evaluate the result; runs that began with the same adapters "
          "(the same seed, or model.lora.init_from) lose little\n");
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain
