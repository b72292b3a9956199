// softmax, log_softmax and their gradients, and row_norms: rows shorter and longer than a vector.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {

void add_softmax_cases(std::vector<OpCase>& cases) {
  for (const Shape& x :
       {Shape{1}, Shape{7, 3}, Shape{33, 17}, Shape{2, 3, 5, 64}, Shape{600, 10}, Shape{9, 1000}}) {
    for (const char* op : {"softmax", "log_softmax"}) {
      cases.push_back({fmt::format("{} {}", op, to_string(x)), op, {case_tensor(x)}});
      cases.push_back({fmt::format("{}_backward {}", op, to_string(x)),
                       fmt::format("{}_backward", op),
                       {case_tensor(x), case_tensor(x)}});
    }
    if (x.rank() != 2) continue;
    cases.push_back({fmt::format("row_norms {}", to_string(x)),
                     "row_norms",
                     {case_tensor(x), case_tensor(x)},
                     {{"scale", 0.5}}});
  }
}

}  // namespace dltrain
