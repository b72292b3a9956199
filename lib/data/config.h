// The `data` section of a configuration.
//
//   data:                                   data:
//     type: csv                               train: {type: tensors, path: a.safetensors}
//     path: digits.csv.gz                     eval: {type: tensors, path: b.safetensors}
//     train: {rows: [0, 1437]}
//     eval: {rows: [1437, 1797]}
//
// Keys beside `train`, `eval` and `eval_fraction` are common to both splits; keys inside a split
// override them. Without `eval`, `eval_fraction` holds out a part of the training samples, selected
// by `eval_split`; without both there is no evaluation.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "config/fields.h"
#include "data/dataset.h"
#include "data/fitted.h"
#include "data/image_dataset.h"
#include "data/length_plan.h"
#include "data/mixing.h"
#include "data/sampler.h"

namespace dltrain {

struct RandomAffineConfig : ConfigObject {
  RandomAffineOptions options;

  void describe(Fields& f);
};

// The keys of mixup and cutmix.
struct MixingConfig : ConfigObject {
  MixingOptions::Kind options{.alpha = 1};

  void describe(Fields& f);
};

// The order and frequency in which training selects samples.
enum class Sampling : uint8_t { uniform, balanced, streams };

// The samples that eval_fraction holds out.
enum class EvalSplit : uint8_t { random, tail };
struct HeldOut {
  double fraction = 0;
  std::optional<uint64_t> seed = {};  // of a random selection; absent: the last samples
};

// A kind of dataset.
struct DatasetConfig : ConfigVariant {
  bool shuffle = true;
  Sampling sampling = Sampling::uniform;
  std::vector<std::unique_ptr<Transform>> transforms;
  bool augment = true;
  std::optional<int64_t> length_buckets;  // a key of kinds that call describe_length_buckets()
  // Keys of `train` only:
  std::optional<RandomAffineConfig> random_affine;
  std::optional<MixingConfig> mixup, cutmix;

  void describe(Fields& f) override;
  void validate(Diagnostics& diagnostics) const override;
  // Opens and checks the files. Throws Error(data) with the place in the file. Does not apply
  // fit().
  virtual std::shared_ptr<const Dataset> open(const OpenOptions& how = {}) const = 0;

  // Opens the data and holds out a part for evaluation.
  virtual DataSplit open_split(const HeldOut& part, const OpenOptions& how = {}) const {
    return split_samples(open(how), part);
  }
  // Opens the data for evaluation. `train` opens the training split, which has the tokenizer of
  // text and the schema of tables.
  virtual std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& /*train*/,
      const OpenOptions& how = {}) const {
    return open(how);
  }

  // The statistics that are fitted to the training split.
  virtual InputFit fit() const { return {}; }
  // Sets whether the loss compares outputs with numbers, for data that does not define the type of
  // its targets. Called before open().
  virtual void expect_numbers(bool /*numbers*/) {}

  // The stored images of kinds with 8-bit images; otherwise nullptr.
  virtual std::shared_ptr<const ImageSource> open_images() const { return nullptr; }

  // Returns true if the samples are consecutive parts of one text.
  virtual bool is_one_text() const { return false; }
  // Returns true if the tail of each class is held out instead of the tail of the file.
  virtual bool tail_is_by_class() const { return false; }

  // Returns true if inputs and targets are tokens of a vocabulary.
  virtual bool has_tokens() const { return false; }
  // The input whose next tokens are the targets, so that a model must not see later ones; may be
  // "".
  virtual std::string next_token_input() const { return {}; }

  // The text that an encoder reads: the inputs `source` and, with `lengths`, `source_lengths`.
  struct SourceText {
    int64_t length = 0;  // tokens with padding
    bool lengths = true;
  };
  virtual std::optional<SourceText> source_text() const { return {}; }

  // The lengths of steps over the opened dataset; null: all samples have full length.
  virtual std::shared_ptr<const LengthPlan> length_plan(const Dataset& dataset,
                                                        int64_t global_batch, uint64_t seed) const;

  // The folder all of whose files are samples; empty: none.
  virtual std::filesystem::path sample_folder() const { return {}; }
  SampleOrder order() const;
  MixingOptions mixing() const;
  // The changes that open() applies to the stored samples.
  SampleTransforms changes() const;

 protected:
  DataSplit split_samples(std::shared_ptr<const Dataset> whole, const HeldOut& part) const;
  void describe_length_buckets(Fields& f);
  // Adds an error for each key that changes images.
  void refuse_image_keys(Diagnostics& diagnostics) const;
};

const KindTable<DatasetConfig>& dataset_table();

struct DataConfig : ConfigObject {
  std::unique_ptr<DatasetConfig> train;
  std::unique_ptr<DatasetConfig> eval;
  std::optional<double> eval_fraction;
  std::optional<EvalSplit> eval_split;
  int64_t split_seed = 0;
  std::optional<IntegerOrAuto> workers;

  static bool rewrite(ConfigNode& map, Diagnostics& diagnostics);
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;

  // Opens the splits; `eval` is null if there is no evaluation data. Labels are matched by the
  // names of their classes (data/classes.h), columns of tables by their names: those of `eval` with
  // those of `train`, or both with `how.trained`. Throws Error(data) also if the fields or the
  // tokenizers of the splits differ and for unknown classes and columns, and ConfigError for a
  // split that wants other statistics than those of the training split or of the model.
  DataSplit open(const OpenOptions& how = {}) const;

  // Throws ConfigError (exit code data) if a file of the split does not exist.
  static void refuse_missing(const DatasetConfig& split);

  // Returns whether eval_fraction holds out random samples.
  bool splits_randomly() const { return eval_fraction && resolved_split() == EvalSplit::random; }

  // Returns the number of threads that load samples on one of the ranks of a node.
  int workers_for(const Dataset& dataset, int ranks_of_node) const;

 private:
  EvalSplit resolved_split() const;
};

}  // namespace dltrain
