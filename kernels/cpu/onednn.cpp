#include "cpu/onednn.h"

#include <algorithm>

#include "base/error.h"
#include "cpu/makers.h"
#include "cpu/processor.h"
#include "shared/make_kernel.h"

namespace dltrain::onednn {
namespace {

constexpr bool kVersion3 = DNNL_VERSION_MAJOR >= 3;
using Algorithm = dnnl::algorithm;

// Version 2 has a leading scale, version 3 does not; as templates, only the valid form is compiled.
template <typename PostOps>
void append_eltwise(PostOps& post_ops, Algorithm algorithm, float alpha) {
  if constexpr (requires { post_ops.append_eltwise(algorithm, alpha, 0.0f); }) {
    post_ops.append_eltwise(algorithm, alpha, 0.0f);
  } else {
    post_ops.append_eltwise(1.0f, algorithm, alpha, 0.0f);
  }
}

// Version 3 builds a primitive_desc from the parts, version 2 from a description of the operation.
template <typename Primitive, typename... Parts>
auto describe(const dnnl::primitive_attr& attr, const Parts&... parts) {
  using Description = typename Primitive::primitive_desc;
  if constexpr (kVersion3) {
    return Description(engine(), parts..., attr);
  } else {
    return Description(typename Primitive::desc(parts...), attr, engine());
  }
}

// The same for a backward pass, which takes the description of its forward pass as a hint.
template <typename Primitive, typename Hint, typename... Parts>
auto describe_backward(const Hint& hint, const Parts&... parts) {
  using Description = typename Primitive::primitive_desc;
  const dnnl::primitive_attr attr = attributes();
  if constexpr (kVersion3) {
    return Description(engine(), parts..., hint, attr);
  } else {
    return Description(typename Primitive::desc(parts...), attr, engine(), hint);
  }
}

dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::stream& stream() {
  static dnnl::stream instance(engine());
  return instance;
}

dnnl::memory::desc strided(const dnnl::memory::dims& extents, const dnnl::memory::dims& strides,
                           DType dtype) {
  return {extents, data_type(dtype), strides};
}

dnnl::memory::desc any_layout(const dnnl::memory::dims& extents, DType dtype) {
  return {extents, data_type(dtype), dnnl::memory::format_tag::any};
}

bool computes_in(const KernelRequest& request, DType dtype) {
  if (dtype == DType::bf16) {
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto least = static_cast<unsigned>(has_fast_bf16_dot() ? dnnl::cpu_isa::avx512_core_bf16
                                                                 : dnnl::cpu_isa::avx512_core_amx);
    if ((isa & least) != least) return false;
  } else if (dtype != DType::f32) {
    return false;
  }
  const auto fits = [&](const TensorSpec& spec) {
    return !is_floating(spec.dtype) || spec.dtype == dtype;
  };
  return std::all_of(request.inputs.begin(), request.inputs.end(), fits) &&
         std::all_of(request.outputs.begin(), request.outputs.end(), [&](const TensorSpec& spec) {
           return fits(spec) || spec.dtype == DType::f32;
         });
}

bool append_activation(dnnl::post_ops& post_ops, const std::string& activation) {
  struct Row {
    const char* name;
    Algorithm algorithm;
    float alpha;
  };
  static constexpr Row kRows[] = {{"gelu", Algorithm::eltwise_gelu_erf, 0},
                                  {"gelu_tanh", Algorithm::eltwise_gelu_tanh, 0},
                                  {"silu", Algorithm::eltwise_swish, 1},
                                  {"tanh", Algorithm::eltwise_tanh, 0},
                                  {"sigmoid", Algorithm::eltwise_logistic, 0}};
  if (activation.empty() || activation == "relu") return true;
  for (const Row& row : kRows) {
    if (activation != row.name) continue;
    append_eltwise(post_ops, row.algorithm, row.alpha);
    return true;
  }
  return false;
}

std::unique_ptr<Kernel> with_relu(const KernelRequest& request, std::unique_ptr<Kernel> kernel) {
  if (request.attributes.text("activation") != "relu") return kernel;
  auto relu = make_elementwise({.op = "relu",
                                .attributes = request.attributes,
                                .inputs = request.outputs,
                                .outputs = request.outputs,
                                .device = request.device});
  const size_t workspace = kernel->workspace_bytes();
  return make_kernel(
      [kernel = std::move(kernel), relu = std::move(relu)](const Bindings& b, Stream& stream) {
        kernel->run(b, stream);
        relu->run({.inputs = b.outputs, .outputs = b.outputs}, stream);
      },
      workspace);
}

dnnl::primitive_attr attributes(const dnnl::post_ops& post_ops) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(post_ops);
  return attr;
}

dnnl::matmul::primitive_desc matmul(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                    const dnnl::memory::desc& bias, const dnnl::memory::desc& y,
                                    const dnnl::primitive_attr& attr) {
  return describe<dnnl::matmul>(attr, a, b, bias, y);
}

dnnl::convolution_forward::primitive_desc forward(const Convolution& c,
                                                  const dnnl::primitive_attr& attr) {
  return describe<dnnl::convolution_forward>(
      attr, dnnl::prop_kind::forward_training, Algorithm::convolution_direct, c.x, c.forward_w,
      c.bias, c.y, c.stride, c.dilation, c.padding, c.padding);
}

dnnl::convolution_backward_data::primitive_desc backward_input(const Convolution& c) {
  return describe_backward<dnnl::convolution_backward_data>(
      forward(c, attributes()), Algorithm::convolution_direct, c.x, c.w, c.y, c.stride, c.dilation,
      c.padding, c.padding);
}

dnnl::convolution_backward_weights::primitive_desc backward_weight(const Convolution& c) {
  return describe_backward<dnnl::convolution_backward_weights>(
      forward(c, attributes()), Algorithm::convolution_direct, c.x, c.w, c.bias, c.y, c.stride,
      c.dilation, c.padding, c.padding);
}

void Call::argument(int index, const dnnl::memory::desc& description) {
  dnnl::memory& memory = arguments_.emplace_back();
  if (description.get_size() == 0) return;
  memory = dnnl::memory(description, engine(), DNNL_MEMORY_NONE);
  packed_.push_back({index, memory.get()});
}

void Call::run(std::initializer_list<void*> addresses) const {
  check_internal(addresses.size() == arguments_.size(),
                 "oneDNN call: {} addresses for {} arguments", addresses.size(), arguments_.size());
  auto address = addresses.begin();
  for (const dnnl::memory& memory : arguments_) {
    if (memory) memory.set_data_handle(*address);
    ++address;
  }
  const UsedThreads used(threads_);
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream().get(), static_cast<int>(packed_.size()), packed_.data());
  check_internal(status == dnnl_success, "oneDNN primitive failed with status {}",
                 static_cast<int>(status));
}

Reorder::Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to, bool accumulate) {
  dnnl::post_ops post_ops;
  if (accumulate) post_ops.append_sum();
  const dnnl::reorder::primitive_desc description(engine(), from, engine(), to,
                                                  attributes(post_ops));
  call = Call(dnnl::reorder(description));
  call.argument(DNNL_ARG_FROM, from);
  call.argument(DNNL_ARG_TO, to);
  call.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  scratch_bytes = description.scratchpad_desc().get_size();
}

}  // namespace dltrain::onednn
