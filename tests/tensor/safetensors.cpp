#include "tensor/safetensors.h"

#include <cstring>
#include <random>

#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

void write_sample(const fs::path& path) {
  FileWriter file(path);
  SafetensorsWriter writer(file,
                           {{"w", {{2, 3}, DType::f32}},
                            {"none", {{0, 4}, DType::bf16}},
                            {"labels", {{3}, DType::i64}},
                            {"scalar", {{}, DType::u8}}},
                           {{"format", "pt"}, {"note", "quotes \" and ü"}});
  const std::vector<float> w{1, 2, 3, 4, 5, 6};
  writer.write("w", bytes_of(w).first(10));
  writer.write("w", bytes_of(w).subspan(10));
  writer.write("labels", bytes_of(std::vector<int64_t>{7, -8, 9}));
  writer.write("scalar", bytes_of(std::vector<uint8_t>{255}));
  writer.finish();
  file.close();
}

std::string file_of(const std::string& header, const std::string& data = {}) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors", ExitCode::data);
}

// The message of the refusal; every refusal is Error(data) and names the file and an offset.
std::string refusal_safetensors(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK_THAT(error.location(), Contains("x.safetensors (offset "));
    return error.what();
  }
  FAIL("accepted");
  return {};
}

}  // namespace

TEST_CASE("what is written to a safetensors file is read back") {
  TemporaryFolder folder;
  const fs::path path = folder / "a.safetensors";
  write_sample(path);
  const SafetensorsFile file(path, ExitCode::storage);
  CHECK(file.entries().size() == 4);
  CHECK(file.metadata().at("note") == "quotes \" and ü");
  const SafetensorsEntry& w = file.at("w");
  CHECK(to_string(w.spec) == "f32[2, 3]");
  float values[6];
  REQUIRE(file.data(w).size() == sizeof values);
  std::memcpy(values, file.data(w).data(), sizeof values);
  CHECK(values[5] == 6.0f);
  int64_t labels[3];
  std::memcpy(labels, file.data(file.at("labels")).data(), sizeof labels);
  CHECK(labels[1] == -8);
  CHECK(file.at("scalar").spec.shape.rank() == 0);
  CHECK(file.data(file.at("none")).empty());
  CHECK(file.find("missing") == nullptr);
  CHECK_THROWS_WITH(file.at("missing"), Contains("no tensor 'missing'; the file has 4: labels,"));
  // The data of the first tensor is aligned in the file.
  CHECK((slurp(path).size() - (24 + 24 + 1)) % 64 == 0);
}

TEST_CASE("a file with no tensors is fine") {
  CHECK(parse(file_of("{}")).entries.empty());
  CHECK(parse(file_of("{}      ")).entries.empty());
  CHECK(parse(file_of(R"({"__metadata__":{"a":"b"}})")).metadata.at("a") == "b");
}

TEST_CASE("tensors may stand in any order in the header") {
  const SafetensorsHeader header = parse(file_of(
      R"({"b":)" + entry("I32", "[1]", "[1,5]") + R"(,"a":)" + entry("U8", "[1]", "[0,1]") + "}",
      "12345"));
  CHECK(header.entries[0].name == "a");
  CHECK(header.entries[1].begin == 1);
}

TEST_CASE("a malformed header is refused with its reason") {
  const auto tensor = [](const std::string& value) {
    return file_of(R"({"t":)" + value + "}", "1234");
  };
  CHECK_THAT(refusal_safetensors(""), Contains("has 0 bytes"));
  CHECK_THAT(refusal_safetensors(std::string(100, '\xff')),
             Contains("a header of 18446744073709551615"));
  CHECK_THAT(refusal_safetensors("radius,class\n1,yes\n"),
             Contains("not a safetensors file: it begins with the text 'radius,class'"));
  std::string truncated = file_of("{}");
  truncated[0] = 127;
  CHECK_THAT(refusal_safetensors(truncated), Contains("truncated: a header of 127"));
  CHECK_THAT(refusal_safetensors(file_of(" {}")), Contains("does not begin with '{'"));
  CHECK_THAT(refusal_safetensors(file_of("{} x")), Contains("not valid JSON"));
  CHECK_THAT(refusal_safetensors(file_of(R"({"t":1})")), Contains("'t' is not an object"));
  CHECK_THAT(refusal_safetensors(file_of(R"({"__metadata__":{"a":1}})")),
             Contains("'a' is no string"));
  CHECK_THAT(refusal_safetensors(file_of("{\"\xff\":1}")), Contains("not valid JSON"));
  CHECK_THAT(refusal_safetensors(tensor("{}")), Contains("lacks dtype, shape or data_offsets"));
  CHECK_THAT(refusal_safetensors(tensor(R"({"dtype":{"a":1}})")), Contains("nested too deeply"));
  CHECK_THAT(refusal_safetensors(tensor(R"({"shape":)" + std::string(100000, '['))),
             Contains("unexpected"));
  CHECK_THAT(refusal_safetensors(tensor(R"({"dtype":"F32","dtype":"F32"})")),
             Contains("repeated value"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F99", "[1]", "[0,4]"))), Contains("dtype 'F99'"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[-1]", "[0,4]"))), Contains("unexpected"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[1.0]", "[0,4]"))), Contains("unexpected"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[1,1,1,1,1,1,1]", "[0,4]"))),
             Contains("7 dimensions"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[1]", "[0,4,4]"))),
             Contains("3 data offsets"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[1]", "[4,0]"))), Contains("[4, 0)"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[2]", "[0,8]"))), Contains("truncated?"));
  CHECK_THAT(refusal_safetensors(tensor(entry("F32", "[2]", "[0,4]"))), Contains("needs 8 bytes"));
  CHECK_THAT(refusal_safetensors(tensor(entry("U8", "[3]", "[0,3]"))), Contains("1 bytes follow"));
  CHECK_THAT(refusal_safetensors(tensor(entry("U8", "[3]", "[1,4]"))),
             Contains("leaving a gap from byte 0"));
}

TEST_CASE("products of extents that overflow are refused") {
  for (const char* shape :
       {"[4294967296,4294967296]", "[18446744073709551615]", "[0,4294967296,4294967296]",
        "[3,6148914691236517206]", "[0,1125899906842624]"}) {
    CHECK_THAT(refusal_safetensors(file_of(R"({"t":)" + entry("U8", shape, "[0,0]") + "}")),
               Contains("impossible shape"));
  }
}

TEST_CASE("names must be unique and tensors may not overlap") {
  CHECK_THAT(refusal_safetensors(file_of(R"({"t":)" + entry("U8", "[1]", "[0,1]") + R"(,"t":)" +
                                             entry("U8", "[1]", "[1,2]") + "}",
                                         "12")),
             Contains("the name 't' twice"));
  CHECK_THAT(
      refusal_safetensors(file_of(
          R"({"a":)" + entry("U8", "[2]", "[0,2]") + R"(,"b":)" + entry("U8", "[2]", "[1,3]") + "}",
          "123")),
      Contains("tensor 'b' begins at byte 1 of the data, inside another that ends at byte 2"));
}

TEST_CASE("a file cut at any byte is refused") {
  TemporaryFolder folder;
  write_sample(folder / "a");
  const std::string whole = slurp(folder / "a");
  for (size_t size = 0; size < whole.size(); ++size) refusal_safetensors(whole.substr(0, size));
  refusal_safetensors(whole + "x");
  parse(whole);
}

TEST_CASE("random damage is refused or gives tensors that lie inside the file") {
  TemporaryFolder folder;
  write_sample(folder / "a");
  const std::string whole = slurp(folder / "a");
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = whole;
    for (int n = static_cast<int>(random() % 3); n >= 0; --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    try {
      const SafetensorsHeader header = parse(damaged);
      for (const SafetensorsEntry& tensor : header.entries) {
        REQUIRE(header.data_offset + tensor.begin + tensor.spec.bytes() <= damaged.size());
      }
    } catch (const Error& error) {
      ++refused;
      REQUIRE(error.code() == ExitCode::data);
    }
  }
  CHECK(refused > 5000);
}

TEST_CASE("the writer refuses a wrong order and a missing tensor") {
  TemporaryFolder folder;
  FileWriter file(folder / "a");
  SafetensorsWriter writer(file, {{"a", {{1}, DType::u8}}, {"b", {{1}, DType::u8}}});
  const std::vector<uint8_t> one{1};
  CHECK_THROWS_AS(writer.write("b", bytes_of(one)), Error);
  writer.write("a", bytes_of(one));
  CHECK_THROWS_AS(writer.finish(), Error);
  writer.write("b", bytes_of(one));
  writer.finish();
  CHECK_THROWS_AS(writer.write("b", bytes_of(one)), Error);
}

TEST_CASE("the Python package reads what is written", "[python]") {
  const char* python = std::getenv("DLTRAIN_TEST_PYTHON");
  const std::string command = std::string(python ? python : "python3") + " -c ";
  if (std::system((command + "'import safetensors.numpy' 2>/dev/null").c_str()) != 0) {
    WARN("Skipped: no Python with the safetensors package (set DLTRAIN_TEST_PYTHON)");
    return;
  }
  TemporaryFolder folder;
  write_sample(folder / "a");
  // bf16 has no numpy type, so the empty one is not asked for.
  const std::string script = "from safetensors import safe_open; f = safe_open(\"" +
                             (folder / "a").string() +
                             "\", \"np\"); assert f.metadata()[\"format\"] == \"pt\"; "
                             "assert f.get_tensor(\"w\").tolist() == [[1, 2, 3], [4, 5, 6]]; "
                             "assert f.get_tensor(\"labels\").tolist() == [7, -8, 9]; "
                             "assert f.get_tensor(\"scalar\") == 255; assert len(f.keys()) == 4";
  CHECK(std::system((command + "'" + script + "'").c_str()) == 0);
}
