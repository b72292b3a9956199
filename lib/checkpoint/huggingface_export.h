// Exports trained models as Hugging Face folders, and imports such folders to start training.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/huggingface_writer.h"

namespace dltrain {

struct ExportReport {
  std::filesystem::path checkpoint;
  std::string model_type;
  bool averages = false;  // the weights are those of training.ema
  bool tokenizer = false;
  bool images = false;       // a model of images, which has no tokenizer
  std::string note = {};     // further information for the user
  DType dtype = DType::f32;  // of the weights that were written
  WrittenFolder written;
};

// Exports the model of a run or a checkpoint: its averages, if it has them, because evaluations use
// these. Of a run with adapters (model.lora) it writes a folder of peft, or with `out.merge` the
// model with the adapters in its weights. The run's tokenizer is exported too; if the run was
// started from a folder with the same tokenizer, its files are copied. Opens neither data nor a
// device.
ExportReport export_model(const std::filesystem::path& run_or_checkpoint, HuggingFaceFolder out);

// Without a dtype in `out` exports are in f32, and imports keep that of the folder (bf16 or f16 if
// all weights have it, else f32).
//
// Reads a Hugging Face folder, checks it (configuration, names and shapes of the tensors, size of
// the tokenizer's vocabulary) and writes a copy with a config.yaml. A BertModel, which has no head,
// gets a new one, which the note mentions. A tokenizer of an unsupported kind is copied, with a
// note.
ExportReport import_model(const std::filesystem::path& from, HuggingFaceFolder out);

}  // namespace dltrain
