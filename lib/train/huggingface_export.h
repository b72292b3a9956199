// Trained models as folders of Hugging Face, and such folders as a start here.
#pragma once

#include <filesystem>
#include <string>

#include "train/huggingface_writer.h"

namespace dltrain {

struct ExportReport {
  std::filesystem::path checkpoint;
  std::string model_type;
  bool averages = false;  // the weights are those of training.ema
  bool tokenizer = false;
  std::string note = {};     // what a person should know besides
  DType dtype = DType::f32;  // of the weights that were written
  WrittenFolder written;
};

// The model of a run, or of one of its checkpoints: its averages where it has some, which are what
// evaluations measure. With the run's tokenizer; where the run began from a folder with the same
// one, its files are kept as they are. Neither data nor a device is opened.
ExportReport export_model(const std::filesystem::path& run_or_checkpoint, HuggingFaceFolder out);

// Without a dtype in `out` exports are in f32, and imports keep that of the folder (bf16 or f16
// where all its weights have it, else f32).
//
// Reads a folder of Hugging Face, checks everything in it (configuration, names and shapes of the
// tensors, the size of the tokenizer's vocabulary) and writes it anew, with config.yaml to start
// from. A BertModel, which has no head, gets one with new values; the note names it. A tokenizer of
// a kind that is not read is copied, with a note.
ExportReport import_model(const std::filesystem::path& from, HuggingFaceFolder out);

}  // namespace dltrain
