#include "tensor/npy.h"

#include "base/error.h"
#include "catch.h"
#include "refusal.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

std::string npy(std::string header, const std::string& data, char version = 1) {
  std::string out = "\x93NUMPY";
  out += version;
  out += '\0';
  const size_t size = header.size();
  out += static_cast<char>(size & 255);
  out += static_cast<char>(size >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + header + data;
}

std::string refusal_npy(const std::string& content) {
  return refusal_of([&] { parse_npy(std::as_bytes(std::span(content)), ExitCode::data); });
}

const char* const kHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";

}  // namespace

TEST_CASE(".npy arrays are read in every version and small type") {
  TemporaryFolder folder;
  const std::string data(24, 'a');
  for (char version : {1, 2, 3}) {
    const NpyFile file(folder.write("a.npy", npy(kHeader, data, version)), ExitCode::data);
    CHECK(to_string(file.spec()) == "f32[2, 3]");
    CHECK(file.data().size() == 24);
    CHECK(file.data()[0] == std::byte{'a'});
  }
  const auto spec = [](const char* type, const char* shape, size_t bytes) {
    const std::string content =
        npy(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}}}", type, shape),
            std::string(bytes, '\0'));
    return to_string(parse_npy(std::as_bytes(std::span(content)), ExitCode::data).spec);
  };
  CHECK(spec("|u1", "(5,)", 5) == "u8[5]");
  CHECK(spec("<i8", "()", 8) == "i64[]");
  CHECK(spec("<f2", "(1, 2, 2)", 8) == "f16[1, 2, 2]");
  CHECK(spec("|b1", "(3,)", 3) == "bool[3]");
}

TEST_CASE(".npy files that are cut, foreign, of other types or hostile are refused") {
  const std::string data(24, 'a');
  CHECK_THAT(refusal_npy(""), Contains("no .npy file"));
  CHECK_THAT(refusal_npy("hello world, this is text"), Contains("no .npy file"));
  CHECK_THAT(refusal_npy(npy(kHeader, data).substr(0, 9)), Contains("header is missing"));
  CHECK_THAT(refusal_npy(npy(kHeader, data).substr(0, 30)), Contains("is announced"));
  CHECK_THAT(refusal_npy(npy(kHeader, data.substr(1))),
             Contains("truncated by its size: 23 bytes"));
  CHECK_THAT(refusal_npy(npy(kHeader, data + "x")), Contains("damaged by its size"));
  CHECK_THAT(refusal_npy(npy(kHeader, data, 9)), Contains("version 9"));
  const auto with = [&](const char* type, const char* order, const char* shape) {
    return refusal_npy(
        npy(fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}}}", type, order, shape),
            data));
  };
  CHECK_THAT(with("'>f4'", "False", "(2, 3)"), Contains("elements of type '>f4'"));
  CHECK_THAT(with("'|O'", "False", "(2, 3)"), Contains("elements of type"));
  CHECK_THAT(with("'<f4'", "True", "(2, 3)"), Contains("Fortran order"));
  CHECK_THAT(with("'<f4'", "False", "(-2, 3)"), Contains("header is damaged"));
  CHECK_THAT(with("'<f4'", "False", "(2, 3"), Contains("header is damaged"));
  CHECK_THAT(with("'<f4'", "False", "(99999999999999999999,)"), Contains("header is damaged"));
  CHECK_THAT(with("'<f4'", "False", "(1099511627776, 1099511627776)"), Contains("too large"));
  CHECK_THAT(with("'<f8'", "False", "(2, 344444446, 6, 66, 366, 6)"), Contains("too large"));
  CHECK_THAT(with("'<f4'", "False", "(0, 1099511627776, 1099511627776)"), Contains("too large"));
  CHECK_THAT(with("'<f4'", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1)"), Contains("dimensions"));
}
