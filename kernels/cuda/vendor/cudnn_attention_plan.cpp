#include "cuda/vendor/cudnn_attention_plan.h"

#include <vector>

#include <cudnn_frontend.h>

#include "base/error.h"

namespace dltrain {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr int64_t kCudnnAttentionPlanMaxWorkspace = int64_t{4} << 30;

using Id = CudnnAttentionPlan::Id;
using enum CudnnAttentionPlan::Id;

fe::DataType_t library_type_cudnn_attention_plan(DType dtype) {
  return dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

// [samples, heads, tokens, head_dim] in cuDNN's order of axes.
struct CudnnAttentionPlanLayout {
  std::vector<int64_t> extents, strides;
};

CudnnAttentionPlanLayout tokens_of(int64_t samples, int64_t tokens, int64_t heads, int64_t head_dim,
                                   int64_t token_stride) {
  return {{samples, heads, tokens, head_dim}, {tokens * token_stride, head_dim, token_stride, 1}};
}

struct Layouts {
  CudnnAttentionPlanLayout q, k, y, sums;
  explicit Layouts(const AttentionCall& p)
      : q(tokens_of(p.samples, p.queries, p.heads, p.head_dim, p.query_stride)),
        k(tokens_of(p.samples, p.keys, p.kv_heads, p.head_dim, p.key_stride)),
        y(tokens_of(p.samples, p.queries, p.heads, p.head_dim, p.heads * p.head_dim)),
        sums{{p.samples, p.heads, p.queries, 1}, {p.heads * p.queries, p.queries, 1, 1}} {}
};

Tensor input(fe::graph::Graph& graph, Id id, const CudnnAttentionPlanLayout& layout,
             fe::DataType_t type) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(id)
                          .set_dim(layout.extents)
                          .set_stride(layout.strides)
                          .set_data_type(type));
}

void output(const Tensor& tensor, Id id, const CudnnAttentionPlanLayout& layout,
            fe::DataType_t type) {
  tensor->set_output(true)
      .set_uid(id)
      .set_dim(layout.extents)
      .set_stride(layout.strides)
      .set_data_type(type);
}

// Returns the options common to forward and backward.
template <typename Options>
Options options_of(fe::graph::Graph& graph, const AttentionCall& p, bool backward) {
  Options options;
  if (p.mask != AttentionCall::Mask::none) {
    const AttentionBias bias = bias_of(p, backward);
    const int64_t of_sample = bias.rows * bias.stride;
    options.set_bias(input(
        graph, kBias, {{p.samples, 1, bias.rows, p.keys}, {of_sample, of_sample, bias.stride, 1}},
        library_type_cudnn_attention_plan(p.dtype)));
  }
  if (p.dropout > 0) {
    const auto number = [&](Id id) {
      return input(graph, id, {{1, 1, 1, 1}, {1, 1, 1, 1}}, fe::DataType_t::INT64);
    };
    options.set_dropout(static_cast<float>(p.dropout), number(kSeed), number(kOffset));
  }
  options.set_name(backward ? "attention_backward" : "attention")
      .set_attn_scale(static_cast<float>(p.scale));
  if (p.pattern.causal && p.first_query > 0) {
    options.set_causal_mask_bottom_right(true);
  } else {
    options.set_causal_mask(p.pattern.causal);
  }
  if (p.pattern.window > 0) {
    options.set_diagonal_band_left_bound(static_cast<int>(p.pattern.window));
  }
  return options;
}

void add_forward(fe::graph::Graph& graph, const AttentionCall& p) {
  const Layouts l(p);
  const fe::DataType_t type = library_type_cudnn_attention_plan(p.dtype);
  auto options = options_of<fe::graph::SDPA_attributes>(graph, p, false);
  options.set_generate_stats(true);
  const auto [y, sums] = graph.sdpa(input(graph, kQ, l.q, type), input(graph, kK, l.k, type),
                                    input(graph, kV, l.k, type), options);
  output(y, kY, l.y, type);
  output(sums, kSums, l.sums, fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const AttentionCall& p) {
  const Layouts l(p);
  const fe::DataType_t type = library_type_cudnn_attention_plan(p.dtype);
  auto options = options_of<fe::graph::SDPA_backward_attributes>(graph, p, true);
  options.set_deterministic_algorithm(true);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      input(graph, kQ, l.q, type), input(graph, kK, l.k, type), input(graph, kV, l.k, type),
      input(graph, kY, l.y, type), input(graph, kDy, l.y, type),
      input(graph, kSums, l.sums, fe::DataType_t::FLOAT), options);
  output(dq, kDq, l.q, type);
  output(dk, kDk, l.k, type);
  output(dv, kDv, l.k, type);
}

// Describes the GPU to the graph if there is no handle of it.
fe::error_t set_target(fe::graph::Graph& graph, const AttentionTarget& target) {
  if (target.handle != nullptr) return {fe::error_code_t::OK, ""};
  auto gpu = std::make_shared<fe::DeviceProperties>();
  std::vector<uint8_t> json(target.description.begin(), target.description.end());
  json.push_back(0);
  if (auto status = gpu->deserialize(json); status.is_bad()) return status;
  graph.set_device_properties(gpu).set_sm_version(target.sm_version);
  return {fe::error_code_t::OK, ""};
}

class Plan final : public CudnnAttentionPlan {
 public:
  explicit Plan(std::unique_ptr<fe::graph::Graph> graph) : graph_(std::move(graph)) {
    const int64_t count = graph_->get_execution_plan_count();
    for (int64_t i = 0; i < count; ++i) {
      std::string name;
      (void)graph_->get_plan_name_at_index(i, name);
      names_.push_back(std::move(name));
    }
  }
  const std::vector<std::string>& proposals() const override { return names_; }
  bool select(size_t proposal) override { return build(static_cast<int64_t>(proposal)).is_good(); }
  bool select(const std::string& name) override {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name && select(i)) return true;
    }
    return select_first().is_good();
  }
  // Builds the first proposal that works; returns the error of the last one if none does.
  fe::error_t select_first() {
    fe::error_t status{fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED,
                       "nothing is proposed"};
    for (size_t i = 0; i < names_.size() && status.is_bad(); ++i) {
      status = build(static_cast<int64_t>(i));
    }
    return status;
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  std::string stored() const override {
    std::vector<uint8_t> bytes;
    if (graph_->serialize(bytes, false).is_bad()) return {};
    return {bytes.begin(), bytes.end()};
  }
  void run(cudnnHandle_t handle, Addresses& addresses, void* workspace) const override {
    auto status = graph_->execute(handle, addresses, workspace);
    if (status.is_bad()) {
      fail(ExitCode::device, "cuDNN: attention: {}", status.get_message());
    }
  }

  // Reads the size of the workspace.
  fe::error_t measure() {
    int64_t bytes = 0;
    if (auto status = graph_->get_workspace_size(bytes); status.is_bad()) return status;
    if (bytes > kCudnnAttentionPlanMaxWorkspace) {
      return {fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "its workspace is too large"};
    }
    workspace_bytes_ = static_cast<size_t>(bytes);
    return {fe::error_code_t::OK, ""};
  }

 private:
  // The graph executes the plan that was built last.
  fe::error_t build(int64_t proposal) {
    if (auto status = graph_->build_plan_at_index(proposal); status.is_bad()) return status;
    return measure();
  }
  std::unique_ptr<fe::graph::Graph> graph_;
  std::vector<std::string> names_;
  size_t workspace_bytes_ = 0;
};

}  // namespace

std::string CudnnAttentionPlan::format() {
  return "cudnn-frontend " + std::to_string(CUDNN_FRONTEND_VERSION);
}

std::unique_ptr<CudnnAttentionPlan> plan_attention(const AttentionCall& call, bool backward,
                                                   const AttentionTarget& target,
                                                   std::string* why) {
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(library_type_cudnn_attention_plan(call.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto refused = [&](fe::error_t status) {
    if (status.is_good()) return false;
    if (why != nullptr) *why = status.get_message();
    return true;
  };
  if (refused(set_target(*graph, target))) return nullptr;
  backward ? add_backward(*graph, call) : add_forward(*graph, call);
  const std::vector<fe::HeurMode_t> modes{fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK};
  if (refused(graph->validate()) ||
      refused(target.handle != nullptr ? graph->build_operation_graph(target.handle)
                                       : graph->build_operation_graph()) ||
      refused(graph->create_execution_plans(modes))) {
    return nullptr;
  }
  graph->deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
  auto plan = std::make_unique<Plan>(std::move(graph));
  if (refused(plan->select_first())) return nullptr;
  return plan;
}

std::unique_ptr<CudnnAttentionPlan> restore_attention(const std::string& stored,
                                                      const AttentionTarget& target) {
  const std::vector<uint8_t> bytes(stored.begin(), stored.end());
  auto graph = std::make_unique<fe::graph::Graph>();
  try {
    if (set_target(*graph, target).is_bad() ||
        (target.handle != nullptr ? graph->deserialize(target.handle, bytes, true, false)
                                  : graph->deserialize(bytes, true))
            .is_bad()) {
      return nullptr;
    }
    auto plan = std::make_unique<Plan>(std::move(graph));
    return plan->measure().is_good() ? std::move(plan) : nullptr;
  } catch (const std::exception&) {  // of the parser
    return nullptr;
  }
}

}  // namespace dltrain
