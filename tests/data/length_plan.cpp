#include "data/length_plan.h"

#include <algorithm>
#include <set>

#include "data/loader.h"
#include "read_data.h"
#include "shared/host_memory.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using LengthPlanIds = std::vector<int32_t>;
using Extents = LengthPlan::Extents;

// Pairs whose sources and targets have these numbers of characters.
std::shared_ptr<const Dataset> pairs(const TemporaryFolder& folder,
                                     const std::vector<std::pair<int, int>>& lengths) {
  std::string text;
  for (const auto& [source, target] : lengths) {
    text += fmt::format("{{\"s\": \"{}\", \"t\": \"{}\"}}\n",
                        std::string(static_cast<size_t>(source), 'a'),
                        std::string(static_cast<size_t>(target), 'b'));
  }
  const auto path = folder.write("pairs.jsonl", text);
  return read_data("type: jsonl, path: '" + path.string() +
                   "', source: s, target: t, sequence_length: 40, source_length: 50, tokenizer: "
                   "{type: byte, special_tokens: ['</s>']}")
      .open()
      .train;
}

std::vector<std::pair<int, int>> many() {
  std::vector<std::pair<int, int>> lengths;
  for (int i = 0; i < 101; ++i) {
    const int n = i * 37 % 101;
    lengths.emplace_back(n * 44 / 100, n * 36 / 100 + i % 3);
  }
  return lengths;
}

}  // namespace

TEST_CASE("a bucket is as long as its longest sample, in each field") {
  TemporaryFolder folder;
  const auto data = pairs(folder, {{1, 2}, {3, 1}, {20, 20}, {9, 30}, {60, 2}, {30, 60}});
  CHECK(data->length(0, 0) == 2);  // with its end
  CHECK(data->length(2, 0) == 3);  // with its begin
  CHECK(data->length(1, 0) == 0);
  CHECK(data->length(0, 4) == 50);  // cut
  CHECK(data->length(3, 5) == 40);
  const Buckets buckets(*data, {.count = 3, .global_batch = 2});
  // Sums with targets twice: 8, 8, 63, 72, 56, 111.
  CHECK(buckets.extents() == Extents{{8, 0, 8, 8}, {50, 0, 24, 24}, {50, 0, 40, 40}});
  CHECK(buckets.fields(*data, 0)[3].sample == TensorSpec{Shape{8}, DType::i32});
  CHECK(buckets.fields(*data, 0)[1].sample == TensorSpec{Shape{}, DType::i32});
  CHECK(buckets.batches() == 3);
  CHECK(buckets.steps_of_variants() == std::vector<int64_t>{1, 1, 1});
  CHECK(Buckets(*data, {.count = 1, .global_batch = 2}).extents().size() == 1);
  CHECK(Buckets(*data, {.count = 64, .global_batch = 6}).batches() == 1);
  CHECK_THROWS_WITH(Buckets(*data, {.count = 2, .global_batch = 7}),
                    Contains("6 samples are less than a batch of 7"));
}

TEST_CASE("batches of buckets hold each sample once an epoch, cut nothing off, and change order") {
  TemporaryFolder folder;
  const auto data = pairs(folder, many());
  const Buckets buckets(*data, {.count = 4, .global_batch = 8, .seed = 3});
  REQUIRE(buckets.extents().size() == 4);
  CHECK(buckets.batches() == 12);  // 5 samples are left out
  Sampler sampler(data->size(), 3, SampleOrder::shuffled, nullptr, &buckets);
  std::set<std::vector<int64_t>> orders;
  std::set<int64_t> left_out;
  std::set<size_t> variants;
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t step = epoch * 12; step < (epoch + 1) * 12; ++step) {
      const size_t variant = buckets.variant(step);
      variants.insert(variant);
      for (int64_t i = 0; i < 8; ++i) {
        const int64_t sample = sampler.index(step * 8 + i);
        order.push_back(sample);
        for (int field = 0; field < 4; ++field) {
          CHECK(data->length(field, sample) <=
                buckets.extents()[variant][static_cast<size_t>(field)]);
        }
      }
    }
    CHECK(std::set<int64_t>(order.begin(), order.end()).size() == order.size());
    for (int64_t sample = 0; sample < data->size(); ++sample) {
      if (std::find(order.begin(), order.end(), sample) == order.end()) left_out.insert(sample);
    }
    orders.insert(order);
  }
  CHECK(orders.size() == 6);
  CHECK(left_out.size() > 5);
  CHECK(variants.size() == 4);
  // Any position at once.
  Sampler other(data->size(), 3, SampleOrder::shuffled, nullptr, &buckets);
  CHECK(other.index(500) == sampler.index(500));
  CHECK(other.index(100) == sampler.index(100));
  // In file order the shortest come first.
  const Buckets sorted(*data, {.count = 4, .global_batch = 8, .seed = 3, .shuffle = false});
  for (int64_t step = 1; step < 12; ++step) CHECK(sorted.variant(step) >= sorted.variant(step - 1));
}

TEST_CASE("a curriculum grows evenly to whole samples") {
  TemporaryFolder folder;
  const auto path = folder.write("ids.bin", std::string(4000, '\0'));
  const auto open = [&](int length) {
    return read_data(
               fmt::format("type: tokens, path: '{}', sequence_length: {}", path.string(), length))
        .open()
        .train;
  };
  const auto plan = make_curriculum(*open(512), {.from = 60, .steps = 9, .stages = 4});
  CHECK(plan->extents() == Extents{{60, 60}, {208, 208}, {360, 360}, {512, 512}});
  std::vector<size_t> variants;
  for (int64_t step = 0; step < 12; ++step) variants.push_back(plan->variant(step));
  CHECK(variants == std::vector<size_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3});
  CHECK(plan->variant(int64_t{1} << 60) == 3);
  CHECK_THROWS_WITH(make_curriculum(*open(20), {.from = 12, .steps = 9, .stages = 5}),
                    Contains("5 stages from 12 to 20 tokens do not all increase"));
}

TEST_CASE("rows of a batch are as long as its variant, whatever the layout") {
  TemporaryFolder folder;
  const auto data = pairs(folder, many());
  const auto device = make_host_device("cpu", "");
  const auto buckets = std::make_shared<const Buckets>(
      *data, BucketOptions{.count = 4, .global_batch = 8, .seed = 3});
  const auto load = [&](std::shared_ptr<const LengthPlan> lengths, int64_t micro, int workers,
                        int64_t first) {
    return std::make_unique<TrainLoader>(data,
                                         LoaderOptions{.global_batch = 8,
                                                       .micro_batch = micro,
                                                       .first_step = first,
                                                       .first_sample = first * 8,
                                                       .seed = 3,
                                                       .lengths = std::move(lengths),
                                                       .workers = workers},
                                         *device);
  };
  const auto whole = load(buckets, 8, 1, 0);
  const auto parts = load(buckets, 2, 3, 5);
  for (int64_t step = 0; step < 30; ++step) {
    const Batch& batch = whole->next();
    CHECK(batch.variant == buckets->variant(step));
    const auto& extents = buckets->extents()[batch.variant];
    int64_t counted = 0;
    const auto* targets = reinterpret_cast<const int32_t*>(batch.fields[3]);
    for (int64_t i = 0; i < 8 * extents[3]; ++i) counted += targets[i] != kIgnoredLabel;
    CHECK(counted == batch.valid_targets);
    if (step < 5) continue;
    for (int64_t micro = 0; micro < 4; ++micro) {
      const Batch& part = parts->next();
      CHECK(part.variant == batch.variant);
      CHECK(part.valid_targets == batch.valid_targets);
      for (size_t field = 0; field < 4; ++field) {
        const int64_t row = std::max<int64_t>(extents[field], 1);
        const auto* a = reinterpret_cast<const int32_t*>(batch.fields[field]) + micro * 2 * row;
        const auto* b = reinterpret_cast<const int32_t*>(part.fields[field]);
        CHECK(std::equal(b, b + 2 * row, a));
      }
    }
  }
  // A curriculum cuts targets, too, and counts what is left.
  const auto path = folder.write("ids.bin", std::string(4000, '\1'));
  const auto windows =
      read_data("type: tokens, path: '" + path.string() + "', sequence_length: 32").open().train;
  const auto plan = make_curriculum(*windows, {.from = 5, .steps = 4, .stages = 2});
  TrainLoader loader(windows, {.global_batch = 4, .micro_batch = 2, .lengths = plan, .workers = 1},
                     *device);
  for (int64_t step = 0; step < 6; ++step) {
    for (int micro = 0; micro < 2; ++micro) {
      CHECK(loader.next().valid_targets == (step < 4 ? 20 : 128));
    }
  }
}
