#include "data/classes.h"

#include <set>

#include "data/memory_dataset.h"
#include "images.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using Names = std::vector<std::string>;
using Labels = std::vector<int32_t>;

class ClassesNamed final : public DatasetWrapper {
 public:
  ClassesNamed(std::shared_ptr<const Dataset> whole, Names names)
      : DatasetWrapper(std::move(whole)), names_(std::move(names)) {}
  const Names& class_names() const override { return names_; }

 private:
  Names names_;
};

// Inputs are the numbers of the samples.
std::shared_ptr<const Dataset> data_of(const Labels& labels, const Names& names = {}) {
  std::vector<float> inputs;
  for (size_t i = 0; i < labels.size(); ++i) inputs.push_back(static_cast<float>(i));
  std::vector<FieldSpec> fields{{kInputField, {Shape{1}, DType::f32}},
                                {kTargetField, {Shape{}, DType::i32}}};
  auto whole = std::make_shared<MemoryDataset>(
      std::move(fields), std::vector<FieldValues>{inputs, labels},
      [](int64_t sample) { return "place " + std::to_string(sample); });
  return std::make_shared<ClassesNamed>(std::move(whole), names);
}

Labels labels_of_classes(const Dataset& data) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.size(); ++i) all.push_back(i);
  return gathered<int32_t>(data, 1, all);
}

std::vector<float> inputs_of(const Dataset& data) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.size(); ++i) all.push_back(i);
  return gathered<float>(data, 0, all);
}

}  // namespace

TEST_CASE("labels are those of the classes of the same names") {
  const Names names{"ant", "bee", "cat"};
  const auto data = match_classes(data_of({0, 1, kIgnoredLabel, 1}, {"bee", "cat"}), names);
  CHECK(labels_of_classes(*data) == Labels{1, 2, kIgnoredLabel, 2});
  CHECK(data->class_names() == names);
  CHECK(data->label_bound() == 3);
  CHECK(inputs_of(*data) == std::vector<float>{0, 1, 2, 3});
  Labels seen(2);
  const int64_t samples[] = {3, 0};
  data->gather_training(1, samples, {}, reinterpret_cast<std::byte*>(seen.data()));
  CHECK(seen == Labels{2, 1});

  const auto same = data_of({0, 1}, names), unnamed = data_of({0, 2});
  CHECK(match_classes(same, names) == same);
  CHECK(match_classes(same, {}) == same);
  CHECK(match_classes(unnamed, names)->class_names() == names);
  CHECK(labels_of_classes(*match_classes(unnamed, names)) == Labels{0, 2});
  CHECK_THAT(
      refusal_of([&] {
        match_classes(data_of({0, 1}, {"ant", "dog"}), names);
      }),
      Contains("place 1") && Contains("'dog' is not one of the 3 trained classes: ant, bee"));
  // A name without samples does no harm.
  CHECK(labels_of_classes(*match_classes(data_of({1}, {"dog", "cat"}), names)) == Labels{2});
}

TEST_CASE("a fraction of each class is held out, the last samples of it") {
  const DataSplit split = split_off_eval_by_class(data_of({0, 0, 0, 0, 1, 1, 2, 1, 1, 0}), 0.4);
  CHECK(inputs_of(*split.train) == std::vector<float>{0, 1, 2, 4, 5, 6});
  CHECK(inputs_of(*split.eval) == std::vector<float>{3, 7, 8, 9});
  CHECK(labels_of_classes(*split.eval) == Labels{0, 1, 1, 0});
  CHECK(split.eval->location_of(1) == "place 7");
  // However small or large the fraction, both splits have each class of two samples.
  for (const double fraction : {0.001, 0.999}) {
    const DataSplit small = split_off_eval_by_class(data_of({0, 0, 1, 1}), fraction);
    CHECK(inputs_of(*small.eval) == std::vector<float>{1, 3});
  }
  CHECK_THAT(refusal_of([] {
               split_off_eval_by_class(data_of({0, 1, 2}), 0.5);
             }),
             Contains("leaves none for evaluation"));
}

TEST_CASE("random samples are held out, the same share of each class") {
  Labels sorted(100, 0);
  std::fill(sorted.begin() + 60, sorted.end(), 1);
  const DataSplit split = split_off_eval_by_class(data_of(sorted), 0.25, 7);
  CHECK(split.eval->size() == 25);
  const Labels held = labels_of_classes(*split.eval);
  CHECK(std::count(held.begin(), held.end(), 0) == 15);
  const auto eval = inputs_of(*split.eval), train = inputs_of(*split.train);
  CHECK(std::is_sorted(eval.begin(), eval.end()));
  CHECK(eval[14] != 59);  // not the last of its class
  std::set<float> all(eval.begin(), eval.end());
  all.insert(train.begin(), train.end());
  CHECK(all.size() == 100);
  // A function of the seed.
  CHECK(inputs_of(*split_off_eval_by_class(data_of(sorted), 0.25, 7).eval) == eval);
  CHECK(inputs_of(*split_off_eval_by_class(data_of(sorted), 0.25, 8).eval) != eval);
  // More classes than samples to hold out: any samples, as many as were asked for.
  Labels many;
  for (int i = 0; i < 100; ++i) many.push_back(i / 2);
  CHECK(split_off_eval_by_class(data_of(many), 0.1, 0).eval->size() == 10);
}

TEST_CASE("labels that no sample has are told, as when they count from 1") {
  CHECK_THAT(unused_labels(count_classes(*data_of({1, 2, 3, 1}))),
             Contains("no training sample has the label 0; labels are 0 to 3"));
  CHECK_THAT(unused_labels(count_classes(*data_of({0, 7, 1}))), Contains("the labels 2, 3, 4"));
  CHECK(unused_labels(count_classes(*data_of({0, 1, 1}))).empty());
}

TEST_CASE("classes that one split has none of are told where that is no chance") {
  const auto told = [](const std::vector<int64_t>& train, const std::vector<int64_t>& eval) {
    return imbalanced_classes(train, eval, {"a", "b"});
  };
  CHECK_THAT(imbalanced_classes({40}, {0, 10}, {}),
             Contains("eval split has no samples of the classes 0"));
  CHECK_THAT(told({20, 20}, {0, 10}), Contains("eval split has no samples of the classes 'a'"));
  CHECK_THAT(told({40}, {2, 3}), Contains("training split has no samples of the classes 'b'"));
  CHECK(told({20, 20}, {2, 1}).empty());
  CHECK(told({20, 20}, {0, 2}).empty());  // a coin thrown twice
  CHECK(told({20, 20}, count_classes(*without_targets(data_of({1, 1})))).empty());
}
