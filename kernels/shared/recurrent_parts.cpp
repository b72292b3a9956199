#include "shared/recurrent_parts.h"

#include "ops/recurrent.h"
#include "ops/rules.h"
#include "shared/kernel_part.h"

namespace dltrain {
namespace {

// Tensors between the parts.
struct IntermediateTensors {
  IntermediateTensors(const TensorSpec& y, const Attributes& a)
      : sizes(recurrent_sizes(y.shape, a)),
        projected{Shape{sizes.samples, sizes.tokens, sizes.width()}, y.dtype},
        gates(projected),
        cells(y) {
    if (!keeps_gates(sizes.kind)) return;
    gates_at = kept.add(gates.bytes());
    cells_at = kept.add(cells.bytes());
  }
  // For `reduce` and products over all tokens: one axis for samples and tokens.
  TensorSpec flat(const TensorSpec& spec) const {
    return {Shape{sizes.samples * sizes.tokens, spec.shape[-1]}, spec.dtype};
  }

  RecurrentSizes sizes;
  TensorSpec projected, gates, cells;
  WorkspaceParts kept;
  size_t gates_at = 0, cells_at = 0;
};

// The attributes of a part: its own, and the arithmetic of products.
Attributes with_math(Attributes own, const Attributes& whole) {
  if (whole.has("math")) own.set("math", whole.text("math"));
  return own;
}

Attributes direction(const Attributes& a) {
  return with_math({{"kind", a.text("kind")}, {"reverse", a.boolean("reverse")}}, a);
}

// Attributes of the slice that selects the token processed last.
Attributes last_token(const RecurrentSizes& s) {
  const int64_t others = s.tokens - 1;
  return {{"before", std::vector<int64_t>{0, s.reverse ? 0 : others, 0}},
          {"after", std::vector<int64_t>{0, s.reverse ? others : 0, 0}}};
}

}  // namespace

std::unique_ptr<Kernel> make_recurrent_of_parts(const KernelRequest& r, const Engine& engine) {
  const IntermediateTensors t(r.outputs[0], r.attributes);
  const int64_t kept_bytes = r.attributes.integer("kept_bytes");
  check_internal(kept_bytes == 0 || kept_bytes >= parts_kept_bytes(r),
                 "{}: kept_bytes {} is too small", r.op, kept_bytes);
  const bool keeps = kept_bytes > 0, gates = keeps_gates(t.sizes.kind);
  WorkspaceParts scratch;
  const size_t projected_at = scratch.add(t.projected.bytes());
  const size_t kept_at = scratch.add(keeps ? 0 : t.kept.total());
  KernelPart projection(engine, r,
                        {.op = "matmul",
                         .inputs = {r.inputs[0], r.inputs[1], r.inputs[3]},
                         .outputs = {t.projected},
                         .attributes = with_math({{"transpose_b", true}}, r.attributes)},
                        scratch);
  KernelPart::Request steps{
      .op = "recurrent",
      .inputs = {t.projected, r.inputs[2], r.inputs[4], r.inputs[5], r.inputs[6]},
      .outputs = {r.outputs[0]},
      .attributes = direction(r.attributes)};
  if (gates) steps.outputs.insert(steps.outputs.end(), {t.gates, t.cells});
  KernelPart recurrent(engine, r, steps, scratch);
  std::optional<KernelPart> cell;
  if (t.sizes.kind == RecurrentKind::lstm) {
    cell.emplace(engine, r,
                 KernelPart::Request{.op = "slice",
                                     .inputs = {t.cells},
                                     .outputs = {r.outputs[1]},
                                     .attributes = last_token(t.sizes)},
                 scratch);
  }
  auto parts = [=, projection = std::move(projection), recurrent = std::move(recurrent),
                cell = std::move(cell)](const Bindings& b) {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    auto* kept = keeps ? static_cast<std::byte*>(b.outputs.back()) : workspace + kept_at;
    void *projected = workspace + projected_at, *cells = kept + t.cells_at;
    const std::initializer_list<void*> inputs = {projected, b.inputs[2], b.inputs[4], b.inputs[5],
                                                 b.inputs[6]};
    std::vector<BoundCall> calls;
    calls.push_back(
        projection.bound(workspace, {b.inputs[0], b.inputs[1], b.inputs[3]}, {projected}));
    calls.push_back(
        gates ? recurrent.bound(workspace, inputs, {b.outputs[0], kept + t.gates_at, cells})
              : recurrent.bound(workspace, inputs, {b.outputs[0]}));
    if (cell) calls.push_back(cell->bound(workspace, {cells}, {b.outputs[1]}));
    return calls;
  };
  return make_of_parts(std::move(parts), scratch.total());
}

std::unique_ptr<Kernel> make_recurrent_backward_of_parts(const KernelRequest& r,
                                                         const Engine& engine) {
  const IntermediateTensors t(r.inputs[2], r.attributes);
  const bool gates = keeps_gates(t.sizes.kind);
  WorkspaceParts scratch;
  const size_t dprojected_at = scratch.add(t.projected.bytes());
  KernelPart::Request steps{.op = "recurrent_backward",
                            .inputs = {r.inputs[0], r.inputs[2], gates ? t.gates : absent_spec(),
                                       gates ? t.cells : absent_spec(), r.inputs[4], r.inputs[6],
                                       r.inputs[7], r.inputs[8]},
                            .outputs = {t.projected, r.outputs[2]},
                            .attributes = direction(r.attributes)};
  if (!is_absent(r.inputs[6])) steps.outputs.push_back(r.outputs[4]);
  KernelPart recurrent(engine, r, steps, scratch);
  KernelPart input(engine, r,
                   {.op = "matmul",
                    .inputs = {t.projected, r.inputs[3]},
                    .outputs = {r.outputs[0]},
                    .attributes = with_math({}, r.attributes)},
                   scratch);
  KernelPart weight(
      engine, r,
      {.op = "matmul",
       .inputs = {t.flat(t.projected), t.flat(r.inputs[1])},
       .outputs = {r.outputs[1]},
       .attributes = with_math(
           {{"transpose_a", true}, {"output_dtype", std::string(dtype_name(r.outputs[1].dtype))}},
           r.attributes)},
      scratch);
  std::optional<KernelPart> bias;
  if (!is_absent(r.inputs[5])) {
    bias.emplace(
        engine, r,
        KernelPart::Request{.op = "reduce",
                            .inputs = {t.flat(t.projected)},
                            .outputs = {r.outputs[3]},
                            .attributes = {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}},
        scratch);
  }
  auto parts = [=, recurrent = std::move(recurrent), input = std::move(input),
                weight = std::move(weight), bias = std::move(bias)](const Bindings& b) {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    auto* kept = static_cast<std::byte*>(b.inputs[9]);
    void* dprojected = workspace + dprojected_at;
    const std::initializer_list<void*> inputs = {b.inputs[0],
                                                 b.inputs[2],
                                                 gates ? kept + t.gates_at : nullptr,
                                                 gates ? kept + t.cells_at : nullptr,
                                                 b.inputs[4],
                                                 b.inputs[6],
                                                 b.inputs[7],
                                                 b.inputs[8]};
    std::vector<BoundCall> calls;
    calls.push_back(
        bias ? recurrent.bound(workspace, inputs, {dprojected, b.outputs[2], b.outputs[4]})
             : recurrent.bound(workspace, inputs, {dprojected, b.outputs[2]}));
    calls.push_back(input.bound(workspace, {dprojected, b.inputs[3]}, {b.outputs[0]}));
    calls.push_back(weight.bound(workspace, {dprojected, b.inputs[1]}, {b.outputs[1]}));
    if (bias) calls.push_back(bias->bound(workspace, {dprojected}, {b.outputs[3]}));
    return calls;
  };
  return make_of_parts(std::move(parts), scratch.total());
}

int64_t parts_kept_bytes(const KernelRequest& r) {
  return static_cast<int64_t>(IntermediateTensors(r.outputs[0], r.attributes).kept.total());
}

}  // namespace dltrain
