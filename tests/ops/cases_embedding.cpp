// embedding and its gradient: ids that repeat, rows that no id names, a padding row.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

void add_cases_embedding(std::vector<OpCase>& cases, const Shape& ids, int64_t rows, int64_t width,
                         int64_t padding) {
  std::vector<int64_t> extents = as_integers(ids);
  extents.push_back(width);
  const CaseInput input{{ids, DType::i32}, Fill::ids, rows};
  const std::string what =
      fmt::format("{} of {}x{} padding {}", to_string(ids), rows, width, padding);
  const Attributes attributes{{"padding_idx", padding}};
  if (padding < 0) {
    cases.push_back(
        {"embedding " + what, "embedding", {input, case_tensor({rows, width})}, attributes});
  }
  cases.push_back({"embedding_backward " + what,
                   "embedding_backward",
                   {input, case_tensor(Shape(extents))},
                   {{"padding_idx", padding}, {"rows", rows}}});
}

}  // namespace

void add_embedding_cases(std::vector<OpCase>& cases) {
  add_cases_embedding(cases, {1}, 1, 1, -1);
  add_cases_embedding(cases, {7}, 5, 3, -1);
  add_cases_embedding(cases, {7}, 5, 3, 2);
  add_cases_embedding(cases, {4, 33}, 17, 65, -1);
  add_cases_embedding(cases, {2, 150}, 2, 65, -1);  // long lists of places
  add_cases_embedding(cases, {4, 33}, 17, 65, 0);
  add_cases_embedding(cases, {2, 3, 5}, 1000, 8, 999);
  add_cases_embedding(cases, {64, 40}, 11, 32, -1);  // rows of many ids
  // Rows from 5 on of a table, where the rank has no row of some ids.
  for (const char* op : {"embedding", "embedding_backward"}) {
    const bool backward = op == std::string("embedding_backward");
    const CaseInput ids{{{6, 30}, DType::i32}, Fill::ids, 23};
    cases.push_back({fmt::format("{} of a shard", op),
                     op,
                     {ids, case_tensor(backward ? Shape{6, 30, 17} : Shape{9, 17})},
                     {{"first_row", int64_t{5}}, {"padding_idx", int64_t{-1}}}});
    if (backward) cases.back().attributes.set("rows", int64_t{9});
  }
}

}  // namespace dltrain
