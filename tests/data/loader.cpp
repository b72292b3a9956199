#include "data/loader.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <stdexcept>

#include "base/error.h"
#include "catch.h"
#include "data/image_dataset.h"
#include "data/memory_dataset.h"
#include "shared/host_memory.h"

using namespace dltrain;

namespace {

// Sample i has the input {i, i + 0.5}; every third label is ignored if `gaps`.
std::shared_ptr<const Dataset> numbered(int64_t samples, bool gaps = false) {
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < samples; ++i) {
    inputs.push_back(static_cast<float>(i));
    inputs.push_back(static_cast<float>(i) + 0.5f);
    labels.push_back(gaps && i % 3 == 0 ? kIgnoredLabel : static_cast<int32_t>(i));
  }
  std::vector<FieldValues> values;
  values.emplace_back(std::move(inputs));
  values.emplace_back(std::move(labels));
  return std::make_shared<MemoryDataset>(
      std::vector<FieldSpec>{{"input", {{2}, DType::f32}}, {"target", {{}, DType::i32}}},
      std::move(values), [](int64_t i) { return std::to_string(i); });
}

// The sample numbers of a batch, each checked in all fields.
std::vector<int64_t> samples_of(const Batch& batch) {
  const auto* inputs = reinterpret_cast<const float*>(batch.fields[0]);
  const auto* labels = reinterpret_cast<const int32_t*>(batch.fields[1]);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < batch.samples; ++i) {
    CHECK(inputs[2 * i + 1] == inputs[2 * i] + 0.5f);
    CHECK((labels[i] == kIgnoredLabel || static_cast<float>(labels[i]) == inputs[2 * i]));
    samples.push_back(static_cast<int64_t>(inputs[2 * i]));
  }
  CHECK(reinterpret_cast<uintptr_t>(inputs) % 64 == 0);
  CHECK(reinterpret_cast<uintptr_t>(labels) % 64 == 0);
  return samples;
}

struct Expected {
  std::vector<int64_t> samples;
  int64_t valid = 0;
};

// The global batch of a step, put together from all ranks and micro-batches.
Expected global_batch(const std::shared_ptr<const Dataset>& data, int64_t step, int world,
                      int64_t micro, int64_t first_step, int workers, Device& device) {
  Expected all;
  all.samples.resize(12);
  for (int rank = 0; rank < world; ++rank) {
    TrainLoader loader(data,
                       {.global_batch = 12,
                        .micro_batch = micro,
                        .rank = rank,
                        .world = world,
                        .first_step = first_step,
                        .first_sample = first_step * 12,
                        .seed = 7,
                        .workers = workers},
                       device);
    const int64_t micros = 12 / micro / world;
    for (int64_t skip = (step - first_step) * micros; skip > 0; --skip) loader.next();
    for (int64_t a = 0; a < micros; ++a) {
      const Batch& batch = loader.next();
      CHECK(batch.step == step);
      CHECK(batch.micro == a);
      CHECK(batch.position == step * 12 + batch.sample_offset);
      CHECK(batch.sample_offset == (rank * micros + a) * micro);
      all.valid = batch.valid_targets;
      const auto samples = samples_of(batch);
      std::copy(samples.begin(), samples.end(), all.samples.begin() + batch.sample_offset);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("the global batch is the same for every layout, start and number of workers") {
  const auto device = make_host_device("cpu", "");
  const auto data = numbered(17, true);
  Sampler sampler(17, 7, SampleOrder::shuffled);
  for (int64_t step : {0, 1, 2, 5}) {
    Expected expected;
    for (int64_t i = 0; i < 12; ++i) {
      expected.samples.push_back(sampler.index(step * 12 + i));
      expected.valid += expected.samples.back() % 3 != 0;
    }
    for (int world : {1, 2, 3}) {
      for (int64_t micro : {1, 2, 4}) {
        if (12 % (micro * world)) continue;
        for (int workers : {0, 1, 3}) {
          for (int64_t first : {int64_t{0}, step}) {
            const Expected got = global_batch(data, step, world, micro, first, workers, *device);
            CHECK(got.samples == expected.samples);
            CHECK(got.valid == expected.valid);
          }
        }
      }
    }
  }
}

TEST_CASE("batches of another size continue at the next sample") {
  const auto device = make_host_device("cpu", "");
  const auto data = numbered(17, true);
  Sampler sampler(17, 7, SampleOrder::shuffled);
  // Five steps of 12 samples, then steps of 8.
  for (int rank : {0, 1}) {
    TrainLoader loader(data,
                       {.global_batch = 8,
                        .micro_batch = 2,
                        .rank = rank,
                        .world = 2,
                        .first_step = 5,
                        .first_sample = 60,
                        .seed = 7},
                       *device);
    for (int64_t i = 0; i < 6; ++i) {
      const Batch& batch = loader.next();
      const int64_t begin = 60 + i / 2 * 8, position = begin + rank * 4 + i % 2 * 2;
      CHECK(batch.step == 5 + i / 2);
      CHECK(batch.position == position);
      CHECK(samples_of(batch) ==
            std::vector<int64_t>{sampler.index(position), sampler.index(position + 1)});
      int64_t valid = 0;
      for (int64_t at = begin; at < begin + 8; ++at) valid += sampler.index(at) % 3 != 0;
      CHECK(batch.valid_targets == valid);
    }
  }
}

TEST_CASE("the newest batches stay as they were while they are held") {
  const auto device = make_host_device("cpu", "");
  const auto data = numbered(100);
  TrainLoader loader(
      data,
      {.global_batch = 1, .micro_batch = 1, .order = SampleOrder::file, .slots = 4, .held = 3},
      *device);
  std::vector<const Batch*> last;
  for (int64_t step = 0; step < 300; ++step) {
    last.push_back(&loader.next());
    for (int64_t back = 0; back < std::min<int64_t>(3, step + 1); ++back) {
      const Batch& batch = *last[static_cast<size_t>(step - back)];
      REQUIRE(batch.step == step - back);
      REQUIRE(samples_of(batch) == std::vector<int64_t>{(step - back) % 100});
    }
  }
}

TEST_CASE("an evaluation sees every sample once, on any number of ranks, padded at the end") {
  const auto device = make_host_device("cpu", "");
  for (int64_t size : {1, 4, 7, 8, 9}) {
    const auto data = numbered(size, true);
    for (int world : {1, 2, 3}) {
      std::map<int64_t, int> seen;
      int64_t valid = 0, batches = -1;
      for (int rank = 0; rank < world; ++rank) {
        EvalLoader loader(data, 4, rank, world, *device);
        if (batches >= 0) CHECK(loader.batches() == batches);
        batches = loader.batches();
        for (int pass = 0; pass < 2; ++pass) {
          int64_t count = 0;
          loader.start();
          while (const Batch* batch = loader.next()) {
            ++count;
            for (int64_t sample : samples_of(*batch)) seen[sample] += 1;
            valid += batch->valid_targets;
            for (int64_t i = batch->samples; i < 4; ++i) {
              CHECK(reinterpret_cast<const int32_t*>(batch->fields[1])[i] == kIgnoredLabel);
              CHECK(reinterpret_cast<const float*>(batch->fields[0])[2 * i] == 0);
            }
          }
          CHECK(count == batches);
        }
      }
      CHECK(static_cast<int64_t>(seen.size()) == size);
      for (const auto& [sample, count] : seen) CHECK(count == 2);
      CHECK(valid == 2 * (size - (size + 2) / 3));
    }
  }
  EvalLoader part(numbered(9), 4, 0, 1, *device, 5);
  CHECK(part.samples() == 5);
  CHECK(part.next()->samples == 4);
  CHECK(part.next()->samples == 1);
  CHECK(part.next() == nullptr);
}

TEST_CASE("an error of a worker surfaces in next(), in its turn, and stays") {
  for (int workers : {0, 1, 4}) {
    Prefetcher prefetch({.workers = workers, .slots = 3}, [](int worker, int64_t sequence, int) {
      // Every worker fails in its part; the first part's error is told.
      if (sequence == 5) throw Error(ExitCode::data, fmt::format("sample 5 is bad: {}", worker));
    });
    for (int i = 0; i < 5; ++i) CHECK(prefetch.next() == i % 3);
    CHECK_THROWS_WITH(prefetch.next(), "sample 5 is bad: 0");
    CHECK_THROWS_WITH(prefetch.next(), "sample 5 is bad: 0");
  }
}

TEST_CASE("slots are filled ahead, never overwritten early, and the wait is measured") {
  std::atomic<int64_t> filled{0};
  std::vector<std::array<int64_t, 2>> content(4, {-1, -1});  // by slot, the parts of two workers
  {
    Prefetcher prefetch({.workers = 2, .slots = 4, .held = 2, .first = 10, .last = 200},
                        [&](int worker, int64_t sequence, int slot) {
                          content[static_cast<size_t>(slot)][static_cast<size_t>(worker)] =
                              sequence;
                          ++filled;
                        });
    while (filled < 8) std::this_thread::yield();
    for (int64_t sequence = 10; sequence < 200; ++sequence) {
      const int slot = prefetch.next();
      CHECK(content[static_cast<size_t>(slot)] == std::array{sequence, sequence});
      CHECK(filled <= 2 * (sequence - 10 + 4));
    }
    CHECK(prefetch.next() == -1);
    CHECK(prefetch.next() == -1);
  }
  CHECK(filled == 380);

  Prefetcher slow({.workers = 1, .slots = 2}, [](int, int64_t, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  for (int i = 0; i < 5; ++i) slow.next();
  CHECK(slow.wait_seconds() > 0.04);
}

TEST_CASE("a loader is destroyed at any time without hanging") {
  const auto device = make_host_device("cpu", "");
  const auto data = numbered(50);
  for (int taken = 0; taken < 30; ++taken) {
    TrainLoader loader(data, {.global_batch = 4, .micro_batch = 2, .workers = 1 + taken % 3},
                       *device);
    for (int i = 0; i < taken; ++i) loader.next();
  }
  SUCCEED();
}

TEST_CASE("images are changed by their position in the order, whatever the layout") {
  const auto device = make_host_device("cpu", "");
  constexpr int64_t kPixels = 3 * 4 * 2;
  std::vector<float> pixels(5 * kPixels);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i % 7);
  std::vector<FieldValues> values;
  values.emplace_back(pixels);
  values.emplace_back(std::vector<int32_t>{0, 1, 2, 3, 4});
  const auto plain = std::make_shared<MemoryDataset>(
      std::vector<FieldSpec>{{"input", {{3, 4, 2}, DType::f32}}, {"target", {{}, DType::i32}}},
      std::move(values), [](int64_t i) { return std::to_string(i); });
  const RandomAffineOptions options{.rotate = 20, .scale = 0.1, .translate = 1};
  const auto data = transform_samples(plain, {.transforms = {}, .random_affine = options});
  const RandomAffine affine(options, ImageSize{3, 4, 2});
  std::vector<float> memory;
  for (int64_t micro : {1, 2, 4}) {
    for (int workers : {0, 2}) {
      TrainLoader loader(
          data, {.global_batch = 4, .micro_batch = micro, .seed = 7, .workers = workers}, *device);
      for (int64_t position = 0; position < 12; position += micro) {
        const Batch& batch = loader.next();
        const auto* images = reinterpret_cast<const float*>(batch.fields[0]);
        const auto* labels = reinterpret_cast<const int32_t*>(batch.fields[1]);
        for (int64_t i = 0; i < micro; ++i) {
          std::vector<float> expected(pixels.begin() + labels[i] * kPixels,
                                      pixels.begin() + (labels[i] + 1) * kPixels);
          affine.apply(7, position + i, expected.data(), memory);
          CHECK(std::vector<float>(images + i * kPixels, images + (i + 1) * kPixels) == expected);
        }
      }
    }
  }
}

TEST_CASE("f32 targets are padded with what does not count") {
  const auto device = make_host_device("cpu", "");
  std::vector<FieldValues> values;
  values.emplace_back(std::vector<float>{1, 2, 3});
  values.emplace_back(std::vector<float>{4, 5, 6});
  const auto data = std::make_shared<MemoryDataset>(
      std::vector<FieldSpec>{{"input", {{1}, DType::f32}}, {"target", {{1}, DType::f32}}},
      std::move(values), [](int64_t i) { return std::to_string(i); });
  for (int workers : {1, 2}) {
    EvalLoader loader(data, 4, 0, 1, *device, {}, {}, workers);
    const Batch* batch = loader.next();
    const auto* inputs = reinterpret_cast<const float*>(batch->fields[0]);
    const auto* targets = reinterpret_cast<const float*>(batch->fields[1]);
    CHECK(std::vector<float>(inputs, inputs + 4) == std::vector<float>{1, 2, 3, 0});
    CHECK(std::vector<float>(targets, targets + 3) == std::vector<float>{4, 5, 6});
    CHECK(std::isnan(targets[3]));
    CHECK(batch->valid_targets == 3);
  }
}
