#include "passes/fuse_recurrent.h"

#include <cmath>

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

// As if the reference engine's kernel of parts were worth it.
std::optional<int64_t> parts(const Attributes& attributes, SpecSpan inputs, SpecSpan outputs) {
  const auto device = reference_engine().open(0);
  return parts_kept_bytes({.op = "recurrent_network",
                           .attributes = attributes,
                           .inputs = inputs,
                           .outputs = outputs,
                           .device = *device});
}
std::optional<int64_t> nothing(const Attributes&, SpecSpan, SpecSpan) {
  return {};
}

constexpr int64_t kFuseRecurrentSamples = 2, kSequenceTokens = 3, kHidden = 4;

struct FuseRecurrentExample {
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

  struct Made {
    ValueId projected;
    std::vector<ValueId> outputs;
  };
  struct Options {
    bool reverse = false, bias = true, state = false;
    ValueId w_ih = kNoValue;  // shared with another network
  };
  Made network(ValueId x, const std::string& kind, const std::string& name, const Options& o) {
    const Attributes attributes{{"kind", kind}, {"reverse", o.reverse}};
    const RecurrentKind parsed = recurrent_kind(attributes);
    const int64_t width = recurrent_gates(parsed) * kHidden;
    const ValueId w_ih =
        o.w_ih != kNoValue ? o.w_ih : parameter(name + ".w_ih", {width, b.spec(x).shape[-1]});
    std::vector<ValueId> project{x, w_ih};
    std::vector<ValueId> in{kNoValue, parameter(name + ".w_hh", {width, kHidden})};
    if (o.bias) {
      project.push_back(parameter(name + ".b_ih", {width}));
      in.push_back(parameter(name + ".b_hh", {width}));
    }
    in[0] = b.emit1("matmul", project, {{"transpose_b", true}});
    if (o.state) {
      in.resize(3, kNoValue);
      in.push_back(input(name + ".h0", {kFuseRecurrentSamples, kHidden}));
      if (parsed == RecurrentKind::lstm)
        in.push_back(input(name + ".c0", {kFuseRecurrentSamples, kHidden}));
    }
    return {in[0], b.emit("recurrent", in, attributes)};
  }

  // The cells after the last token, as a sum that is kept.
  void carry(ValueId cells) {
    const ValueId last = b.emit1("slice", {cells},
                                 {{"before", std::vector<int64_t>{0, kSequenceTokens - 1, 0}},
                                  {"after", std::vector<int64_t>{0, 0, 0}}});
    const ValueId flat = b.emit1("reshape", {last},
                                 {{"shape", std::vector<int64_t>{kFuseRecurrentSamples, kHidden}}});
    b.accumulate(b.emit1("identity", {flat}), "carried", Role::metric);
  }

  Graph trained(ValueId y) {
    ValueId loss = b.emit1("reduce", {b.emit1("tanh", {y})},
                           {{"kind", "mean"}, {"axes", std::vector<int64_t>{0, 1, 2}}});
    if (dtype != DType::f64) loss = b.emit1("cast", {loss}, {{"dtype", "f64"}});
    b.accumulate(b.emit1("identity", {loss}), "loss", Role::metric);
    reverse(graph, {loss}, parameters);
    return eliminate_dead_code(graph);
  }
};

int count_fuse_recurrent(const Graph& graph, std::string_view op) {
  int found = 0;
  for (const Node& node : graph.nodes) found += node.op->name == op ? 1 : 0;
  return found;
}

void check_same_results(const Graph& before, const Graph& after) {
  const auto expected = results_of(before), found = results_of(after);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t k = 0; k < found[i].size(); ++k) {
      CHECK(found[i][k] == Approx(expected[i][k]).epsilon(1e-12).margin(1e-14));
    }
  }
}

TEST_CASE("a projection and the network after it become one op, and so do their gradients") {
  FuseRecurrentExample e{.dtype = DType::f32};
  const ValueId table = e.parameter("table", {kFuseRecurrentSamples, kSequenceTokens, 5});
  const ValueId x = e.b.emit1("tanh", {table});
  const auto made = e.network(x, "lstm", "a", {.state = true});
  e.carry(made.outputs[2]);
  const Graph before = e.trained(made.outputs[0]);
  const Graph after = fuse_recurrent(before, parts);
  const std::string text = print_graph(after);
  INFO(text);
  CHECK_THAT(text, Contains("= recurrent_network(%1, a.w_ih, a.w_hh, a.b_ih, a.b_hh, a.h0, a.c0) "
                            "{kept_bytes=768, kind=lstm, reverse=false} : f32[2, 3, 4], f32[2, 1, "
                            "4], u8[768]"));
  CHECK_THAT(text, Contains("= recurrent_network_backward(") &&
                       Contains(": f32[2, 3, 5], f32[16, 5], f32[16, 4], f32[16], f32[16]") &&
                       Contains("gradient of a.w_ih = identity(") &&
                       Contains("gradient of a.b_ih = identity("));
  for (const char* op : {"matmul", "recurrent", "recurrent_backward", "slice"}) {
    CHECK(count_fuse_recurrent(after, op) == 0);
  }
  CHECK(print_graph(fuse_recurrent(after, parts)) == text);
}

TEST_CASE("networks that were put together keep their results") {
  for (const std::string kind : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const FuseRecurrentExample::Options o :
         {FuseRecurrentExample::Options{},
          FuseRecurrentExample::Options{.reverse = true, .bias = false},
          FuseRecurrentExample::Options{.state = true}}) {
      INFO(kind << (o.reverse ? " reverse" : "") << (o.state ? " from a state" : ""));
      FuseRecurrentExample e;
      const ValueId x = e.input("x", {kFuseRecurrentSamples, kSequenceTokens, 5});
      const auto first = e.network(x, kind, "a", o);
      if (kind == "lstm" && !o.reverse) e.carry(first.outputs[2]);
      const auto second = e.network(first.outputs[0], kind, "b", {.bias = o.bias});
      const Graph before = e.trained(second.outputs[0]), after = fuse_recurrent(before, parts);
      CHECK(count_fuse_recurrent(after, "recurrent_network") == 2);
      CHECK(count_fuse_recurrent(after, "recurrent_network_backward") == 2);
      CHECK(count_fuse_recurrent(after, "matmul") == 0);
      check_same_results(before, after);
      check_same_results(before, recompute(after, Recompute::full).graph);
    }
  }
}

TEST_CASE("both directions over one input, and weights that two networks share") {
  FuseRecurrentExample e;
  const ValueId x =
      e.b.emit1("tanh", {e.parameter("table", {kFuseRecurrentSamples, kSequenceTokens, kHidden})});
  const auto forth = e.network(x, "gru", "forth", {});
  const auto back =
      e.network(x, "gru", "back", {.reverse = true, .w_ih = e.b.graph().find("forth.w_ih")});
  const Graph before = e.trained(e.b.emit1("add", {forth.outputs[0], back.outputs[0]}));
  const Graph after = fuse_recurrent(before, parts);
  CHECK(count_fuse_recurrent(after, "recurrent_network_backward") == 2);
  CHECK(count_fuse_recurrent(after, "matmul") == 0);
  check_same_results(before, after);
}

TEST_CASE("a network without a backward keeps nothing") {
  FuseRecurrentExample e;
  const auto made =
      e.network(e.input("x", {kFuseRecurrentSamples, kSequenceTokens, 5}), "lstm", "a", {});
  e.b.accumulate(e.b.emit1("reduce", {made.outputs[0]},
                           {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1, 2}}}),
                 "sum", Role::metric);
  e.b.step_state();
  const Graph after = fuse_recurrent(e.graph, parts);
  CHECK(count_fuse_recurrent(after, "recurrent_network") == 1);
  CHECK_THAT(print_graph(after), Contains("kept_bytes=0"));
  check_same_results(e.graph, after);
}

TEST_CASE("weights that do not learn have no gradient") {
  FuseRecurrentExample e;
  const auto made =
      e.network(e.input("x", {kFuseRecurrentSamples, kSequenceTokens, 5}), "gru", "a", {});
  std::erase(e.parameters, e.graph.find("a.w_ih"));
  std::erase(e.parameters, e.graph.find("a.b_ih"));
  const Graph before = e.trained(made.outputs[0]), after = fuse_recurrent(before, parts);
  CHECK(count_fuse_recurrent(after, "recurrent_network_backward") == 1);
  check_same_results(before, after);
}

TEST_CASE("a network stays as it is where others read what lies between, or nothing is better") {
  const auto stays = [](const Graph& graph, const KeptBytes& kept = parts) {
    CHECK(print_graph(fuse_recurrent(graph, kept)) == print_graph(graph));
  };
  const auto seen = [](FuseRecurrentExample& e, ValueId value) {
    e.b.accumulate(e.b.emit1("identity", {value}), "seen", Role::metric);
  };
  for (const int what : {0, 1, 2, 3}) {
    INFO(what);
    FuseRecurrentExample e;
    const auto made =
        e.network(e.input("x", {kFuseRecurrentSamples, kSequenceTokens, 5}), "lstm", "a", {});
    if (what == 0) seen(e, made.projected);
    if (what == 1) seen(e, made.outputs[1]);
    if (what == 2) seen(e, made.outputs[2]);
    const Graph graph = e.trained(made.outputs[0]);
    stays(graph, what == 3 ? KeptBytes(nothing) : KeptBytes(parts));
  }
  FuseRecurrentExample half;  // one bias of two
  const ValueId w = half.parameter("w", {kHidden, 5}), v = half.parameter("v", {kHidden, kHidden});
  const ValueId x =
      half.b.emit1("matmul", {half.input("x", {kFuseRecurrentSamples, kSequenceTokens, 5}), w},
                   {{"transpose_b", true}});
  stays(half.trained(half.b.emit1("recurrent", {x, v, half.parameter("b", {kHidden})},
                                  {{"kind", "rnn_tanh"}, {"reverse", false}})));
}

}  // namespace
}  // namespace dltrain
