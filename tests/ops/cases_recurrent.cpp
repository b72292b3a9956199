// LSTM, GRU and RNN: both directions, with and without bias and initial states, and sizes that fill
// neither vectors nor blocks of units.
#include <cmath>

#include <fmt/format.h>

#include "ops/case.h"
#include "ops/recurrent.h"

namespace dltrain {
namespace {

struct Recurrence {
  const char* kind;
  int64_t samples, tokens, hidden;
  bool reverse = false, bias = true, initial = false;
};

void add_recurrent(std::vector<OpCase>& cases, const Recurrence& r) {
  // A rounded state goes through a product with `hidden` standard normal weights for each token.
  const double roundings = static_cast<double>(r.tokens) * std::sqrt(static_cast<double>(r.hidden));
  const Attributes attributes{{"kind", std::string(r.kind)}, {"reverse", r.reverse}};
  const RecurrentKind kind = recurrent_kind(attributes);
  const int64_t width = recurrent_gates(kind) * r.hidden;
  const Shape x{r.samples, r.tokens, width}, y{r.samples, r.tokens, r.hidden};
  const auto optional = [](bool given, const Shape& shape, Fill fill = Fill::normal) {
    return given ? case_tensor(shape, fill) : case_absent();
  };
  const CaseInput weight = case_tensor({width, r.hidden}), bias = optional(r.bias, {width});
  const CaseInput state = optional(r.initial, {r.samples, r.hidden}, Fill::constant);
  const CaseInput cell =
      optional(r.initial && kind == RecurrentKind::lstm, {r.samples, r.hidden}, Fill::constant);
  const std::string name =
      fmt::format("{} {}{}{}{}", r.kind, to_string(y), r.reverse ? " reverse" : "",
                  r.bias ? "" : " without bias", r.initial ? " from a state" : "");
  cases.push_back(
      {"recurrent " + name, "recurrent", {case_tensor(x), weight, bias, state, cell}, attributes});
  cases.back().roundings = roundings;
  const bool kept = keeps_gates(kind);
  cases.push_back({"recurrent_backward " + name,
                   "recurrent_backward",
                   {case_tensor(y), case_tensor(y), optional(kept, x, Fill::unit),
                    optional(kept, y), weight, bias, state, cell},
                   attributes});
  cases.back().roundings = roundings;
}

// Micro-batches of two samples among six streams; the StepState of the cases stands at the third.
void add_carry(std::vector<OpCase>& cases) {
  const CaseInput all = case_tensor({6, 5}), own = case_tensor({2, 5});
  for (const int64_t steps : {2, 3}) {
    cases.push_back({fmt::format("carried_state {}", steps == 3 ? "that begins" : "that goes on"),
                     "carried_state",
                     {case_state(), all},
                     {{"samples", int64_t{2}}, {"steps", steps}}});
  }
  cases.push_back(
      {"carry_state 2 of 6", "carry_state", {case_state(), own}, {{"rows", int64_t{6}}}});
  cases.push_back(
      {"carry_state_in_place 2 of 6", "carry_state_in_place", {case_state(), own, all}});
  for (const bool finite : {true, false}) {
    OpCase c{.name = fmt::format("carried_update {}", finite ? "" : "of a step that is not finite"),
             .op = "carried_update",
             .inputs = {case_state(), all, all}};
    c.state.out.finite = finite ? 1 : 0;
    cases.push_back(std::move(c));
  }
}

}  // namespace

void add_recurrent_cases(std::vector<OpCase>& cases) {
  for (const char* kind : {"lstm", "gru", "rnn_tanh"}) {
    add_recurrent(cases, {kind, 2, 3, 5});
    add_recurrent(cases, {kind, 3, 4, 17, true, false});
    add_recurrent(cases, {kind, 2, 1, 8, false, true, true});
    add_recurrent(cases, {kind, 3, 5, 19, true, true, true});
    add_recurrent(cases, {kind, 1, 2, 300});
  }
  add_recurrent(cases, {"rnn_relu", 3, 1, 6});
  add_carry(cases);
}

}  // namespace dltrain
