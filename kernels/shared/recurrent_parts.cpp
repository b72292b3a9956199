#include "shared/recurrent_parts.h"

#include "ops/recurrent.h"
#include "ops/rules.h"
#include "shared/kernel_part.h"
#include "shared/make_kernel.h"

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

Attributes direction(const Attributes& a) {
  return {{"kind", a.text("kind")}, {"reverse", a.boolean("reverse")}};
}

// Attributes of the slice that selects the token processed last.
Attributes last_token(const RecurrentSizes& s) {
  const int64_t others = s.tokens - 1;
  return {{"before", std::vector<int64_t>{0, s.reverse ? 0 : others, 0}},
          {"after", std::vector<int64_t>{0, s.reverse ? others : 0, 0}}};
}

std::vector<TensorSpec> with_gates(std::vector<TensorSpec> specs, const IntermediateTensors& t) {
  if (keeps_gates(t.sizes.kind)) specs.insert(specs.end(), {t.gates, t.cells});
  return specs;
}

class RecurrentOfParts {
 public:
  RecurrentOfParts(const KernelRequest& r, const Engine& engine)
      : t_(r.outputs[0], r.attributes),
        keeps_(r.attributes.integer("kept_bytes") > 0),
        projected_at_(scratch_.add(t_.projected.bytes())),
        kept_at_(scratch_.add(keeps_ ? 0 : t_.kept.total())),
        projection_(engine, r,
                    {.op = "matmul",
                     .inputs = {r.inputs[0], r.inputs[1], r.inputs[3]},
                     .outputs = {t_.projected},
                     .attributes = {{"transpose_b", true}}},
                    scratch_),
        recurrent_(engine, r,
                   {.op = "recurrent",
                    .inputs = {t_.projected, r.inputs[2], r.inputs[4], r.inputs[5], r.inputs[6]},
                    .outputs = with_gates({r.outputs[0]}, t_),
                    .attributes = direction(r.attributes)},
                   scratch_) {
    check_internal(!keeps_ || r.attributes.integer("kept_bytes") >= parts_kept_bytes(r),
                   "{}: kept_bytes {} is too small", r.op, r.attributes.integer("kept_bytes"));
    if (t_.sizes.kind != RecurrentKind::lstm) return;
    cell_.emplace(engine, r,
                  KernelPart::Request{.op = "slice",
                                      .inputs = {t_.cells},
                                      .outputs = {r.outputs[1]},
                                      .attributes = last_token(t_.sizes)},
                  scratch_);
  }

  size_t workspace_bytes() const { return scratch_.total(); }

  std::vector<BoundCall> operator()(const Bindings& b) const {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    auto* kept = keeps_ ? static_cast<std::byte*>(b.outputs.back()) : workspace + kept_at_;
    void *projected = workspace + projected_at_, *cells = kept + t_.cells_at;
    const std::initializer_list<void*> inputs = {projected, b.inputs[2], b.inputs[4], b.inputs[5],
                                                 b.inputs[6]};
    std::vector<BoundCall> calls;
    calls.push_back(
        projection_.bound(workspace, {b.inputs[0], b.inputs[1], b.inputs[3]}, {projected}));
    calls.push_back(
        keeps_gates(t_.sizes.kind)
            ? recurrent_.bound(workspace, inputs, {b.outputs[0], kept + t_.gates_at, cells})
            : recurrent_.bound(workspace, inputs, {b.outputs[0]}));
    if (cell_) calls.push_back(cell_->bound(workspace, {cells}, {b.outputs[1]}));
    return calls;
  }

 private:
  IntermediateTensors t_;
  bool keeps_;
  WorkspaceParts scratch_;
  size_t projected_at_, kept_at_;
  KernelPart projection_, recurrent_;
  std::optional<KernelPart> cell_;
};

class RecurrentBackwardOfParts {
 public:
  RecurrentBackwardOfParts(const KernelRequest& r, const Engine& engine)
      : t_(r.inputs[2], r.attributes),
        dprojected_at_(scratch_.add(t_.projected.bytes())),
        recurrent_(engine, r, recurrent_request(r, t_), scratch_),
        input_(engine, r,
               {.op = "matmul", .inputs = {t_.projected, r.inputs[3]}, .outputs = {r.outputs[0]}},
               scratch_),
        weight_(engine, r,
                {.op = "matmul",
                 .inputs = {t_.flat(t_.projected), t_.flat(r.inputs[1])},
                 .outputs = {r.outputs[1]},
                 .attributes = {{"transpose_a", true},
                                {"output_dtype", std::string(dtype_name(r.outputs[1].dtype))}}},
                scratch_) {
    if (is_absent(r.inputs[5])) return;
    bias_.emplace(
        engine, r,
        KernelPart::Request{.op = "reduce",
                            .inputs = {t_.flat(t_.projected)},
                            .outputs = {r.outputs[3]},
                            .attributes = {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}},
        scratch_);
  }

  size_t workspace_bytes() const { return scratch_.total(); }

  std::vector<BoundCall> operator()(const Bindings& b) const {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    auto* kept = static_cast<std::byte*>(b.inputs[9]);
    const bool gates = keeps_gates(t_.sizes.kind);
    void* dprojected = workspace + dprojected_at_;
    const std::initializer_list<void*> inputs = {b.inputs[0],
                                                 b.inputs[2],
                                                 gates ? kept + t_.gates_at : nullptr,
                                                 gates ? kept + t_.cells_at : nullptr,
                                                 b.inputs[4],
                                                 b.inputs[6],
                                                 b.inputs[7],
                                                 b.inputs[8]};
    std::vector<BoundCall> calls;
    calls.push_back(
        bias_ ? recurrent_.bound(workspace, inputs, {dprojected, b.outputs[2], b.outputs[4]})
              : recurrent_.bound(workspace, inputs, {dprojected, b.outputs[2]}));
    calls.push_back(input_.bound(workspace, {dprojected, b.inputs[3]}, {b.outputs[0]}));
    calls.push_back(weight_.bound(workspace, {dprojected, b.inputs[1]}, {b.outputs[1]}));
    if (bias_) calls.push_back(bias_->bound(workspace, {dprojected}, {b.outputs[3]}));
    return calls;
  }

 private:
  static KernelPart::Request recurrent_request(const KernelRequest& r,
                                               const IntermediateTensors& t) {
    const bool gates = keeps_gates(t.sizes.kind);
    KernelPart::Request out{.op = "recurrent_backward",
                            .inputs = {r.inputs[0], r.inputs[2], gates ? t.gates : absent_spec(),
                                       gates ? t.cells : absent_spec(), r.inputs[4], r.inputs[6],
                                       r.inputs[7], r.inputs[8]},
                            .outputs = {t.projected, r.outputs[2]},
                            .attributes = direction(r.attributes)};
    if (!is_absent(r.inputs[6])) out.outputs.push_back(r.outputs[4]);
    return out;
  }

  IntermediateTensors t_;
  WorkspaceParts scratch_;
  size_t dprojected_at_;
  KernelPart recurrent_, input_, weight_;
  std::optional<KernelPart> bias_;
};

// A kernel that runs the calls of its parts one after the other.
template <typename Parts>
std::unique_ptr<Kernel> make_of_parts(const KernelRequest& r, const Engine& engine) {
  Parts parts(r, engine);
  const size_t workspace = parts.workspace_bytes();
  return make_prepared_kernel(
      std::move(parts),
      [](const std::vector<BoundCall>& calls, const Bindings&, Stream& stream) {
        for (const BoundCall& call : calls) call.run(stream);
      },
      workspace);
}

}  // namespace

std::unique_ptr<Kernel> make_recurrent_of_parts(const KernelRequest& r, const Engine& engine) {
  return make_of_parts<RecurrentOfParts>(r, engine);
}
std::unique_ptr<Kernel> make_recurrent_backward_of_parts(const KernelRequest& r,
                                                         const Engine& engine) {
  return make_of_parts<RecurrentBackwardOfParts>(r, engine);
}

int64_t parts_kept_bytes(const KernelRequest& r) {
  return static_cast<int64_t>(IntermediateTensors(r.outputs[0], r.attributes).kept.total());
}

}  // namespace dltrain
