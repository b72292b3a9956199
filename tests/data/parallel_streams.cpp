#include "data/sampler.h"
#include "data/token_windows.h"
#include "read_data.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

using ParallelStreamsIds = std::vector<int32_t>;

// ParallelStreamsIds 0, 1, 2, …
std::shared_ptr<const Dataset> counting(const TemporaryFolder& folder, int count,
                                        const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
  const auto path = folder.write("ids.bin", bytes);
  return read_data("type: tokens, path: '" + path.string() + "', sequence_length: 3, " + rest)
      .open()
      .train;
}

}  // namespace

TEST_CASE("each row of a batch continues where it ended in the batch before") {
  TemporaryFolder folder;
  const auto windows = counting(folder, 3 * 11 + 1, "random_offset: false, sampling: streams");
  const auto data = parallel_streams(windows, 2, "data.train");
  CHECK(data->size() == 10);  // a window is left out
  for (int64_t sample = 0; sample < data->size(); ++sample) {
    const int first = static_cast<int>(sample % 2 * 15 + sample / 2 * 3);
    CHECK(ids_of(*data, 0, sample) == ParallelStreamsIds{first, first + 1, first + 2});
    CHECK(ids_of(*data, 1, sample) == ParallelStreamsIds{first + 1, first + 2, first + 3});
  }
  CHECK(data->location_of(1) == windows->location_of(5));
  CHECK(read_data("type: tokens, path: a, sequence_length: 3, sampling: streams").train->order() ==
        SampleOrder::file);
  CHECK_THROWS_WITH(parallel_streams(windows, 12, "data.eval"),
                    Contains("data.eval has 11 sequences") && Contains("12 streams"));
}

TEST_CASE("rows go on also where windows are shifted in each epoch") {
  TemporaryFolder folder;
  const auto windows = counting(folder, 3 * 12 + 1, "random_offset: true, sampling: streams");
  const auto data = parallel_streams(windows, 2, "data.train");
  REQUIRE(data->size() == 10);
  std::vector<int32_t> offsets;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    for (int64_t sample = 0; sample < data->size(); ++sample) {
      const ParallelStreamsIds ids = training_ids_of(*data, 0, sample, {7, epoch * 10 + sample});
      const int first = static_cast<int>(sample % 2 * 15 + sample / 2 * 3);
      if (sample == 0) offsets.push_back(ids[0]);
      CHECK(ids[0] == first + offsets.back());
    }
    // All at once is the same.
    std::vector<int64_t> samples{0, 1, 2, 3};
    ParallelStreamsIds together(12);
    data->gather_training(0, samples, {7, epoch * 10},
                          reinterpret_cast<std::byte*>(together.data()));
    CHECK(together[9] == training_ids_of(*data, 0, 3, {7, epoch * 10 + 3})[0]);
  }
  CHECK(std::count(offsets.begin(), offsets.end(), offsets[0]) < 20);
}

TEST_CASE("streams are cut from one text, in order") {
  CHECK_THROWS_WITH(read_data("type: synthetic, sampling: streams"),
                    Contains("streams need one text"));
  CHECK_THROWS_WITH(read_data("type: jsonl, path: a, tokenizer: byte, prompt: a, completion: b, "
                              "sequence_length: 4, sampling: streams"),
                    Contains("streams need one text"));
  CHECK_THROWS_WITH(read_data("type: tokens, path: a, sequence_length: 4, sampling: streams, "
                              "shuffle: true"),
                    Contains("need shuffle: false"));
  CHECK_THROWS_WITH(read_data("type: tokens, sequence_length: 4, train: {path: a, sampling: "
                              "streams}, eval: {path: b}"),
                    Contains("or neither"));
}
