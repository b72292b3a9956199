#include "data/config.h"

#include "base/cpus.h"
#include "base/error.h"
#include "config/paths.h"
#include "config/tree.h"
#include "data/classes.h"
#include "data/sequence_config.h"

namespace dltrain {
namespace {

// The splits must have the same fields, because the model is built for one set of inputs.
void check_same_fields(const Dataset& train, const Dataset& eval) {
  if (train.fields() == eval.fields()) return;
  const auto list = [](const std::vector<FieldSpec>& fields) {
    std::string text;
    for (const FieldSpec& field : fields) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, to_string(field.sample));
    }
    return text;
  };
  const auto is_image = [](const Dataset& data) {
    return data.fields()[0].sample.shape.rank() == 3;
  };
  fail(ExitCode::data, "the samples of the splits differ: data.train has {}; data.eval has {}{}",
       list(train.fields()), list(eval.fields()),
       is_image(train) && is_image(eval)
           ? "; the `transforms` of both must end in one size (resize, random_crop, center_crop)"
           : "");
}

// An id must have one meaning in both splits.
void check_same_tokenizer(const Dataset& train, const Dataset& eval) {
  const auto there = train.tokenizer(), here = eval.tokenizer();
  const std::string difference = there && here ? tokenizer_difference(*there, *here) : "";
  if (difference.empty()) return;
  fail(ExitCode::data,
       "data.eval has another tokenizer than data.train: {}; both need the same tokenizer",
       difference);
}

// Throws ConfigError for a split that asks for other statistics than those that are applied to it,
// or whose inputs would be normalized twice. `source`: what the statistics come from, and a verb.
void check_fit(const DatasetConfig& split, const InputFit& applied, const char* source) {
  const InputFit wanted = split.fit();
  if (wanted.fill && !applied.fill) {
    fail_at(split, "empty", "{} without `empty`, so there are no means for empty cells", source);
  }
  if (wanted.normalize && !applied.normalize) {
    fail_at(split, "normalize", "{} without `normalize: auto`, so there are no statistics", source);
  }
  if (wanted.given && applied.normalize) {
    fail_at(split, "normalize",
            "{} with `normalize: auto`, which normalizes this data too; leave mean and std out",
            source);
  }
}

}  // namespace

std::vector<KindRow<DatasetConfig>> dataset_rows();  // of all files of this folder (generated)

const KindTable<DatasetConfig>& dataset_table() {
  static const KindTable<DatasetConfig> table{"dataset", dataset_rows()};
  return table;
}

void DatasetConfig::describe(Fields& f) {
  f.boolean("shuffle", shuffle,
            {.doc = "Train on the samples in a new random order in each epoch, otherwise in file "
                    "order"});
  f.choice(
      "sampling", sampling,
      {{"uniform", Sampling::uniform, "every sample once per epoch"},
       {"balanced", Sampling::balanced,
        "every class equally often, the samples of a class in turn; for training"},
       {"streams", Sampling::streams,
        "text is cut into training.global_batch_size streams that are read in parallel, in "
        "order: each sample of a batch continues that of the previous batch, as carry_state of "
        "recurrent layers needs; also for evaluation"}},
      {.doc = "How training selects samples", .known_as = {"sampler", "class_balance"}});
  f.list_of(
      "transforms", transforms, transform_table(),
      {.doc =
           "Changes of images, in order; random ones must be in data.train. For samples held out "
           "by eval_fraction, center_crop replaces random_crop, a resize and center_crop replace "
           "random_resized_crop, and other random changes are left out",
       .known_as = {"augmentation", "augmentations"}});
  f.boolean(
      "augment", augment,
      {.doc = "false: without random changes (transforms get what held-out samples get; no "
              "random_affine, mixup, cutmix), to see what they are worth or to find a fault"});
  f.section("random_affine", random_affine,
            {.doc = "Randomly rotate, stretch and shift each training image, after all other "
                    "changes; must be in data.train"});
  f.section("mixup", mixup,
            {.doc = "Blend pairs of training samples and their labels; must be in data.train"});
  f.section("cutmix", cutmix,
            {.doc = "Replace a box of each training image by that of another image and blend their "
                    "labels by area; must be in data.train"});
  // The resolved configuration shows this value.
  if (sampling == Sampling::streams && !given("shuffle")) shuffle = false;
}

void DatasetConfig::describe_length_buckets(Fields& f) {
  f.integer(
      "length_buckets", length_buckets,
      {.doc = "With padded samples (pairs of texts, chats, texts with classes): training groups "
              "samples of similar length into this number of buckets of about equal size and pads "
              "them to the longest of the bucket instead of sequence_length. Each bucket has its "
              "own plan, made before the first step. An epoch leaves out the samples that do not "
              "fill a batch",
       .min = 1,
       .max = 64,
       .known_as = {"group_by_length", "buckets", "bucket_by_length"}});
}

void DatasetConfig::validate(Diagnostics& diagnostics) const {
  if (sampling == Sampling::balanced && !shuffle) {
    diagnostics.add(*this, "sampling", "balanced sampling is random and needs shuffle: true");
  }
  if (length_buckets && sampling == Sampling::balanced) {
    diagnostics.add(*this, "sampling",
                    "length_buckets and balanced sampling cannot be combined; remove one of them");
  }
  if (sampling != Sampling::streams) return;
  if (!is_one_text()) {
    diagnostics.add(*this, "sampling",
                    "streams need one text: type text, tokens, or jsonl with documents");
  }
  if (shuffle && given("shuffle")) {
    diagnostics.add(*this, "shuffle", "streams are read in order and need shuffle: false");
  }
}

void DatasetConfig::refuse_image_keys(Diagnostics& diagnostics) const {
  const auto refuse = [&](bool given, const char* key) {
    if (given) diagnostics.add(*this, key, fmt::format("{} is for images, not for text", key));
  };
  refuse(mixup.has_value(), "mixup");
  refuse(cutmix.has_value(), "cutmix");
  refuse(random_affine.has_value(), "random_affine");
  refuse(!transforms.empty(), "transforms");
}

DataSplit DatasetConfig::split_samples(std::shared_ptr<const Dataset> whole,
                                       const HeldOut& part) const {
  if (!part.seed && !tail_is_by_class()) return split_off_eval(std::move(whole), part.fraction);
  return split_off_eval_by_class(std::move(whole), part.fraction, part.seed);
}

std::shared_ptr<const LengthPlan> DatasetConfig::length_plan(const Dataset& dataset,
                                                             int64_t global_batch,
                                                             uint64_t seed) const {
  if (!length_buckets) return nullptr;
  return std::make_shared<Buckets>(dataset, BucketOptions{.count = *length_buckets,
                                                          .global_batch = global_batch,
                                                          .seed = seed,
                                                          .shuffle = shuffle});
}

SampleOrder DatasetConfig::order() const {
  if (sampling == Sampling::balanced) return SampleOrder::balanced;
  return shuffle && sampling != Sampling::streams ? SampleOrder::shuffled : SampleOrder::file;
}

MixingOptions DatasetConfig::mixing() const {
  MixingOptions out;
  if (!augment) return out;
  if (mixup) out.mixup = mixup->options;
  if (cutmix) out.cutmix = cutmix->options;
  return out;
}

SampleTransforms DatasetConfig::changes() const {
  SampleTransforms out;
  for (const auto& transform : transforms) {
    augment ? out.transforms.push_back(transform->clone())
            : transform->add_for_evaluation(out.transforms);
  }
  if (random_affine && augment) out.random_affine = random_affine->options;
  return out;
}

void MixingConfig::describe(Fields& f) {
  f.number(
      "alpha", options.alpha,
      {.doc = "Shares are drawn from Beta(alpha, alpha); small values give shares near 0 and 1",
       .max = 1000,
       .above = 0});
  f.number("probability", options.probability,
           {.doc = "Share of the samples that are changed", .min = 0, .max = 1, .known_as = {"p"}});
}

void RandomAffineConfig::describe(Fields& f) {
  f.number("rotate", options.rotate,
           {.doc = "Largest angle in degrees, in both directions",
            .min = 0,
            .max = 180,
            .known_as = {"degrees", "rotation"}});
  f.number("scale", options.scale,
           {.doc = "Largest share by which height and width independently grow or shrink",
            .min = 0,
            .below = 1});
  f.number(
      "translate", options.translate,
      {.doc = "Largest shift in pixels, vertical and horizontal", .min = 0, .known_as = {"shift"}});
}

// A resolved configuration has every key (`eval: null`). If it lacks eval_split, it is older than
// this key, and the last samples were held out.
bool DataConfig::rewrite(ConfigNode& map, Diagnostics&) {
  const ConfigNode *fraction = map.find("eval_fraction"), *none = map.find("eval");
  const bool resolved = none != nullptr && none->is_null() && map.find("workers") != nullptr;
  const bool holds_out = fraction != nullptr && !fraction->is_null();
  if (!resolved || !holds_out || map.find("eval_split") != nullptr) return true;
  ConfigNode tail = *fraction;
  tail.kind = ConfigNode::Kind::scalar;
  tail.text = "tail";
  map.set({"eval_split", fraction->location}, std::move(tail));
  return true;
}

EvalSplit DataConfig::resolved_split() const {
  const bool ordered = train->is_one_text() || !train->shuffle;
  return eval_split.value_or(ordered ? EvalSplit::tail : EvalSplit::random);
}

void DataConfig::describe(Fields& f) {
  // The resolved configuration shows this value.
  if (train && eval_fraction) eval_split = resolved_split();
  f.parts<DatasetConfig>(
      {{"train", train, "The training data"},
       {"eval", eval, "The evaluation data; if absent, see eval_fraction"}},
      dataset_table(),
      {.doc = "Common keys of train and eval, which can override them", .required = true});
  f.number("eval_fraction", eval_fraction,
           {.doc = "Share of the training samples that is held out for evaluation, instead of "
                   "`eval`; see eval_split",
            .above = 0,
            .below = 1,
            .known_as = {"validation_split", "val_fraction", "test_size"}});
  f.choice(
      "eval_split", eval_split,
      {{"random", EvalSplit::random,
        "random samples, the same share of each class if there are classes; independent of "
        "the `seed` of the run"},
       {"tail", EvalSplit::tail,
        "the last samples of the file (image_folder and packed_images: of each class)"}},
      {.doc = "Which samples eval_fraction holds out; if absent, random, but tail for text and "
              "for data that training reads in file order (`shuffle: false`, for time series)",
       .known_as = {"split", "split_strategy"}});
  f.integer("split_seed", split_seed,
            {.doc = "Seed of `eval_split: random`", .known_as = {"random_state", "eval_seed"}});
  f.integer(
      "workers", workers,
      {.doc = "Threads of a rank that load samples; auto, the default: its share of the cores "
              "of the machine if samples are decoded or changed, otherwise 1",
       .min = 1,
       .max = 1024,
       .known_as = {"num_workers", "dataloader_num_workers"}});
}

void DataConfig::validate(Diagnostics& diagnostics) const {
  if (eval && eval_fraction) {
    diagnostics.add(*this, "eval_fraction",
                    "eval and eval_fraction exclude each other; remove one");
  }
  if (eval_split && !eval && !eval_fraction) {
    diagnostics.add(*this, "eval_split", "eval_split needs eval_fraction");
  }
  if (eval_split == EvalSplit::random && train && train->is_one_text()) {
    diagnostics.add(*this, "eval_split",
                    "text needs tail: random windows would be adjacent to trained ones");
  }
  if (!eval || !train) return;
  const auto refuse = [&](const ConfigObject& at, std::string_view key, std::string_view what) {
    diagnostics.add(at, key,
                    fmt::format("evaluation does not change samples; move {} to data.train", what));
  };
  if (eval->random_affine) refuse(*eval, "random_affine", "random_affine");
  if (eval->mixup) refuse(*eval, "mixup", "mixup");
  if (eval->cutmix) refuse(*eval, "cutmix", "cutmix");
  if (eval->sampling == Sampling::balanced) refuse(*eval, "sampling", "balanced sampling");
  if (const auto* text = dynamic_cast<const SequenceConfig*>(eval.get())) {
    for (const SourceConfig& source : text->sources) {
      for (const auto& [key, value] :
           {std::pair("weight", source.weight), {"max_epochs", source.max_epochs}}) {
        if (!value) continue;
        diagnostics.add(source, key, "evaluation reads every sample once; move {} to data.train",
                        key);
      }
    }
  }
  if ((eval->sampling == Sampling::streams) != (train->sampling == Sampling::streams)) {
    diagnostics.add(*eval, "sampling",
                    "data.train and data.eval must both have `sampling: streams`, or neither");
  }
  for (const auto& transform : eval->transforms) {
    if (transform->random()) refuse(*transform, "", transform->kind);
  }
}

int DataConfig::workers_for(const Dataset& dataset, int ranks_of_node) const {
  if (workers && std::holds_alternative<int64_t>(*workers)) {
    return static_cast<int>(std::get<int64_t>(*workers));
  }
  return dataset.is_expensive() ? cpu_share(ranks_of_node) : 1;
}

void DataConfig::refuse_missing(const DatasetConfig& split) {
  // describe() is not const because the parser writes through it; here it only reads.
  refuse_missing_paths(ObjectRef::of(const_cast<DatasetConfig&>(split)), ExitCode::data);
}

DataSplit DataConfig::open(const OpenOptions& how) const {
  refuse_missing(*train);
  if (eval) refuse_missing(*eval);
  const bool trained = how.trained && how.trained->recorded();
  const InputFit wanted = train->fit();
  const InputFit applied =
      trained ? InputFit{.normalize = how.trained->normalized, .fill = how.trained->fills} : wanted;
  for (const auto* one : {&train, &eval}) {
    if (*one) check_fit(**one, applied, trained ? "the model was trained" : "data.train is read");
  }
  DataSplit split;
  if (eval_fraction) {
    HeldOut held_out{.fraction = *eval_fraction};
    if (resolved_split() == EvalSplit::random) held_out.seed = static_cast<uint64_t>(split_seed);
    split = train->open_split(held_out, how);
  } else {
    split.train = train->open(how);
    if (eval) split.eval = eval->open_as_eval([&] { return split.train; }, how);
    for (auto* one : {&split.train, &split.eval}) {
      const auto& other = one == &split.train ? split.eval : split.train;
      if (*one && other && !(*one)->has_targets()) {
        *one = without_targets(*one, other->fields().back().sample);
      }
    }
    if (split.eval) {
      check_same_fields(*split.train, *split.eval);
      check_same_tokenizer(*split.train, *split.eval);
    }
  }
  if (how.trained) split.train = match_classes(split.train, how.trained->class_names);
  if (split.eval) split.eval = match_classes(split.eval, split.train->class_names());
  if (!how.fit || !applied.any()) return split;
  const auto schema = trained ? how.trained : fit_inputs(*split.train, wanted);
  split.train = apply_fit(split.train, schema);
  if (split.eval) split.eval = apply_fit(split.eval, schema);
  return split;
}

}  // namespace dltrain
