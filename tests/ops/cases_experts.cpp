// The ops of mixtures of experts: experts without rows, one expert, extents that fill no tile.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

CaseInput groups(int64_t experts, int64_t rows) {
  return {{Shape{experts + 1}, DType::i32}, Fill::groups, rows};
}
// The reversed order, which is its own inverse.
CaseInput reversed(const Shape& shape) {
  return {{shape, DType::i32}, Fill::slots};
}

void add_routing(std::vector<OpCase>& cases, Shape tokens, int64_t k) {
  Shape each = tokens;
  each[-1] = k;
  for (const bool normalize : {false, true}) {
    const std::string what =
        fmt::format("{} k {}{}", to_string(tokens), k, normalize ? " normalized" : "");
    cases.push_back({"top_k_routing " + what,
                     "top_k_routing",
                     {case_tensor(tokens, Fill::positive)},
                     {{"k", k}, {"normalize", normalize}}});
    cases.push_back({"top_k_routing_backward " + what,
                     "top_k_routing_backward",
                     {case_tensor(tokens, Fill::positive),
                      {{each, DType::i32}, Fill::ids, tokens[-1]},
                      case_tensor(each)},
                     {{"normalize", normalize}}});
  }
}

void add_moves(std::vector<OpCase>& cases, const Shape& pairs, int64_t width) {
  const int64_t rows = pairs.elements();
  Shape tokens = pairs;
  tokens[-1] = width;
  const std::string what = fmt::format("{} of {}", to_string(pairs), width);
  CaseInput weights = case_tensor(pairs);
  weights.wide = true;
  cases.push_back({"dispatch_tokens " + what,
                   "dispatch_tokens",
                   {case_tensor(tokens), reversed({rows}), reversed(pairs)}});
  cases.push_back({"dispatch_tokens weighted " + what,
                   "dispatch_tokens",
                   {case_tensor(tokens), reversed({rows}), reversed(pairs), weights}});
  cases.push_back({"combine_experts " + what,
                   "combine_experts",
                   {case_tensor({rows, width}), reversed(pairs), reversed({rows}), weights}});
  cases.push_back({"combine_experts without weights " + what,
                   "combine_experts",
                   {case_tensor({rows, width}), reversed(pairs), reversed({rows})}});
  cases.push_back({"combine_experts_backward_weights " + what,
                   "combine_experts_backward_weights",
                   {case_tensor(tokens), case_tensor({rows, width}), reversed(pairs)}});
  const CaseInput places{{pairs, DType::i32}, Fill::gaps};
  const CaseInput sources{{Shape{rows}, DType::i32}, Fill::gaps};
  for (const bool weighted : {false, true}) {
    const std::string moves = (weighted ? " weighted gaps " : " gaps ") + what;
    cases.push_back(
        {"dispatch_tokens" + moves, "dispatch_tokens", {case_tensor(tokens), sources, places}});
    cases.push_back({"combine_experts" + moves,
                     "combine_experts",
                     {case_tensor({rows, width}), places, sources}});
    if (!weighted) continue;
    for (size_t i : {1, 2}) cases[cases.size() - i].inputs.push_back(weights);
  }
  cases.push_back({"combine_experts_backward_weights gaps " + what,
                   "combine_experts_backward_weights",
                   {case_tensor(tokens), case_tensor({rows, width}), places}});
}

void add_products(std::vector<OpCase>& cases, int64_t experts, int64_t rows, int64_t inner,
                  int64_t columns) {
  const std::string what = fmt::format("{} experts {}x{}·{}", experts, rows, inner, columns);
  const CaseInput a = case_tensor({rows, inner}), offsets = groups(experts, rows);
  for (const bool transposed : {false, true}) {
    const Shape b = transposed ? Shape{experts, columns, inner} : Shape{experts, inner, columns};
    cases.push_back({fmt::format("grouped_matmul {}{}", what, transposed ? " transposed b" : ""),
                     "grouped_matmul",
                     {a, case_tensor(b), offsets},
                     {{"transpose_b", transposed}}});
  }
  cases.push_back({"grouped_matmul_backward_weight " + what,
                   "grouped_matmul_backward_weight",
                   {a, case_tensor({rows, columns}), offsets},
                   {{"experts", experts}}});
}

// The last rows belong to no expert.
void add_unused_rows(std::vector<OpCase>& cases, int64_t inner, int64_t columns) {
  const std::string what = fmt::format("unused rows {}·{}", inner, columns);
  for (const bool transposed : {false, true}) {
    const Shape b = transposed ? Shape{4, columns, inner} : Shape{4, inner, columns};
    cases.push_back({fmt::format("grouped_matmul {}{}", what, transposed ? " transposed b" : ""),
                     "grouped_matmul",
                     {case_tensor({60, inner}), case_tensor(b), groups(4, 41)},
                     {{"transpose_b", transposed}, {"rows", int64_t{40}}}});
  }
  cases.push_back({"grouped_matmul_backward_weight " + what,
                   "grouped_matmul_backward_weight",
                   {case_tensor({60, inner}), case_tensor({60, columns}), groups(4, 41)},
                   {{"experts", int64_t{4}}, {"rows", int64_t{40}}}});
}

// Rows of the sorted order are at the places of their pairs in reverse.
void add_places(std::vector<OpCase>& cases, const Shape& pairs, int64_t owners, int64_t experts,
                int64_t buffer, int64_t capacity) {
  const int64_t rows = pairs.elements();
  const std::string what = fmt::format("{} over {} of {} buffer {} capacity {}", to_string(pairs),
                                       experts, owners, buffer, capacity);
  cases.push_back({"place_rows " + what,
                   "place_rows",
                   {reversed(pairs), groups(experts, rows)},
                   {{"owners", owners}, {"buffer", buffer}, {"capacity", capacity}}});
  if (capacity == 0) return;
  for (const int64_t all : {rows / 2, 2 * rows}) {  // experts begin earlier or later
    cases.push_back({fmt::format("place_rows {} of {}", what, all),
                     "place_rows",
                     {reversed(pairs), groups(experts, rows), reversed({rows}), reversed(pairs),
                      groups(experts, all)},
                     {{"owners", owners}, {"buffer", buffer}, {"capacity", capacity}}});
  }
}

void add_received(std::vector<OpCase>& cases, int64_t ranks, int64_t experts, int64_t most) {
  cases.push_back({fmt::format("sort_received {} ranks {} experts", ranks, experts),
                   "sort_received",
                   {{{Shape{ranks, experts}, DType::i32}, Fill::ids, most}},
                   {{"buffer", experts * (most - 1)}}});
}

void add_losses(std::vector<OpCase>& cases, const Shape& logits, int64_t k) {
  const int64_t rows = logits.elements() / logits[-1] * k;
  const std::string what = fmt::format("{} k {}", to_string(logits), k);
  cases.push_back(
      {"router_losses " + what, "router_losses", {case_tensor(logits), groups(logits[-1], rows)}});
  cases.push_back(
      {"router_losses_backward " + what,
       "router_losses_backward",
       {case_tensor(logits), groups(logits[-1], rows), {{Shape{2}, DType::f64}, Fill::seed}}});
}

}  // namespace

void add_expert_cases(std::vector<OpCase>& cases) {
  add_routing(cases, {1, 1}, 1);
  add_routing(cases, {7, 5}, 2);
  add_routing(cases, {2, 33, 8}, 3);
  add_routing(cases, {300, 16}, 8);
  add_routing(cases, {9, 4}, 4);
  add_moves(cases, {1, 1}, 1);
  add_moves(cases, {5, 2}, 3);
  add_moves(cases, {2, 17, 4}, 40);
  add_products(cases, 1, 1, 1, 1);
  add_products(cases, 1, 13, 5, 3);
  add_products(cases, 4, 50, 17, 70);
  add_products(cases, 8, 64, 64, 128);
  add_products(cases, 3, 1400, 6, 9);    // several blocks of rows
  add_products(cases, 5, 300, 40, 136);  // tensor cores, whose tiles are not full
  add_unused_rows(cases, 17, 30);
  add_unused_rows(cases, 24, 32);
  add_places(cases, {1, 1}, 1, 1, 1, 0);
  add_places(cases, {30, 2}, 2, 6, 60, 0);
  add_places(cases, {30, 2}, 2, 6, 20, 0);  // too small a buffer
  add_places(cases, {5, 7, 3}, 4, 8, 105, 9);
  add_places(cases, {300, 4}, 3, 3, 420, 400);
  add_places(cases, {40, 2}, 1, 5, 60, 12);
  add_received(cases, 1, 1, 4);
  add_received(cases, 2, 3, 5);
  add_received(cases, 4, 16, 20);
  add_losses(cases, {1, 1}, 1);
  add_losses(cases, {6, 4}, 2);
  add_losses(cases, {2, 70, 8}, 2);
}

}  // namespace dltrain
