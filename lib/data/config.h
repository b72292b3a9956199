// The `data` section of a configuration.
//
//   data:                                   data:
//     type: csv                               train: {type: tensors, path: a.safetensors}
//     path: digits.csv.gz                     eval: {type: tensors, path: b.safetensors}
//     train: {rows: [0, 1437]}
//     eval: {rows: [1437, 1797]}
//
// Keys beside `train`, `eval` and `eval_fraction` are common to both splits; those inside a split
// are laid on top. Without `eval`, `eval_fraction` holds a part of the training samples out, as
// `eval_split` says; without both there is no evaluation.
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

struct RandomAffineConfig : Located {
  RandomAffineOptions options;

  void describe(Fields& f);
};

// mixup or cutmix.
struct MixingConfig : Located {
  MixingOptions::Kind options{.alpha = 1};

  void describe(Fields& f);
};

// Which samples training visits, and in which order.
enum class Sampling : uint8_t { uniform, balanced, streams };

// Which samples eval_fraction holds out.
enum class EvalSplit : uint8_t { random, tail };
struct HeldOut {
  double fraction = 0;
  std::optional<uint64_t> seed = {};  // of random ones; without: the last
};

// One kind of dataset; data/registry.h has the table.
struct DatasetConfig : Chosen {
  bool shuffle = true;
  Sampling sampling = Sampling::uniform;
  std::vector<std::unique_ptr<Transform>> transforms;
  // Of `train` only:
  std::optional<RandomAffineConfig> random_affine;
  std::optional<MixingConfig> mixup, cutmix;

  void describe(Fields& f) override;
  void validate(Problems& problems) const override;
  // Opens the files, checks everything in them. Throws Error(data), naming the place in the file.
  // Nothing is fitted yet: see fit().
  virtual std::shared_ptr<const Dataset> open(const Opening& how = {}) const = 0;

  // open(), with a part of it held out for evaluation.
  virtual DataSplit open_split(const HeldOut& part, const Opening& how = {}) const;
  // What open() gives, as evaluation wants it; `train` opens the training split, of which text data
  // may need the tokenizer, and tables the schema.
  virtual std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& /*train*/,
      const Opening& how = {}) const {
    return open(how);
  }

  // What is fitted to the samples of the training split.
  virtual InputFit fit() const { return {}; }
  // Whether the loss compares the outputs with numbers, where the data does not say what its
  // targets are. Called before anything is opened.
  virtual void expect_numbers(bool /*numbers*/) {}

  // The images behind open(), for kinds that have 8-bit ones; else nullptr.
  virtual std::shared_ptr<const ImageSource> open_images() const { return nullptr; }

  // Whether the samples follow one another in one text.
  virtual bool is_one_text() const { return false; }
  // Whether the last samples of each class are held out, instead of those of the file.
  virtual bool tail_is_by_class() const { return false; }

  // Whether inputs and targets are tokens of a vocabulary.
  virtual bool has_tokens() const { return false; }
  // The input whose next token each target is, which a model must then not see; "": there is none.
  virtual std::string next_token_input() const { return {}; }

  // Texts that an encoder reads before a decoder writes: the inputs `source` and, with `lengths`,
  // `source_lengths`; absent: there are none.
  struct SourceText {
    int64_t length = 0;  // tokens, with padding
    bool lengths = true;
  };
  virtual std::optional<SourceText> source_text() const { return {}; }

  // Steps of several lengths, over the dataset that was opened; null: all samples are whole.
  virtual std::shared_ptr<const LengthPlan> length_plan(const Dataset&, int64_t /*global_batch*/,
                                                        uint64_t /*seed*/) const {
    return nullptr;
  }

  SampleOrder order() const;
  MixingOptions mixing() const;
  // What open() lays over the samples as the files have them.
  SampleChanges changes() const;
};

struct DataConfig : Located {
  std::unique_ptr<DatasetConfig> train;
  std::unique_ptr<DatasetConfig> eval;
  std::optional<double> eval_fraction;
  std::optional<EvalSplit> eval_split;
  int64_t split_seed = 0;
  std::optional<IntegerOrAuto> workers;

  static bool rewrite(ConfigNode& map, Problems& problems);
  void describe(Fields& f);
  void validate(Problems& problems) const;

  // `eval` of the result is null where nothing is held out. Labels are matched by the names of
  // their classes (data/classes.h), columns of tables by theirs: those of `eval` with those of
  // `train`, or both with `how.trained`. Throws Error(data) also when the two splits differ in
  // their fields, and for classes and columns that are unknown.
  DataSplit open(const Opening& how = {}) const;
  // Only the evaluation split (null where there is none): does not read the training files when
  // `eval` has its own and its classes have no names.
  std::shared_ptr<const Dataset> open_eval() const;

  // Throws ConfigError (exit code data) where a file of the split is not there.
  static void refuse_missing(const DatasetConfig& split);

  // Threads that load samples on one of the ranks of a node.
  int workers_for(const Dataset& dataset, int ranks_of_node) const;

 private:
  EvalSplit resolved_split() const;
};

}  // namespace dltrain
