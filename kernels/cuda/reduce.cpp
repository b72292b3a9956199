// Kernel class of reduce: finds out how the reduced axes lie in memory.
#include "cuda/reduce.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "cuda/makers.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Neighbouring axes that are all kept or all reduced, merged; axes of extent 1 left out.
struct AxisGroup {
  bool reduced;
  int64_t extent, stride;
};

std::vector<AxisGroup> axis_groups(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<AxisGroup> groups;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    const int64_t stride = shape.elements(i + 1, shape.rank());
    if (!groups.empty() && groups.back().reduced == reduced) {
      groups.back().extent *= shape[i];
      groups.back().stride = stride;
    } else {
      groups.push_back({reduced, shape[i], stride});
    }
  }
  return groups;
}

void append(StridedLayout& layout, const AxisGroup& group) {
  layout.extent[layout.rank] = group.extent;
  layout.stride[0][layout.rank] = group.stride;
  ++layout.rank;
}

// [outer, reduced, inner] where the reduced axes are neighbours, else by strides.
void set_extents(ReduceCall& call, const std::vector<AxisGroup>& groups) {
  const auto reduced = std::count_if(groups.begin(), groups.end(),
                                     [](const AxisGroup& group) { return group.reduced; });
  bool after = false;
  for (const AxisGroup& group : groups) {
    int64_t& extent = group.reduced             ? call.reduced
                      : (after && reduced == 1) ? call.inner
                                                : call.outer;
    extent *= group.extent;
    after = after || group.reduced;
    append(group.reduced ? call.gone : call.kept, group);
  }
  call.strided = reduced > 1;
}

class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(const ReduceCall& call) : call_(call) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(reduce_workspace_elements(call_)) *
           dtype_size(accumulation_dtype(call_.dtype));
  }
  void bind(const Bindings& bindings) override {
    x_ = bindings.inputs[0];
    y_ = bindings.outputs[0];
    workspace_ = bindings.workspace;
  }
  void run(Stream& stream) override { launch_reduce(call_, x_, y_, workspace_, stream.native()); }

 private:
  ReduceCall call_;
  const void* x_ = nullptr;
  void* y_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_reduce(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (!is_floating(x.dtype) || request.outputs[0].dtype != accumulation_dtype(x.dtype)) {
    return nullptr;
  }
  const std::string kind = request.attributes.text("kind");
  ReduceCall call{.dtype = x.dtype, .maximum = kind == "max", .accumulate = request.accumulate};
  set_extents(call, axis_groups(x.shape, request.attributes.integers("axes")));
  if (kind == "mean") call.scale = 1.0 / static_cast<double>(call.reduced);
  return std::make_unique<ReduceKernel>(call);
}

}  // namespace dltrain
