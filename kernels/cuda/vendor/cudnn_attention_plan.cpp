#include "cuda/vendor/cudnn_attention_plan.h"

#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

#include "base/error.h"

namespace dltrain {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Id : int64_t { kQ = 1, kK, kV, kY, kSums, kDy, kDq, kDk, kDv };

fe::DataType_t library_type(DType dtype) {
  return dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

// [samples, heads, tokens, head_dim] in cuDNN's order of axes.
struct Layout {
  std::vector<int64_t> extents, strides;
};

Layout tokens_of(int64_t samples, int64_t tokens, int64_t heads, int64_t head_dim,
                 int64_t token_stride) {
  return {{samples, heads, tokens, head_dim}, {tokens * token_stride, head_dim, token_stride, 1}};
}

struct Layouts {
  Layout q, k, y, sums;
  explicit Layouts(const AttentionProblem& p)
      : q(tokens_of(p.samples, p.queries, p.heads, p.head_dim, p.query_stride)),
        k(tokens_of(p.samples, p.keys, p.kv_heads, p.head_dim, p.key_stride)),
        y(tokens_of(p.samples, p.queries, p.heads, p.head_dim, p.heads * p.head_dim)),
        sums{{p.samples, p.heads, p.queries, 1}, {p.heads * p.queries, p.queries, 1, 1}} {}
};

Tensor input(fe::graph::Graph& graph, Id id, const Layout& layout, fe::DataType_t type) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(id)
                          .set_dim(layout.extents)
                          .set_stride(layout.strides)
                          .set_data_type(type));
}

void output(const Tensor& tensor, Id id, const Layout& layout, fe::DataType_t type) {
  tensor->set_output(true)
      .set_uid(id)
      .set_dim(layout.extents)
      .set_stride(layout.strides)
      .set_data_type(type);
}

// What forward and backward have in common.
template <typename Options>
Options options_of(const AttentionProblem& p, const char* name) {
  Options options;
  options.set_name(name).set_attn_scale(static_cast<float>(p.scale)).set_causal_mask(p.causal);
  if (p.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(p.window));
  return options;
}

void add_forward(fe::graph::Graph& graph, const AttentionProblem& p) {
  const Layouts l(p);
  const fe::DataType_t type = library_type(p.dtype);
  auto options = options_of<fe::graph::SDPA_attributes>(p, "attention");
  options.set_generate_stats(true);
  const auto [y, sums] = graph.sdpa(input(graph, kQ, l.q, type), input(graph, kK, l.k, type),
                                    input(graph, kV, l.k, type), options);
  output(y, kY, l.y, type);
  output(sums, kSums, l.sums, fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const AttentionProblem& p) {
  const Layouts l(p);
  const fe::DataType_t type = library_type(p.dtype);
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
  Plan(std::unique_ptr<fe::graph::Graph> graph, size_t workspace_bytes, bool backward)
      : graph_(std::move(graph)), workspace_bytes_(workspace_bytes), backward_(backward) {}
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
  std::unique_ptr<fe::graph::Graph> graph_;
  size_t workspace_bytes_;
  bool backward_;
  std::unordered_map<int64_t, void*> data_;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<CudnnAttentionPlan> plan_attention(const AttentionProblem& problem,
                                                   const AttentionTarget& target,
                                                   std::string* why) {
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(library_type(problem.dtype))
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
  if (refused(target.handle != nullptr ? graph->build(target.handle, modes)
                                       : graph->build(modes))) {
    return nullptr;
  }
  int64_t workspace = 0;
  if (refused(graph->get_workspace_size(workspace))) return nullptr;
  return std::make_unique<Plan>(std::move(graph), static_cast<size_t>(workspace), problem.backward);
}

}  // namespace dltrain
