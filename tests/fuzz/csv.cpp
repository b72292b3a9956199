// libFuzzer entry: any bytes as a CSV file. Allowed: a dataset, or Error(data).
#include "data/csv.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  if (size == 0) return 0;
  // The first byte chooses the options.
  CsvOptions options;
  if (data[0] & 64) options.hints.header = data[0] & 1;
  options.embedded = data[0] & 128;
  if (data[0] & 1) options.empty = EmptyCells::category;
  options.regression = data[0] & 2;
  if (data[0] & 4) options.target = "first";
  if (data[0] & 8) options.rows = {{1, 3}};
  if (data[0] & 16) options.scaling = {.scale = 0.5, .mean = {1}, .std = {2}};
  if (data[0] & 32 && !options.regression) options.classes = 10;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
    const auto dataset = load_csv(options, [&] { return LineReader("fuzz", text); });
    if (dataset->size() < 1) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
