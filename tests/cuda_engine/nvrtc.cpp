// Generated programs compile to machine code for Turing, Ampere and Hopper, without a GPU; what is
// kept on the disk is used again, and only when it is whole.
#include "cuda/vendor/nvrtc.h"

#include <fstream>
#include <set>

#include "catch.h"
#include "cuda/vendor/code_cache.h"
#include "ops/case.h"
#include "ops/kernel_refused.h"
#include "temporary_folder.h"

namespace dltrain {
namespace {

std::string source_of(const OpCase& c, DType inputs, DType result) {
  return fused_source(parse_fused_program(c.attributes.text("program")),
                      {std::vector(c.inputs.size(), inputs), result}, "dltrain_fused");
}

TEST_CASE("generated programs have machine code for Turing, Ampere and Hopper") {
  const Nvrtc* nvrtc = Nvrtc::find();
  REQUIRE(nvrtc != nullptr);
  std::set<std::string> programs;
  for (const OpCase& c : op_cases()) {
    if (c.op != "fused_elementwise" || !programs.insert(c.attributes.text("program")).second) {
      continue;
    }
    constexpr std::pair<DType, DType> kTypes[] = {
        {DType::f32, DType::f32}, {DType::f64, DType::f64},  {DType::bf16, DType::bf16},
        {DType::f16, DType::f16}, {DType::bf16, DType::f32}, {DType::f32, DType::bf16}};
    for (const auto& [inputs, result] : kTypes) {
      for (const int architecture : {75, 80, 90}) {
        INFO(c.name << " " << dtype_name(inputs) << " to " << dtype_name(result) << ", sm_"
                    << architecture);
        const std::string code =
            nvrtc->compile(source_of(c, inputs, result), fused_source_headers(), architecture);
        CHECK(code.substr(0, 4) ==
              "\x7f"
              "ELF");
        CHECK(code.find("dltrain_fused") != std::string::npos);
      }
    }
  }
  CHECK(programs.size() >= 4);
}

TEST_CASE("a program that does not compile is refused with the compiler's message") {
  const Nvrtc* nvrtc = Nvrtc::find();
  REQUIRE(nvrtc != nullptr);
  try {
    nvrtc->compile("this is no program;", {}, 90);
    FAIL("it was compiled");
  } catch (const KernelRefused& refused) {
    CHECK_THAT(refused.what(), Catch::Matchers::StartsWith("NVRTC: compiling a program: ") &&
                                   Catch::Matchers::Contains("fused.cu(1): error"));
  }
  for (const int architecture : {0, 75, 80, 90}) CHECK(Nvrtc::missing(architecture).empty());
  CHECK_THAT(Nvrtc::missing(12), Catch::Matchers::Contains("does not know sm_12"));
}

TEST_CASE("code is made once and kept until it is damaged") {
  const TemporaryFolder folder;
  int made = 0;
  const auto make = [&] {
    ++made;
    return std::string("code\0with\nlines", 15);
  };
  const auto get = [&](const std::string& key) { return cached_code(folder.path(), key, make); };
  const std::string code = get("one");
  CHECK(made == 1);
  CHECK(get("one") == code);
  CHECK(made == 1);
  CHECK(get("two") == code);
  CHECK(made == 2);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "code")) {
    std::ofstream(entry.path(), std::ios::binary | std::ios::app) << "x";
  }
  CHECK(get("one") == code);
  CHECK(made == 3);
  CHECK(get("one") == code);
  CHECK(made == 3);
  CHECK(cached_code({}, "one", make) == code);  // nothing is kept
  CHECK(made == 4);
  // A folder that cannot be written.
  CHECK(cached_code(folder.write("file", "no folder"), "one", make) == code);
  CHECK(made == 5);
}

}  // namespace
}  // namespace dltrain
