// The launcher's tests start this test program itself as the ranks. A rank is told what to do by
// the variable below; it does that instead of running tests (see helper.cpp).
#pragma once

namespace dltrain::test {
// A port of 127.0.0.1 that nobody listens on now.
int free_port();

inline constexpr const char* kBehaviour = "DLTRAIN_TEST_RANK_BEHAVIOUR";
}  // namespace dltrain::test
