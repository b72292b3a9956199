// The test framework, whichever major version the distribution has. Tests are written as for
// version 2; the differences of version 3 that they meet stand here.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;

namespace Catch::Matchers {
// In version 3 the plain name is for elements of ranges, and texts have another.
inline auto Contains(const char* text) {
  return ContainsSubstring(text);
}
inline auto Contains(const std::string& text) {
  return ContainsSubstring(text);
}
}  // namespace Catch::Matchers
#else
#include <catch2/catch.hpp>
#endif
