// Weights in codes against bitsandbytes' record (scripts/record_golden_weight_codes.py), to the
// bit.
#include "tensor/weight_codes.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "catch.h"

using namespace dltrain;

namespace {

std::vector<float> formula_weight(int64_t rows, int64_t columns, uint64_t salt) {
  std::vector<float> out;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto bits = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u + salt * 40503u);
    const double x = static_cast<double>(bits) / 2147483648.0 - 1;
    out.push_back(static_cast<float>(x * x * x * static_cast<double>(1 + i / columns % 5)));
  }
  return out;
}

std::string fnv(std::span<const std::byte> bytes) {
  uint64_t hash = 14695981039346656037u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211u;
  return fmt::format("{:016x}", hash);
}

}  // namespace

TEST_CASE("codes, scales and expanded values are those of bitsandbytes, to the bit") {
  const auto golden = nlohmann::json::parse(read_file(
      DLTRAIN_SOURCE_DIR "/tests/golden/weight_codes.json", uint64_t{1} << 20, ExitCode::internal));
  REQUIRE(golden["cases"].size() == 9);
  for (const auto& c : golden["cases"]) {
    INFO(c.dump());
    const WeightCodes codes{c["format"] == "int8" ? WeightFormat::int8 : WeightFormat::nf4,
                            c["double_quantization"]};
    const int64_t rows = c["rows"], columns = c["columns"];
    const auto parts =
        encode_weight(codes, rows, columns, formula_weight(rows, columns, c["salt"]));
    const auto specs = coded_parts(codes, rows, columns);
    REQUIRE(parts.size() == c["parts"].size());
    REQUIRE(parts.size() == specs.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      INFO(specs[i].kind);
      CHECK(parts[i].size() == specs[i].spec.bytes());
      CHECK(c["parts"][i] == fnv(parts[i]));
    }
    const auto values = decode_weight(codes, rows, columns, parts);
    CHECK(c["values"] == fnv(std::as_bytes(std::span(values))));
  }
}

TEST_CASE("a block of zeros and a matrix of zeros stay zeros") {
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
    for (const bool nested : {false, true}) {
      if (nested && format == WeightFormat::int8) continue;
      std::vector<float> weight(3 * 70, 0.0f);
      const WeightCodes codes{format, nested};
      CHECK(decode_weight(codes, 3, 70, encode_weight(codes, 3, 70, weight)) == weight);
      std::fill(weight.begin() + 140, weight.end(), 2.0f);
      const auto values = decode_weight(codes, 3, 70, encode_weight(codes, 3, 70, weight));
      CHECK(std::all_of(values.begin(), values.begin() + 64, [](float v) { return v == 0; }));
      CHECK(values.back() == 2);
    }
  }
}
