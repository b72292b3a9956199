#include "checks/suggestions.h"

#include <algorithm>

#include <fmt/format.h>

#include "compile/alignment.h"
#include "config/suggest.h"
#include "graph/builder.h"
#include "run/advice.h"

namespace dltrain {
namespace {

bool is_norm_of_tokens(const Node& node) {
  return node.op->name == "layer_norm" || node.op->name == "rms_norm";
}

// Returns whether the learning rate begins far below its greatest value.
bool warms_up(const Session& session) {
  const Schedule& schedule = *session.experiment->lr_scheduler;
  double greatest = 0;
  for (int i = 0; i <= 10; ++i) {
    greatest =
        std::max(greatest, schedule.factor(i * (session.max_steps - 1) / 10, session.max_steps));
  }
  return schedule.factor(0, session.max_steps) < 0.5 * greatest;
}

std::string rate_suggestion(const Session& session) {
  const std::string& kind = session.experiment->optimizer->kind;
  const double rate = session.experiment->optimizer->peak_learning_rate(session.batch.global_batch);
  const bool adaptive = kind.find("adam") != kind.npos || kind == "lion";
  if (rate <= (adaptive ? 2e-2 : 2)) return "";
  return fmt::format(
      "a learning rate of {:g} is unusual for {}: begin with {}, or with what `dltrain lr-find` "
      "proposes",
      rate, kind, adaptive ? "3e-4 and a constant rate" : "0.1");
}

}  // namespace

GraphProbe Suggestions::probe() {
  return [this](GraphBuilder&, const StepGraph& step) { inspect(step); };
}

void Suggestions::inspect(const StepGraph& step) {
  const Graph& forward = step.graph;
  const auto learns = [&](const Node& linear) {
    return !contains(step.frozen, linear.layer + ".weight");
  };
  std::vector<const Node*> dropout(forward.values.size(), nullptr);  // that the value depends on
  std::vector<std::vector<const Node*>> readers(forward.values.size());
  for (const Node& node : forward.nodes) {
    const std::string_view op = node.op->name;
    const Node* seen = op == "dropout" ? &node : nullptr;
    for (const ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      readers[static_cast<size_t>(input)].push_back(&node);
      if (seen == nullptr) seen = dropout[static_cast<size_t>(input)];
    }
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) dropout[static_cast<size_t>(output)] = seen;
    }
    if (op == "batch_norm" && dropout_before_norm_.empty() && seen != nullptr) {
      dropout_before_norm_ = fmt::format("{} (dropout) before {}", seen->layer, node.layer);
    }
    const auto made_by = [&](ValueId value) -> const Node* {
      const int producer = value == kNoValue ? -1 : forward.value(value).producer;
      return producer < 0 ? nullptr : &forward.nodes[static_cast<size_t>(producer)];
    };
    const Node* before = node.inputs.empty() ? nullptr : made_by(node.inputs[0]);
    if (before != nullptr && op == "matmul" && before->op->name == "matmul" &&
        joined_linear_.empty() && before->layer != node.layer && learns(*before) && learns(node)) {
      joined_linear_ = fmt::format("{} and {}", before->layer, node.layer);
    }
    const bool recurrent = op.starts_with("recurrent");  // one node, or the parts it is lowered to
    if (clipped_.empty() && (recurrent || op == "attention")) {
      clipped_ = recurrent ? "recurrent layers" : "attention";
    }
  }
  for (const Node& node : forward.nodes) {
    if (!is_norm_of_tokens(node)) continue;
    const int producer = forward.value(node.inputs[0]).producer;
    const auto& uses = readers[static_cast<size_t>(node.outputs[0])];
    const bool of_sum =
        producer >= 0 && forward.nodes[static_cast<size_t>(producer)].op->name == "add";
    const bool into_sum =
        std::ranges::any_of(uses, [](const Node* n) { return n->op->name == "add"; });
    if (of_sum && into_sum && uses.size() > 1) norm_after_sum_ = node.layer;
  }
}

std::vector<std::string> Suggestions::of(const Session& session) const {
  std::vector<std::string> out = advice(session);
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) out.push_back(std::move(sentence));
  };
  if (!session.has_evaluation()) {
    add("no data is held out, so nothing shows overfitting: data.eval_fraction: 0.1 holds out a "
        "tenth");
  }
  if (!joined_linear_.empty()) {
    add(fmt::format(
        "{} are linear layers without an activation between them, together no more than "
        "one linear layer",
        joined_linear_));
  }
  const auto& every = session.experiment->evaluation.eval_steps;
  if (session.has_evaluation() && every && *every > session.max_steps) {
    add(fmt::format("evaluation.eval_steps {} is more than the {} steps: only the end is evaluated",
                    *every, session.max_steps));
  }
  if (!dropout_before_norm_.empty()) {
    add(fmt::format(
        "{}: dropout changes the variance that batch norm learns, and is off when it is used; put "
        "it behind the last batch norm (Li et al. 2019)",
        dropout_before_norm_));
  }
  if (!norm_after_sum_.empty() && !warms_up(session)) {
    add(fmt::format(
        "{} is a norm on the residual path (post-norm), which needs a warm-up of the learning "
        "rate: lr_scheduler: {{warmup_steps: {}}}; norms at the start of each branch do not "
        "(Xiong et al. 2020)",
        norm_after_sum_, std::max<int64_t>(1, session.max_steps / 20)));
  }
  if (!clipped_.empty() && !session.experiment->training.max_grad_norm) {
    add(
        fmt::format("gradients of models with {} have spikes: training.max_grad_norm: 1.0 is "
                    "customary",
                    clipped_));
  }
  add(rate_suggestion(session));
  add(describe_misalignment(session.executor->training().graph,
                            session.experiment->precision.compute));
  return out;
}

}  // namespace dltrain
