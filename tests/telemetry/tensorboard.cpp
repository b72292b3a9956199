// Event files: framing and checksums, by the format's definition. tests/apps/test_tensorboard.py
// reads the files of runs, with TensorBoard's own reader where that is installed.
#include "telemetry/tensorboard.h"

#include <cmath>

#include "catch.h"
#include "telemetry/record_file.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

std::string content(const std::filesystem::path& folder) {
  return read_file(event_file(folder), 1 << 24, ExitCode::storage);
}

std::vector<int64_t> steps_of(const std::string& text) {
  std::vector<int64_t> steps;
  for (const Record& record : read_records(text)) {
    steps.push_back(event_step(record.bytes));
  }
  return steps;
}

}  // namespace

TEST_CASE("crc32c gives the values of RFC 3720") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43);
  CHECK(masked_crc32c("") == 0xA282EAD8);
}

TEST_CASE("records come back whole, up to the first that is cut or damaged") {
  const std::vector<std::string> texts{"", "a", std::string(1000, 'x'), std::string("\0\n", 2)};
  std::string file;
  std::vector<size_t> ends{0};
  for (const std::string& text : texts) ends.push_back((file += framed_record(text)).size());
  const auto whole = read_records(file);
  REQUIRE(whole.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    CHECK(whole[i].bytes == texts[i]);
    CHECK(whole[i].end == ends[i + 1]);
  }
  for (size_t cut = 0; cut < file.size(); ++cut) {
    const auto at = std::upper_bound(ends.begin(), ends.end(), cut) - ends.begin() - 1;
    CHECK(read_records(std::string_view(file).substr(0, cut)).size() == static_cast<size_t>(at));
    std::string damaged = file;
    damaged[cut] = static_cast<char>(damaged[cut] ^ 1);
    CHECK(read_records(damaged).size() == static_cast<size_t>(at));
  }
}

TEST_CASE("an event file begins with its version and is cut at the step that a run resumes from") {
  const TemporaryFolder folder;
  const auto clock = [] { return 1.5; };
  {
    TensorBoardWriter writer(folder.path(), std::nullopt, clock);
    for (int64_t step : {1, 2, 300}) writer.add_scalar(step, "loss", 0.5);
  }
  const std::string before = content(folder.path());
  CHECK(steps_of(before) == std::vector<int64_t>{0, 1, 2, 300});
  CHECK(before.find("brain.Event:2") != std::string::npos);
  // A record that a kill has cut does not stop the next start.
  write_file_atomically(event_file(folder.path()), before + "garbage");
  {
    TensorBoardWriter writer(folder.path(), 2, clock);
    writer.add_scalar(3, "loss", 0.25);
  }
  CHECK(steps_of(content(folder.path())) == std::vector<int64_t>{0, 1, 2, 3});
  { TensorBoardWriter writer(folder.path(), std::nullopt, clock); }
  CHECK(steps_of(content(folder.path())) == std::vector<int64_t>{0});
}

TEST_CASE("histograms take equal values, values that are not finite, and none") {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), std::nullopt);
  const auto records = [&] { return read_records(content(folder.path())).size(); };
  writer.add_histogram(1, "w", {});
  CHECK(records() == 1);
  writer.add_histogram(1, "w", std::vector<float>(5, 3.0f));
  CHECK(records() == 2);
  writer.add_histogram(1, "w", std::vector<float>{NAN, INFINITY});
  CHECK(records() == 3);
  CHECK(content(folder.path()).find("w_not_finite") != std::string::npos);
}
