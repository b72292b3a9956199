// The test framework, whichever major version the distribution has. Tests are written as for
// version 2; the differences of version 3 that they meet stand here.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;

namespace Catch {
namespace Matchers {
// In version 3 the plain name is for elements of ranges, and texts have another. A text that can be
// changed is a better match for its template than for a constant one.
inline auto Contains(const char* text) {
  return ContainsSubstring(text);
}
inline auto Contains(const std::string& text) {
  return ContainsSubstring(text);
}
inline auto Contains(std::string& text) {
  return ContainsSubstring(text);
}
inline auto Contains(std::string&& text) {
  return ContainsSubstring(text);
}
}  // namespace Matchers
using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::StartsWith;
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
