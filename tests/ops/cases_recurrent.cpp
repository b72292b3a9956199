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

struct Network : Recurrence {
  int64_t inputs;
};

// The projection of the inputs and the recurrence as one op.
void add_network(std::vector<OpCase>& cases, const Network& r) {
  const Attributes direction{{"kind", std::string(r.kind)}, {"reverse", r.reverse}};
  const RecurrentKind kind = recurrent_kind(direction);
  const int64_t width = recurrent_gates(kind) * r.hidden;
  const Shape y{r.samples, r.tokens, r.hidden}, state{r.samples, r.hidden};
  const auto optional = [](bool given, const Shape& shape, Fill fill = Fill::normal) {
    return given ? case_tensor(shape, fill) : case_absent();
  };
  // Enough for gates and cells in f64.
  const int64_t kept = keeps_gates(kind) ? 8 * (width + r.hidden) * r.samples * r.tokens + 512 : 0;
  Attributes attributes = direction;
  attributes.set("kept_bytes", kept);
  const CaseInput x = case_tensor({r.samples, r.tokens, r.inputs});
  const std::vector<CaseInput> operands{
      case_tensor({width, r.inputs}),
      case_tensor({width, r.hidden}),
      optional(r.bias, {width}),
      optional(r.bias, {width}),
      optional(r.initial, state, Fill::constant),
      optional(r.initial && kind == RecurrentKind::lstm, state, Fill::constant)};
  const std::string name =
      fmt::format("{} {} of {}{}{}{}", r.kind, to_string(y), r.inputs, r.reverse ? " reverse" : "",
                  r.bias ? "" : " without bias", r.initial ? " from a state" : "");
  OpCase forward{.name = "recurrent_network " + name,
                 .op = "recurrent_network",
                 .inputs = {x},
                 .attributes = attributes};
  OpCase backward{.name = "recurrent_network_backward " + name,
                  .op = "recurrent_network_backward",
                  .inputs = {case_tensor(y), x, case_tensor(y, Fill::kept)},
                  .attributes = attributes};
  for (OpCase* c : {&forward, &backward}) {
    c->inputs.insert(c->inputs.end(), operands.begin(), operands.end());
    // As above, and the backward reads what the same kernels have rounded in the forward.
    c->roundings = static_cast<double>(r.tokens + 1) *
                   std::sqrt(static_cast<double>(r.hidden + r.inputs)) * (c == &backward ? 2 : 1);
  }
  backward.inputs.push_back(kept > 0 ? CaseInput{{Shape{kept}, DType::u8}, Fill::kept}
                                     : case_absent());
  cases.push_back(std::move(forward));
  cases.push_back(std::move(backward));
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
  for (const char* kind : {"lstm", "gru", "rnn_tanh"}) {
    add_network(cases, {{kind, 2, 3, 5}, 7});
    add_network(cases, {{kind, 3, 2, 17, true, false}, 4});
    add_network(cases, {{kind, 2, 4, 8, false, true, true}, 8});
  }
  add_network(cases, {{"rnn_relu", 3, 1, 6}, 5});
  add_carry(cases);
}

}  // namespace dltrain
