#include "passes/lower_recurrent.h"

#include <map>

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "ops/kernel.h"
#include "ops/recurrent.h"
#include "passes/dead_code.h"
#include "passes/recompute.h"
#include "run_graph.h"
#include "shared/recurrent_parts.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

// As if the reference engine's kernel were better than its parts.
std::optional<int64_t> reference_bytes(const Attributes& attributes, SpecSpan inputs,
                                       SpecSpan outputs) {
  const auto device = reference_engine().open(0);
  return parts_kept_bytes({.op = "recurrent_network",
                           .attributes = attributes,
                           .inputs = inputs,
                           .outputs = outputs,
                           .device = *device});
}

constexpr int64_t kRecurrentSamples = 2, kSequenceTokens = 3, kHidden = 4;

struct NetworkOptions {
  bool reverse = false, bias = true, state = false;
  ValueId w_ih = kNoValue;  // shared with another network
};

struct RecurrentExample {
  DType dtype = DType::f64;
  Graph graph = {};
  GraphBuilder b{graph};
  std::vector<ValueId> parameters = {};

  ValueId input(const std::string& name, const Shape& shape, Role role = Role::input) {
    return b.add_value(name, {shape, dtype}, role);
  }
  ValueId parameter(const std::string& name, const Shape& shape) {
    parameters.push_back(input(name, shape, Role::parameter));
    return parameters.back();
  }

  std::vector<ValueId> network(ValueId x, const std::string& kind, const std::string& name,
                               const NetworkOptions& o = {}) {
    const Attributes attributes{{"kind", kind}, {"reverse", o.reverse}, {"kept_bytes", int64_t{0}}};
    const RecurrentKind parsed = recurrent_kind(attributes);
    const int64_t width = recurrent_gates(parsed) * kHidden;
    std::vector<ValueId> in(7, kNoValue);
    in[0] = x;
    in[1] = o.w_ih != kNoValue ? o.w_ih : parameter(name + ".w_ih", {width, b.spec(x).shape[-1]});
    in[2] = parameter(name + ".w_hh", {width, kHidden});
    if (o.bias) in[3] = parameter(name + ".b_ih", {width});
    if (o.bias) in[4] = parameter(name + ".b_hh", {width});
    const Shape state{kRecurrentSamples, kHidden};
    if (o.state) in[5] = input(name + ".h0", state);
    if (o.state && parsed == RecurrentKind::lstm) in[6] = input(name + ".c0", state);
    return b.emit("recurrent_network", in, attributes);
  }

  // The cells after the last token, as a sum that is kept.
  void carry(ValueId cell) { b.accumulate(b.emit1("identity", {cell}), "carried", Role::metric); }

  // Returns the training step of a loss over y, after lowering.
  Graph trained(ValueId y, const KeptBytes& kept) const {
    RecurrentExample copy{.dtype = dtype, .graph = graph};
    ValueId loss = copy.b.emit1("reduce", {copy.b.emit1("tanh", {y})},
                                {{"kind", "mean"}, {"axes", std::vector<int64_t>{0, 1, 2}}});
    if (dtype != DType::f64) loss = copy.b.emit1("cast", {loss}, {{"dtype", "f64"}});
    copy.b.accumulate(copy.b.emit1("identity", {loss}), "loss", Role::metric);
    copy.graph = lower_recurrent(std::move(copy.graph), kept, true);
    reverse(copy.graph, {loss}, parameters);
    return eliminate_dead_code(copy.graph);
  }
};

int count_nodes(const Graph& graph, std::string_view op) {
  int found = 0;
  for (const Node& node : graph.nodes) found += node.op->name == op ? 1 : 0;
  return found;
}

// results_of() by name, because the two forms make gradients in different orders.
std::map<std::string, std::vector<double>> named_results_of(const Graph& graph) {
  std::map<std::string, std::vector<double>> out;
  const auto results = results_of(graph);
  size_t i = 0;
  for (Role role : {Role::metric, Role::statistic, Role::gradient}) {
    for (ValueId id : graph.with_role(role)) out[graph.value(id).name] = results[i++];
  }
  return out;
}

// Both forms of the network's training step give the same sums and gradients.
void check_forms(const RecurrentExample& e, ValueId y, int networks) {
  const Graph parts = e.trained(y, {}), whole = e.trained(y, reference_bytes);
  CHECK(count_nodes(parts, "recurrent") == networks);
  CHECK(count_nodes(parts, "recurrent_network") == 0);
  CHECK(count_nodes(whole, "recurrent_network") == networks);
  CHECK(count_nodes(whole, "recurrent_network_backward") == networks);
  CHECK(count_nodes(whole, "matmul") == 0);
  const auto expected = named_results_of(parts);
  REQUIRE(!expected.empty());
  for (const Graph& graph : {whole, recompute(whole, {.mode = Recompute::full}).graph}) {
    const auto found = named_results_of(graph);
    REQUIRE(found.size() == expected.size());
    for (const auto& [name, values] : expected) {
      INFO(name);
      for (size_t k = 0; k < values.size(); ++k) {
        CHECK(found.at(name)[k] == Approx(values[k]).epsilon(1e-12).margin(1e-14));
      }
    }
  }
}

TEST_CASE("an engine without a better kernel gets the parts of a recurrent network") {
  RecurrentExample e{.dtype = DType::f32};
  const ValueId x = e.input("x", {kRecurrentSamples, kSequenceTokens, 5});
  const auto out = e.network(x, "lstm", "a", {.reverse = true});
  e.carry(out[1]);
  const Graph after = lower_recurrent(e.graph, {}, true);
  const std::string text = print_graph(after);
  INFO(text);
  CHECK_THAT(text, Contains("= matmul(x, a.w_ih, a.b_ih) {transpose_b=true} : f32[2, 3, 16]") &&
                       Contains(", a.w_hh, a.b_hh) {kind=lstm, reverse=true} : f32[2, 3, 4], "
                                "f32[2, 3, 16], f32[2, 3, 4]") &&
                       Contains("{after=[0, 2, 0], before=[0, 0, 0]} : f32[2, 1, 4]"));
  CHECK(print_graph(lower_recurrent(after, {}, true)) == text);
}

TEST_CASE("a better kernel keeps bytes for its backward, in training only") {
  RecurrentExample e{.dtype = DType::f32};
  const ValueId x = e.input("x", {kRecurrentSamples, kSequenceTokens, 5});
  e.network(x, "lstm", "a", {.state = true});
  CHECK_THAT(print_graph(lower_recurrent(e.graph, reference_bytes, true)),
             Contains("= recurrent_network(x, a.w_ih, a.w_hh, a.b_ih, a.b_hh, a.h0, a.c0) "
                      "{kept_bytes=768, kind=lstm, reverse=false} : f32[2, 3, 4], f32[2, 1, "
                      "4], u8[768]"));
  CHECK_THAT(print_graph(lower_recurrent(e.graph, reference_bytes, false)),
             Contains("kept_bytes=0"));
}

TEST_CASE("both forms of recurrent networks have equal results and gradients") {
  for (const std::string kind : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const NetworkOptions o : {NetworkOptions{}, NetworkOptions{.reverse = true, .bias = false},
                                   NetworkOptions{.state = true}}) {
      INFO(kind << (o.reverse ? " reverse" : "") << (o.state ? " from a state" : ""));
      RecurrentExample e;
      const ValueId x = e.input("x", {kRecurrentSamples, kSequenceTokens, 5});
      const auto first = e.network(x, kind, "a", o);
      if (kind == "lstm") e.carry(first[1]);
      check_forms(e, e.network(first[0], kind, "b", {.bias = o.bias})[0], 2);
    }
  }
}

TEST_CASE("both directions over one input, shared weights, weights that do not learn") {
  RecurrentExample e;
  const ValueId x =
      e.b.emit1("tanh", {e.parameter("table", {kRecurrentSamples, kSequenceTokens, kHidden})});
  const auto forth = e.network(x, "gru", "forth");
  const auto back =
      e.network(x, "gru", "back", {.reverse = true, .w_ih = e.graph.find("forth.w_ih")});
  const ValueId y = e.b.emit1("add", {forth[0], back[0]});
  check_forms(e, y, 2);
  std::erase(e.parameters, e.graph.find("forth.b_ih"));
  check_forms(e, y, 2);
}

}  // namespace
}  // namespace dltrain
