// Sets of time intervals.
#pragma once

#include <cstdint>
#include <vector>

namespace dltrain {

struct Interval {
  int64_t begin = 0, end = 0;
};

// Sorted and disjoint.
using Intervals = std::vector<Interval>;

// Returns the union of the intervals.
Intervals merged(std::vector<Interval> intervals);
// Return the intersection and the difference of `a` and `b`.
Intervals common(const Intervals& a, const Intervals& b);
Intervals without(const Intervals& a, const Intervals& b);
int64_t total(const Intervals& intervals);

}  // namespace dltrain
