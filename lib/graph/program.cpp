// Chooses the kernels that a program calls in each segment. Memory: program_memory.cpp; running:
// frame.cpp.
#include "graph/program.h"

#include <algorithm>

#include "base/error.h"
#include "graph/slots.h"

namespace dltrain {
namespace {

// Returns true if the first output of the node is a sum over micro-steps; several outputs may not
// be.
bool accumulates(const Graph& graph, const Node& node) {
  const auto is_sum = [&](ValueId id) {
    return graph.value(id).storage_of == kNoValue && rules_of(graph.value(id).role).accumulates;
  };
  if (std::none_of(node.outputs.begin(), node.outputs.end(), is_sum)) return false;
  check_internal(node.outputs.size() == 1, "{} ({}): a sum among several outputs", node.op->name,
                 node.layer);
  return true;
}

constexpr MicroStep kVariants[] = {MicroStep::first, MicroStep::middle, MicroStep::last,
                                   MicroStep::only};

}  // namespace

Program::Program(Graph graph, const ProgramOptions& options)
    : graph_(std::move(graph)), options_(options) {
  verify_graph(graph_);
  check_internal(options.keep_gradients || !options.several_micro_steps,
                 "gradients of several micro-steps must be kept");
  make_calls();
  place_memory();
  fill_segments();
}

void Program::make_calls() {
  plain_calls_.resize(graph_.nodes.size());
  accumulating_calls_.resize(graph_.nodes.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    // A value that continues a sum is added to it in every micro-step.
    const auto& outputs = graph_.nodes[i].outputs;
    add_call(i, outputs.size() == 1 && graph_.continues_sum(outputs[0]), plain_calls_[i]);
    if (options_.several_micro_steps && accumulates(graph_, graph_.nodes[i])) {
      add_call(i, true, accumulating_calls_[i]);
    }
  }
}

// Returns the group of ranks of a collective op.
Collectives* Program::group_of(const Node& node) const {
  const std::string axis = node.attributes.text(kOver);
  if (axis.empty()) return options_.collectives;
  check_internal(options_.groups != nullptr, "{} over {} without groups", node.op->name, axis);
  return &options_.groups->along(axis);
}

void Program::add_call(size_t index, bool accumulate, std::vector<size_t>& list) {
  const Node& node = graph_.nodes[index];
  const SpecList inputs = graph_.input_specs(node), outputs = graph_.output_specs(node);
  const std::string subject = begins_slot(node) ? subject_of(graph_, node, options_.mesh) : "";
  const OperationSubject shared_subject =
      subject.empty() ? nullptr : std::make_shared<const std::string>(subject);
  const auto request = [&](std::string_view op, const Attributes& attributes, SpecSpan in,
                           bool add) {
    return KernelRequest{.op = op,
                         .attributes = attributes,
                         .inputs = in,
                         .outputs = outputs,
                         .accumulate = add,
                         .device = *options_.device,
                         .collectives = group_of(node),
                         .subject = shared_subject};
  };
  const auto push = [&](FoundKernel found, bool add) -> Call& {
    list.push_back(calls_.size());
    calls_.push_back(
        {.kernel = std::move(found.kernel), .row = found.row, .node = index, .accumulate = add});
    const std::string over = node.attributes.text(kOver);
    const bool sends = node.op->message == MessageKind::send, begins = begins_slot(node);
    if (node.phase != Phase::update && over.starts_with(mesh_axes::kPipeline)) {
      calls_.back().receives = begins && node.op->message == MessageKind::receive;
      calls_.back().sends = begins && sends;
      calls_.back().ends_forward =
          sends && !begins && node.phase == Phase::backward && over == mesh_axes::kPipeline;
    }
    return calls_.back();
  };
  try {
    FoundKernel found =
        find_kernel(*options_.engine, request(node.op->name, node.attributes, inputs, accumulate));
    if (found.kernel) {
      push(std::move(found), accumulate);
      return;
    }
    // No kernel of this op can accumulate: compute into a temporary, then add.
    push(find_kernel(*options_.engine, request(node.op->name, node.attributes, inputs, false)),
         false)
        .temporary = MemoryPlace{};  // placed by place_memory
    const Attributes none;
    FoundKernel add = find_kernel(*options_.engine, request("identity", none, outputs, true));
    check_internal(add.kernel != nullptr, "the {} engine cannot add", options_.engine->name);
    push(std::move(add), true).adds_temporary = true;
  } catch (const Error& error) {
    if (node.layer.empty() || !error.location().empty()) throw;
    throw Error(error.code(), error.what(), node.layer);
  }
}

void Program::fill_segments() {
  int chunks = 1;
  for (const Node& node : graph_.nodes) chunks = std::max(chunks, node.chunk + 1);
  segments_.resize(static_cast<size_t>(chunks));
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    for (MicroStep variant : kVariants) {
      const bool begins = variant == MicroStep::first || variant == MicroStep::only;
      const bool ends = variant == MicroStep::last || variant == MicroStep::only;
      if (node.once_per_step && !ends) continue;
      const auto& calls =
          begins || accumulating_calls_[i].empty() ? plain_calls_[i] : accumulating_calls_[i];
      auto& list = segments_[static_cast<size_t>(node.chunk)][static_cast<size_t>(node.phase)]
                            [static_cast<size_t>(variant)];
      list.insert(list.end(), calls.begin(), calls.end());
    }
  }
}

std::string Program::described(size_t call) const {
  const Node& node = graph_.nodes[calls_[call].node];
  return fmt::format("{} in {} ({})", node.op->name, node.layer.empty() ? "the model" : node.layer,
                     phase_name(node.phase));
}

std::map<std::pair<std::string, std::string>, size_t> Program::variants() const {
  std::map<std::pair<std::string, std::string>, size_t> out;
  for (const Call& call : calls_) {
    ++out[{std::string(call.row->op), std::string(call.row->variant)}];
  }
  return out;
}

}  // namespace dltrain
