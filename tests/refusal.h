// Catches the error of code that must fail.
#pragma once

#include <string>

#include "base/error.h"
#include "catch.h"

namespace dltrain {

// The message of the Error that `act` throws, which must have this code; a failed test when it
// throws none.
template <typename Act>
std::string refusal_of(const Act& act, ExitCode code = ExitCode::data) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("accepted");
  return {};
}

}  // namespace dltrain
