// reduce, broadcast, reshape.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

void add_reduce(std::vector<OpCase>& cases, const Shape& x, const std::vector<int64_t>& axes) {
  for (const char* kind : {"sum", "mean", "max"}) {
    std::string over;
    for (int64_t axis : axes) over += fmt::format(" {}", axis);
    cases.push_back({.name = fmt::format("reduce {} of {} over{}", kind, to_string(x), over),
                     .op = "reduce",
                     .inputs = {case_tensor(x)},
                     .attributes = {{"kind", std::string(kind)}, {"axes", axes}}});
  }
}

void add_broadcast(std::vector<OpCase>& cases, const Shape& x, const Shape& y) {
  cases.push_back({.name = fmt::format("broadcast {} to {}", to_string(x), to_string(y)),
                   .op = "broadcast",
                   .inputs = {case_tensor(x)},
                   .attributes = {{"shape", as_integers(y)}}});
}

void add_reshape(std::vector<OpCase>& cases, const Shape& x, const Shape& y) {
  cases.push_back({.name = fmt::format("reshape {} to {}", to_string(x), to_string(y)),
                   .op = "reshape",
                   .inputs = {case_tensor(x)},
                   .attributes = {{"shape", as_integers(y)}}});
}

}  // namespace

void add_reduce_cases(std::vector<OpCase>& cases) {
  add_reduce(cases, {1}, {0});
  add_reduce(cases, {17}, {0});
  add_reduce(cases, {70001}, {0});
  add_reduce(cases, {33, 65}, {0});
  add_reduce(cases, {33, 65}, {1});
  add_reduce(cases, {33, 65}, {0, 1});
  add_reduce(cases, {128, 10}, {0});
  add_reduce(cases, {300, 257}, {0});   // a bias gradient: several blocks of rows
  add_reduce(cases, {1100, 264}, {0});  // and packs of columns
  add_reduce(cases, {3, 70, 8}, {1});
  add_reduce(cases, {2, 3, 5, 7}, {0, 1, 2});
  add_reduce(cases, {2, 3, 5, 7}, {1, 2});
  add_reduce(cases, {2, 3, 5, 7}, {3, 0});
  add_reduce(cases, {2, 3, 5, 7}, {1, 3});
  add_reduce(cases, {16, 12, 12, 6}, {0, 1, 2});

  add_broadcast(cases, {1}, {17});
  add_broadcast(cases, {65}, {33, 65});
  add_broadcast(cases, {33, 1}, {33, 65});
  add_broadcast(cases, {1, 3, 1, 7}, {2, 3, 5, 7});
  add_broadcast(cases, {2, 1, 5, 1}, {2, 3, 5, 7});
  add_broadcast(cases, {3}, {3});

  add_reshape(cases, {6}, {6});
  add_reshape(cases, {2, 3, 5, 7}, {2, 105});
  add_reshape(cases, {30, 7}, {2, 3, 5, 7});
}

}  // namespace dltrain
