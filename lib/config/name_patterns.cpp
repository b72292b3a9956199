#include "config/name_patterns.h"

#include <algorithm>

#include <fmt/format.h>

namespace dltrain {
namespace {

bool excludes(std::string_view pattern) {
  return pattern.starts_with('!');
}

std::string_view bare(std::string_view pattern) {
  return excludes(pattern) ? pattern.substr(1) : pattern;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // The position of the last `*` in the pattern, and the end of the characters that it matches.
  // After a mismatch it matches one more character.
  size_t star = std::string_view::npos, covered = 0, p = 0, n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      covered = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++covered;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool selects(const std::vector<std::string>& patterns, std::string_view name) {
  for (size_t i = patterns.size(); i-- > 0;) {
    if (matches_pattern(bare(patterns[i]), name)) return !excludes(patterns[i]);
  }
  return false;
}

void check_patterns(Diagnostics& diagnostics, const ConfigObject& object, std::string_view key,
                    const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                    std::string_view what) {
  if (!patterns.empty() && excludes(patterns[0])) {
    diagnostics.add(object, key, "'{}' comes first and has nothing to exclude", patterns[0]);
  }
  for (const std::string& pattern : patterns) {
    const bool fits = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return matches_pattern(bare(pattern), name);
    });
    if (fits) continue;
    diagnostics.add(object, key, "'{}' matches no {}; they are {}", pattern, what,
                    names.empty() ? "none" : names.front() + " … " + names.back());
  }
}

}  // namespace dltrain
