// dltrain export RUN_OR_CHECKPOINT OUT and dltrain import FOLDER OUT: folders of Hugging Face.
#include "checkpoint/huggingface_export.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

struct ExportOptions {
  std::string from, to, dtype;
  CLI::AsSizeValue unit{/*kb_is_1000=*/true};
  HuggingFaceFolder folder;  // path and dtype follow from the texts above
};

void print_export(const ExportReport& report, const ExportOptions& options) {
  fmt::print("{} from {}{}: {} tensors, {:.1f} MB of {} in {} file{}{}\n", options.to,
             report.checkpoint.string(), report.averages ? " (averaged weights)" : "",
             report.written.tensors, static_cast<double>(report.written.bytes) / 1e6,
             dtype_name(report.dtype), report.written.shards, report.written.shards == 1 ? "" : "s",
             report.tokenizer ? ", with the tokenizer"
             : report.images  ? ""
                              : ", no tokenizer");
  if (!report.note.empty()) fmt::print("{}\n", report.note);
  for (const std::string& name : report.written.not_finite) {
    fmt::print(stderr, "warning: {} has values that are not finite\n", name);
  }
}

CommandBody add_exporter(CLI::App& command, const char* from, const char* from_doc,
                         const char* to_doc, const char* dtype_doc,
                         ExportReport (*run)(const std::filesystem::path&, HuggingFaceFolder)) {
  auto options = std::make_shared<ExportOptions>();
  command.add_option(from, options->from, from_doc)->required();
  command.add_option("OUT", options->to, to_doc)->required();
  command.add_option("--dtype", options->dtype, dtype_doc)
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->take_last();
  command
      .add_option("--max-shard-size", options->folder.max_shard_bytes,
                  "Largest file of weights, such as 500MB or 5GB (default)")
      ->transform(options->unit)
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62))
      ->take_last();
  command.add_flag("--overwrite", options->folder.overwrite,
                   "Replace an earlier folder of a model");
  command.add_flag("--timm", options->folder.timm,
                   "Write a ResNet or ViT for timm (default: for transformers)");
  if (run == export_model) {
    command
        .add_option("-s,--set", options->folder.sets,
                    "Set one key: -s model.init_from=PATH names a base that has moved")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command.add_flag("--merge", options->folder.merge,
                     "Write the model with its adapters (model.lora) in the weights (default: the "
                     "adapters alone, for peft)");
  }
  return [options, run] {
    HuggingFaceFolder& folder = options->folder;
    folder.path = options->to;
    if (!options->dtype.empty()) folder.dtype = dtype_from_name(options->dtype);
    print_export(run(options->from, folder), *options);
    return ExitCode::ok;
  };
}

}  // namespace

CommandBody add_export(CLI::App& command) {
  return add_exporter(command, "CHECKPOINT", "Run folder (its newest checkpoint), or a checkpoint",
                      "Folder to write, for transformers' from_pretrained",
                      "Format of the weights: f32 (default), bf16, f16", export_model);
}

CommandBody add_import(CLI::App& command) {
  return add_exporter(
      command, "FOLDER", "Folder of a Hugging Face model: config.json, safetensors",
      "Folder to write: the model, checked and in one format, and config.yaml to train it",
      "Format of the weights: f32, bf16, f16 (default: the folder's, or f32 where it has several)",
      import_model);
}

}  // namespace dltrain
