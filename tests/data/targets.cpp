// The weights of targets: ignored labels, class weights, distributions, padding.
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "catch.h"
#include "data/classes.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "read_data.h"
#include "shared/host_memory.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

std::shared_ptr<const Dataset> with_targets(TensorSpec sample, FieldValues targets,
                                            size_t samples) {
  std::vector<FieldValues> values;
  values.emplace_back(std::vector<float>(samples, 1.0f));
  values.push_back(std::move(targets));
  return std::make_shared<MemoryDataset>(
      std::vector<FieldSpec>{{"input", {{1}, DType::f32}}, {"target", sample}}, std::move(values),
      [](int64_t i) { return std::to_string(i); });
}

std::shared_ptr<const Dataset> labels(std::vector<int32_t> values) {
  const size_t samples = values.size();
  return with_targets({{}, DType::i32}, std::move(values), samples);
}

std::vector<int32_t> labels_of_targets(const Dataset& data) {
  std::vector<int64_t> samples(static_cast<size_t>(data.size()));
  std::iota(samples.begin(), samples.end(), 0);
  std::vector<int32_t> out(samples.size());
  data.gather(1, samples, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

}  // namespace

TEST_CASE("a label that the loss ignores becomes -100 and is not counted") {
  const auto data = ignore_label(labels({0, 255, 2, -100, 255}), 255);
  CHECK(labels_of_targets(*data) == std::vector<int32_t>{0, -100, 2, -100, -100});
  CHECK(data->label_bound() == 3);
  CHECK_FALSE(data->uniform_valid_targets());
  data->check_labels(3);
  CHECK(ignore_label(labels({0, 1}), 7)->uniform_valid_targets() == 1);
}

TEST_CASE("labels are counted") {
  CHECK(count_labels(*labels({0, 2, 2, -100})) == std::vector<int64_t>{1, 0, 2});
  CHECK_THROWS_AS(count_labels(*labels({1 << 30})), Error);
}

TEST_CASE("the divisor of a step is that of the global batch, whatever the layout") {
  const auto device = make_host_device("cpu", "");
  const auto data = labels({0, 1, 2, 1, -100, 0, 2, 2, 1});
  const std::vector<double> weights{0.1, 0.7, 1.9};
  Sampler sampler(9, 5, SampleOrder::shuffled);
  for (int64_t step : {0, 1, 2, 3}) {
    double expected = 0;
    int64_t valid = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const int32_t label =
          labels_of_targets(*data)[static_cast<size_t>(sampler.index(step * 4 + i))];
      if (label < 0) continue;
      expected += weights[static_cast<size_t>(label)];
      ++valid;
    }
    for (int world : {1, 2}) {
      for (int64_t micro : {1, 2}) {
        for (int rank = 0; rank < world; ++rank) {
          TrainLoader loader(data,
                             {.global_batch = 4,
                              .micro_batch = micro,
                              .rank = rank,
                              .world = world,
                              .first_step = step,
                              .first_sample = step * 4,
                              .seed = 5,
                              .target_weights = {.by_label = weights}},
                             *device);
          for (int64_t a = 0; a < 4 / (micro * world); ++a) {
            const Batch& batch = loader.next();
            CHECK(batch.loss_divisor == expected);
            CHECK(batch.valid_targets == valid);
          }
        }
      }
    }
  }
}

TEST_CASE("what counts are the targets of the batches, which training changes in each epoch") {
  const auto device = make_host_device("cpu", "");
  TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 60; ++i) bytes += {static_cast<char>(i * i % 7), '\0'};
  const std::string path = folder.write("ids.bin", bytes);
  for (const char* keys : {"random_offset: true", "mlm_probability: 0.4, mask_token_id: 0"}) {
    const auto tokens =
        read_data("type: tokens, layout: uint16, sequence_length: 5, path: '" + path + "', " + keys)
            .open()
            .train;
    const auto ignoring = ignore_label(tokens, 2);
    CHECK(ignoring->label_bound() == tokens->label_bound());
    for (const auto& data : {tokens, ignoring}) {
      for (const std::vector<double>& weights :
           {std::vector<double>{}, std::vector<double>{0.5, 2, 1, 4, 0.25}}) {
        TargetCount count;
        const auto add = [&](const Batch& batch) {
          const auto* targets = reinterpret_cast<const int32_t*>(batch.fields[1]);
          for (int64_t i = 0; i < batch.samples * 5; ++i) {
            if (targets[i] < 0) continue;
            ++count.valid;
            count.divisor += weights.empty() ? 1 : weights[static_cast<size_t>(targets[i])];
          }
        };
        const auto check = [&](const Batch& batch) {
          CHECK(batch.valid_targets == count.valid);
          CHECK(batch.loss_divisor == count.divisor);
          count = {};
        };
        TrainLoader loader(data,
                           {.global_batch = 4,
                            .micro_batch = 2,
                            .seed = 3,
                            .target_weights = {.by_label = weights}},
                           *device);
        for (int step = 0; step < 12; ++step) {
          add(loader.next());
          const Batch& last = loader.next();
          add(last);
          check(last);
        }
        EvalLoader evaluation(data, 4, 0, 1, *device, {}, {.by_label = weights});
        while (const Batch* batch = evaluation.next()) {
          add(*batch);
          check(*batch);
        }
      }
    }
  }
}

TEST_CASE("a distribution over three classes is one target, three numbers are three") {
  const auto device = make_host_device("cpu", "");
  const auto data = with_targets({{3}, DType::f32}, std::vector<float>(15, 0.5f), 5);
  CHECK(data->uniform_valid_targets() == 3);
  for (const auto& [group, each, valid, divisor] :
       {std::tuple{1, 1.0, 12, 12.0}, {3, 1.0, 4, 4.0}, {3, 3.0, 4, 12.0}}) {
    TrainLoader loader(
        data,
        {.global_batch = 4, .micro_batch = 2, .target_weights = {.group = group, .each = each}},
        *device);
    for (int i = 0; i < 3; ++i) {
      const Batch& batch = loader.next();
      CHECK(batch.valid_targets == valid);
      CHECK(batch.loss_divisor == divisor);
    }
  }
}

TEST_CASE("padded f32 targets are NaN and do not count") {
  const auto device = make_host_device("cpu", "");
  const auto numbers = with_targets({{1}, DType::f32}, std::vector<float>{1, std::nanf(""), 3}, 3);
  for (const auto& gaps : {numbers, labels_as_targets(labels({1, 0, -100}))}) {
    EvalLoader all(gaps, 3, 0, 1, *device);
    const Batch* batch = all.next();
    CHECK(batch->valid_targets == 2);
    CHECK(batch->loss_divisor == 2);
  }
  const auto data = with_targets({{2}, DType::f32}, std::vector<float>{1, 2, 3, 4, 5, 6}, 3);
  EvalLoader loader(data, 2, 0, 1, *device);
  loader.start();
  const Batch* batch = loader.next();
  REQUIRE(batch != nullptr);
  CHECK(batch->valid_targets == 4);
  batch = loader.next();
  REQUIRE(batch != nullptr);
  CHECK(batch->valid_targets == 2);
  CHECK(batch->loss_divisor == 2);
  const auto* targets = reinterpret_cast<const float*>(batch->fields[1]);
  CHECK(targets[0] == 5);
  CHECK(targets[1] == 6);
  CHECK(std::isnan(targets[2]));
  CHECK(std::isnan(targets[3]));
}
