#include "cuda/vendor/cudnn_attention_plan.h"

#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

#include "base/error.h"

namespace dltrain {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr int64_t kCudnnAttentionPlanMostWorkspace = int64_t{4} << 30;

enum Id : int64_t { kQ = 1, kK, kV, kY, kSums, kDy, kDq, kDk, kDv };

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
  explicit Layouts(const AttentionProblem& p)
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
Options options_of(const AttentionProblem& p, const char* name) {
  Options options;
  options.set_name(name).set_attn_scale(static_cast<float>(p.scale)).set_causal_mask(p.causal);
  if (p.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(p.window));
  return options;
}

void add_forward(fe::graph::Graph& graph, const AttentionProblem& p) {
  const Layouts l(p);
  const fe::DataType_t type = library_type_cudnn_attention_plan(p.dtype);
  auto options = options_of<fe::graph::SDPA_attributes>(p, "attention");
  options.set_generate_stats(true);
  const auto [y, sums] = graph.sdpa(input(graph, kQ, l.q, type), input(graph, kK, l.k, type),
                                    input(graph, kV, l.k, type), options);
  output(y, kY, l.y, type);
  output(sums, kSums, l.sums, fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const AttentionProblem& p) {
  const Layouts l(p);
  const fe::DataType_t type = library_type_cudnn_attention_plan(p.dtype);
  auto options = options_of<fe::graph::SDPA_backward_attributes>(p, "attention_backward");
  options.set_deterministic_algorithm(true);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      input(graph, kQ, l.q, type), input(graph, kK, l.k, type), input(graph, kV, l.k, type),
      input(graph, kY, l.y, type), input(graph, kDy, l.y, type),
      input(graph, kSums, l.sums, fe::DataType_t::FLOAT), options);
  output(dq, kDq, l.q, type);
  output(dk, kDk, l.k, type);
  output(dv, kDv, l.k, type);
}

class Plan final : public CudnnAttentionPlan {
 public:
  Plan(std::unique_ptr<fe::graph::Graph> graph, bool backward)
      : graph_(std::move(graph)), backward_(backward) {
    const int64_t count = graph_->get_execution_plan_count();
    for (int64_t i = 0; i < count; ++i) {
      std::string name;
      (void)graph_->get_plan_name_at_index(i, name);
      names_.push_back(std::move(name));
    }
  }
  const std::vector<std::string>& proposals() const override { return names_; }
  bool select(size_t proposal) override { return build(static_cast<int64_t>(proposal)).is_good(); }
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

  void bind(const Data& d, void* workspace) override {
    data_ = {{kQ, d.q}, {kK, d.k}, {kV, d.v}, {kY, d.y}, {kSums, d.sums}};
    if (backward_) data_.insert({{kDy, d.dy}, {kDq, d.dq}, {kDk, d.dk}, {kDv, d.dv}});
    workspace_ = workspace;
  }
  void run(cudnnHandle_t handle) override {
    auto status = graph_->execute(handle, data_, workspace_);
    if (status.is_bad()) {
      fail(ExitCode::device, "cuDNN: attention: {}", status.get_message());
    }
  }

 private:
  // The graph executes the plan that was built last.
  fe::error_t build(int64_t proposal) {
    if (auto status = graph_->build_plan_at_index(proposal); status.is_bad()) return status;
    int64_t bytes = 0;
    if (auto status = graph_->get_workspace_size(bytes); status.is_bad()) return status;
    if (bytes > kCudnnAttentionPlanMostWorkspace) {
      return {fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "its workspace is too large"};
    }
    workspace_bytes_ = static_cast<size_t>(bytes);
    return {fe::error_code_t::OK, ""};
  }

  std::unique_ptr<fe::graph::Graph> graph_;
  std::vector<std::string> names_;
  size_t workspace_bytes_ = 0;
  bool backward_;
  std::unordered_map<int64_t, void*> data_;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<CudnnAttentionPlan> plan_attention(const AttentionProblem& problem,
                                                   const AttentionTarget& target,
                                                   std::string* why) {
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(library_type_cudnn_attention_plan(problem.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto refused = [&](fe::error_t status) {
    if (status.is_good()) return false;
    if (why != nullptr) *why = status.get_message();
    return true;
  };
  if (target.handle == nullptr) {
    auto gpu = std::make_shared<fe::DeviceProperties>();
    std::vector<uint8_t> json(target.description.begin(), target.description.end());
    json.push_back(0);
    if (refused(gpu->deserialize(json))) return nullptr;
    graph->set_device_properties(gpu).set_sm_version(target.sm_version);
  }
  problem.backward ? add_backward(*graph, problem) : add_forward(*graph, problem);
  const std::vector<fe::HeurMode_t> modes{fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK};
  if (refused(graph->validate()) ||
      refused(target.handle != nullptr ? graph->build_operation_graph(target.handle)
                                       : graph->build_operation_graph()) ||
      refused(graph->create_execution_plans(modes))) {
    return nullptr;
  }
  graph->deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
  auto plan = std::make_unique<Plan>(std::move(graph), problem.backward);
  if (refused(plan->select_first())) return nullptr;
  return plan;
}

}  // namespace dltrain
