// Sets of moments: where nothing else ran, and what the host did meanwhile.
#pragma once

#include <cstdint>
#include <vector>

namespace dltrain {

struct Interval {
  int64_t begin = 0, end = 0;
};

// Sorted and disjoint.
using Intervals = std::vector<Interval>;

// The union of any intervals.
Intervals merged(std::vector<Interval> intervals);
// What of `a` lies in `b`, and outside of it.
Intervals common(const Intervals& a, const Intervals& b);
Intervals without(const Intervals& a, const Intervals& b);
int64_t total(const Intervals& intervals);

}  // namespace dltrain
