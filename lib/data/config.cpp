#include "data/config.h"

#include "base/error.h"
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
  f.section("random_affine", random_affine,
            {.doc = "Rotate, stretch and shift each training image a little, differently each "
                    "time; belongs into data.train",
             .known_as = {"augment", "augmentation", "transforms"}});
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
           {.doc = "Part of the training samples, the last in file order, that is held out for "
                   "evaluation; instead of `eval`",
            .above = 0,
            .below = 1,
            .known_as = {"validation_split", "val_fraction", "test_size"}});
}

void DataConfig::validate(Problems& problems) const {
  if (eval && eval_fraction) {
    problems.add(*this, "eval_fraction", "eval and eval_fraction are both given; keep one");
  }
  if (eval && eval->random_affine) {
    problems.add(*eval, "random_affine",
                 "evaluation sees images as they are; put random_affine into data.train");
  }
}

DataSplit DataConfig::open() const {
  std::shared_ptr<const Dataset> whole = train->open();
  if (eval_fraction) return split_off_eval(std::move(whole), *eval_fraction);
  DataSplit split{std::move(whole), eval ? eval->open() : nullptr};
  if (split.eval) check_same_fields(*split.train, *split.eval);
  return split;
}

std::shared_ptr<const Dataset> DataConfig::open_eval() const {
  if (eval) return eval->open();
  return eval_fraction ? open().eval : nullptr;
}

}  // namespace dltrain
