#include "config/suggest.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "base/utf8.h"
#include "config/scalar.h"

namespace dltrain {
namespace {

constexpr size_t kLongest = 64;  // no key is longer; limits the work on hostile input

// Counts the edits (insert, delete, replace, swap neighbours) from a to b.
size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment, which needs three rows of the table.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({replace, last[j] + 1, now[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view wrong, std::span<const std::string> names) {
  if (wrong.empty() || wrong.size() > kLongest) return {};
  std::string best;
  const std::string lower = lower_ascii(wrong);
  size_t best_distance = std::max<size_t>(1, (wrong.size() + 1) / 3) + 1;
  for (const std::string& name : names) {
    const std::string other = lower_ascii(name);
    size_t distance = edit_distance(lower, other);
    // Names without a common character are not near, although "ab" is only two edits from "xy".
    if (distance >= std::max(wrong.size(), name.size())) continue;
    if (wrong.size() >= 3 && name.starts_with(wrong)) distance = std::min<size_t>(distance, 1);
    // People rarely mistype the first letter: f16 is fp16, not bf16.
    const bool better = distance == best_distance && !best.empty() && lower[0] == other[0] &&
                        lower[0] != lower_ascii(best)[0];
    if (distance < best_distance || better) {
      best = name;
      best_distance = distance;
    }
  }
  if (!best.empty()) return best;
  for (const std::string& name : names) {
    if (name.size() >= 4 && name.size() > best.size() && wrong.starts_with(name)) best = name;
  }
  return best;
}

bool mentions_name(std::string_view text, std::string_view name) {
  const auto is_part = [](char c) { return is_letter(c) || is_digit(c); };
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) {
      return true;
    }
  }
  return false;
}

std::string join_names(std::span<const std::string> names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string some_names(std::span<const std::string> names, size_t most) {
  if (names.size() <= most) return join_names(names);
  return fmt::format("{} and {} more", join_names(names.first(most)), names.size() - most);
}

bool contains(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string join_path(std::string_view path, std::string_view name) {
  std::string out(path);
  if (!path.empty() && !name.empty()) out += '.';
  return out.append(name);
}

}  // namespace dltrain
