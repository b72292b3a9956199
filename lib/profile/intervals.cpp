#include "profile/intervals.h"

#include <algorithm>

namespace dltrain {

Intervals merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals out;
  for (const Interval& next : intervals) {
    if (next.end <= next.begin) continue;
    if (out.empty() || next.begin > out.back().end) {
      out.push_back(next);
    } else {
      out.back().end = std::max(out.back().end, next.end);
    }
  }
  return out;
}

Intervals common(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (both.begin < both.end) out.push_back(both);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return out;
}

Intervals without(const Intervals& a, const Intervals& b) {
  Intervals out;
  size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    for (size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (b[k].begin > rest.begin) out.push_back({rest.begin, b[k].begin});
      rest.begin = std::max(rest.begin, b[k].end);
    }
    if (rest.begin < rest.end) out.push_back(rest);
  }
  return out;
}

int64_t total(const Intervals& intervals) {
  int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.end - interval.begin;
  return sum;
}

}  // namespace dltrain
