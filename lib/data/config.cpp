#include "data/config.h"

#include <algorithm>

#include "base/cpus.h"
#include "base/error.h"
#include "config/paths.h"
#include "data/classes.h"
#include "data/loader.h"
#include "data/registry.h"

namespace dltrain {
namespace {

// The model is built for one set of inputs.
void check_same_fields(const Dataset& train, const Dataset& eval) {
  const auto& a = train.fields();
  const auto& b = eval.fields();
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].name == b[i].name && a[i].sample == b[i].sample;
  }
  if (same) return;
  const auto list = [](const std::vector<FieldSpec>& fields) {
    std::string text;
    for (const FieldSpec& field : fields) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, to_string(field.sample));
    }
    return text;
  };
  fail(ExitCode::data, "samples of the two splits differ: data.train has {}; data.eval has {}",
       list(a), list(b));
}

}  // namespace

void DatasetConfig::describe(Fields& f) {
  f.boolean("shuffle", shuffle,
            {.doc = "Visit the training samples in a new random order each epoch; else in file "
                    "order"});
  f.choice("sampling", sampling,
           {{"uniform", Sampling::uniform, "every sample once an epoch"},
            {"balanced", Sampling::balanced,
             "every class equally often, the samples of a class in turn; for training"},
            {"streams", Sampling::streams,
             "text is cut into training.global_batch_size streams that are read in parallel, in "
             "order: each sample of a batch goes on where that of the batch before ended, which "
             "carry_state of recurrent layers needs; evaluation likewise"}},
           {.doc = "Which samples training visits", .known_as = {"sampler", "class_balance"}});
  f.list_of(
      "transforms", transforms, transform_table(),
      {.doc = "Changes of images, in order; random ones belong into data.train. Samples held "
              "out by eval_fraction get center_crop for random_crop, a resize and center_crop "
              "for random_resized_crop, and no other random change",
       .known_as = {"augment", "augmentation", "augmentations"}});
  f.section("random_affine", random_affine,
            {.doc = "Rotate, stretch and shift each training image a little, differently each "
                    "time, after all else; belongs into data.train"});
  f.section("mixup", mixup,
            {.doc = "Blend training samples in pairs, and their labels with them; belongs into "
                    "data.train"});
  f.section("cutmix", cutmix,
            {.doc = "Replace a box of each training image by that of another, and blend their "
                    "labels by area; belongs into data.train"});
  // As the resolved configuration then says.
  if (sampling == Sampling::streams && !given("shuffle")) shuffle = false;
}

void DatasetConfig::validate(Problems& problems) const {
  if (sampling == Sampling::balanced && !shuffle) {
    problems.add(*this, "sampling", "balanced sampling is random; shuffle: false contradicts it");
  }
  if (sampling != Sampling::streams) return;
  if (!is_one_text()) {
    problems.add(*this, "sampling",
                 "streams are cut from one text: type text, tokens, or jsonl with documents");
  }
  if (shuffle && given("shuffle")) {
    problems.add(*this, "shuffle", "streams are read in order; shuffle: true contradicts that");
  }
}

SampleOrder DatasetConfig::order() const {
  if (sampling == Sampling::balanced) return SampleOrder::balanced;
  return shuffle && sampling != Sampling::streams ? SampleOrder::shuffled : SampleOrder::file;
}

MixingOptions DatasetConfig::mixing() const {
  MixingOptions out;
  if (mixup) out.mixup = mixup->options;
  if (cutmix) out.cutmix = cutmix->options;
  return out;
}

SampleChanges DatasetConfig::changes() const {
  SampleChanges out;
  for (const auto& transform : transforms) out.transforms.push_back(transform->clone());
  if (random_affine) out.random_affine = random_affine->options;
  return out;
}

void MixingConfig::describe(Fields& f) {
  f.number("alpha", options.alpha,
           {.doc = "Shares are drawn from Beta(alpha, alpha): small for shares near 0 and 1",
            .max = 1000,
            .above = 0});
  f.number("probability", options.probability,
           {.doc = "Share of the samples that are changed", .min = 0, .max = 1, .known_as = {"p"}});
}

void RandomAffineConfig::describe(Fields& f) {
  f.number("rotate", options.rotate,
           {.doc = "Largest angle, either way",
            .min = 0,
            .max = 180,
            .known_as = {"degrees", "rotation"}});
  f.number("scale", options.scale,
           {.doc = "Largest share by which height and width grow or shrink, each for itself",
            .min = 0,
            .below = 1});
  f.number("translate", options.translate,
           {.doc = "Largest shift, in pixels, down and across", .min = 0, .known_as = {"shift"}});
}

void DataConfig::describe(Fields& f) {
  f.parts<DatasetConfig>(
      {{"train", train, "What is trained on"},
       {"eval", eval, "What is evaluated on; absent: see eval_fraction"}},
      dataset_table(),
      {.doc = "Common to train and eval, whose own keys lie on top", .required = true});
  f.number("eval_fraction", eval_fraction,
           {.doc = "Part of the training samples, the last in file order (image_folder and "
                   "packed_images: the last of each class), that is held out for evaluation; "
                   "instead of `eval`",
            .above = 0,
            .below = 1,
            .known_as = {"validation_split", "val_fraction", "test_size"}});
  f.integer("workers", workers,
            {.doc = "Threads of a rank that load samples; auto, and the default: the cores of the "
                    "machine shared by its ranks where samples are decoded or changed, else 1",
             .min = 1,
             .max = 1024,
             .known_as = {"num_workers", "dataloader_num_workers"}});
}

void DataConfig::validate(Problems& problems) const {
  if (eval && eval_fraction) {
    problems.add(*this, "eval_fraction", "eval and eval_fraction are both given; keep one");
  }
  if (!eval || !train) return;
  const auto refuse = [&](const Located& at, std::string_view key, std::string_view what) {
    problems.add(at, key,
                 fmt::format("evaluation sees samples as they are; put {} into data.train", what));
  };
  if (eval->random_affine) refuse(*eval, "random_affine", "random_affine");
  if (eval->mixup) refuse(*eval, "mixup", "mixup");
  if (eval->cutmix) refuse(*eval, "cutmix", "cutmix");
  if (eval->sampling == Sampling::balanced) refuse(*eval, "sampling", "balanced sampling");
  if ((eval->sampling == Sampling::streams) != (train->sampling == Sampling::streams)) {
    problems.add(*eval, "sampling",
                 "data.train and data.eval both have `sampling: streams`, or neither has");
  }
  for (const auto& transform : eval->transforms) {
    if (transform->random()) refuse(*transform, "", transform->kind);
  }
}

int DataConfig::workers_for(const Dataset& dataset, int ranks_of_node) const {
  if (workers && std::holds_alternative<int64_t>(*workers)) {
    return static_cast<int>(std::get<int64_t>(*workers));
  }
  return worthwhile_workers(dataset, cpu_share(ranks_of_node));
}

void DataConfig::refuse_missing(const DatasetConfig& split) {
  // describe() is not const because the parser needs it so; here it only reads.
  refuse_missing_paths(ObjectRef::of(const_cast<DatasetConfig&>(split)), ExitCode::data);
}

DataSplit DataConfig::open(const std::vector<std::string>& classes) const {
  refuse_missing(*train);
  if (eval) refuse_missing(*eval);
  DataSplit split;
  if (eval_fraction) {
    split = train->open_split(*eval_fraction);
  } else {
    split.train = train->open();
    if (eval) split.eval = eval->open_as_eval([&] { return split.train; });
    if (split.eval) check_same_fields(*split.train, *split.eval);
  }
  split.train = match_classes(split.train, classes);
  if (split.eval) split.eval = match_classes(split.eval, split.train->class_names());
  return split;
}

std::shared_ptr<const Dataset> DataConfig::open_eval() const {
  if (eval) {
    refuse_missing(*eval);
    auto samples = eval->open_as_eval([&] { return train->open(); });
    if (samples->class_names().empty()) return samples;
    return match_classes(samples, train->open()->class_names());
  }
  return eval_fraction ? open().eval : nullptr;
}

}  // namespace dltrain
