#include "device/engine.h"

#include "base/error.h"
#include "catch.h"

namespace dltrain {
namespace {

std::string reason(const std::string& name) {
  std::string why;
  REQUIRE(load_engine_plugin(name, why) == nullptr);
  CHECK_FALSE(why.empty());
  CHECK(why.find('\n') == std::string::npos);
  return why;
}

TEST_CASE("a plug-in beside the executable is loaded, and its errors arrive as Error") {
  std::string why = "left over";
  const Engine* engine = load_engine_plugin("fake", why);
  REQUIRE(engine != nullptr);
  CHECK(why.empty());
  CHECK(std::string(engine->name) == "fake");
  try {
    engine->open(3);
    FAIL("open did not throw");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::device);
    CHECK(std::string(error.what()) == "fake:3 is only for tests");
  }
}

TEST_CASE("a plug-in that cannot be used is refused with one line") {
  CHECK(reason("absent").find("libdltrain_absent.so is neither in") == 0);
  CHECK(reason("other_abi").find("another version of dltrain") != std::string::npos);
  CHECK(reason("no_entry").find("no dltrain_engine") != std::string::npos);
  CHECK(reason("no_device") == "the driver is too old");
  CHECK(reason("broken").find("dltrain_symbol_that_nobody_defines") != std::string::npos);
}

TEST_CASE("the CUDA engine is there, or one line says why not") {
  std::string why;
  const Engine* engine = load_engine_plugin("cuda", why);
  if (engine == nullptr) {
    CHECK_FALSE(why.empty());
    CHECK(why.find('\n') == std::string::npos);
  } else {
    CHECK(engine->device_count() > 0);
  }
}

}  // namespace
}  // namespace dltrain
