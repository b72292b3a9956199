// The forward-mode rule of attention, by the kernels of attention and of its gradient. With P =
// softmax(s·q·kᵀ) and t = q̇·kᵀ + q·k̇ᵀ the tangent is
//
//   s · (Σⱼ Pᵢⱼ·tᵢⱼ·vⱼ − rᵢ·yᵢ) + Σⱼ Pᵢⱼ·v̇ⱼ,  rᵢ = Σⱼ Pᵢⱼ·tᵢⱼ
//
// The gradient of attention by q is s·Σⱼ Pᵢⱼ·(dyᵢ·vⱼ − dyᵢ·yᵢ)·kⱼ. In attention of twice the width
// with q' = [q, 0], k' = [k, v] and v' = [k, k̇], where the weights are those of the op, it is the
// first term for dy' = [q̇, q]: dy'ᵢ·v'ⱼ = tᵢⱼ, so dy'ᵢ·y'ᵢ = rᵢ, and the half of dq' that belongs
// to v is wanted. No matrix of tokens by tokens is kept.
//
// With dropout (mask M, 1/(1 − p) or 0) the tangent is s · (Σⱼ M·P·t·v − rᵢ·yᵢ) + Σⱼ M·P·v̇, and
// that half is s · (Σⱼ M·P·t·v − δᵢ·zᵢ), where δᵢ = Σⱼ M·P·t = dy'ᵢ·y'ᵢ and z is y without dropout.
#include <cmath>

#include "ops/attention.h"
#include "ops/tangent_emitter.h"

namespace dltrain {
namespace {

struct Operands {
  ValueId q, k, v;
};

class AttentionTangent {
 public:
  explicit AttentionTangent(const TangentRequest& r) : r_(r), e_(r), sizes_(sizes(r)) {
    attributes_ = r.attributes;
    attributes_.erase("heads");
    attributes_.erase("kv_heads");
    scale_ = r.attributes.number("scale", 1 / std::sqrt(static_cast<double>(sizes_.head_dim)));
    attributes_.set("scale", scale_);
    drops_ = r.attributes.number("dropout") > 0;
  }

  ValueId run() const {
    const Operands x = sizes_.packed ? unpacked(r_.inputs[0]) : Operands{in(0), in(1), in(2)};
    const Operands tangents = sizes_.packed ? unpacked(r_.tangents[0])
                                            : Operands{e_.tangent(0), e_.tangent(1), e_.tangent(2)};
    ValueId sum = kNoValue;
    if (tangents.v != kNoValue) sum = attended(x.q, x.k, tangents.v, true)[0];
    if (tangents.q != kNoValue || tangents.k != kNoValue) {
      const ValueId moved = of_weights(x, tangents);
      sum = sum == kNoValue ? moved : e_.add(sum, moved);
    }
    return sizes_.packed ? e_.reshaped(sum, e_.y().shape) : sum;
  }

 private:
  static AttentionSizes sizes(const TangentRequest& r) {
    SpecList specs;
    for (ValueId id : r.inputs) specs.push_back(r.emitter.spec(id));
    return attention_sizes("attention", specs, r.attributes);
  }
  ValueId in(size_t i) const { return r_.inputs[i]; }

  // Returns the parts of a packed input, [samples, tokens, heads, head_dim] each.
  Operands unpacked(ValueId packed) const {
    int64_t begin = 0;
    const auto part = [&](int64_t heads) {
      const int64_t width = heads * sizes_.head_dim;
      const ValueId sliced = e_.slice(packed, 2, begin, width);
      begin += width;
      return e_.reshaped(sliced, {sizes_.samples, sizes_.queries, heads, sizes_.head_dim});
    };
    const ValueId q = part(sizes_.heads), k = part(sizes_.kv_heads), v = part(sizes_.kv_heads);
    return {q, k, v};
  }

  std::vector<ValueId> inputs(ValueId q, ValueId k, ValueId v, bool drops) const {
    std::vector<ValueId> out{q, k, v};
    const auto rest = r_.inputs.subspan(sizes_.packed ? 1 : 3);
    out.insert(out.end(), rest.begin(), rest.end());
    if (drops_ && !drops) out.pop_back();
    return out;
  }
  Attributes attributes(ValueId q, bool drops) const {
    Attributes out = attributes_;
    if (!drops) out.erase("dropout");
    // Positions of sharded heads count channels.
    const int64_t widths = r_.emitter.spec(q).shape[3] / sizes_.head_dim;
    for (const char* name : {"shard_row", "whole_row", "shard_offset"}) {
      if (out.has(name)) out.set(name, widths * out.integer(name));
    }
    return out;
  }
  std::vector<ValueId> attended(ValueId q, ValueId k, ValueId v, bool drops) const {
    return r_.emitter.emit("attention", inputs(q, k, v, drops), attributes(q, drops));
  }

  // The tangent by q and k.
  ValueId of_weights(const Operands& x, const Operands& tangents) const {
    const ValueId dq = tangents.q != kNoValue ? tangents.q : e_.scaled(x.q, 0);
    const ValueId dk = tangents.k != kNoValue ? tangents.k : e_.scaled(x.k, 0);
    const ValueId q = e_.concat({x.q, e_.scaled(x.q, 0)}, 3), k = e_.concat({x.k, x.v}, 3),
                  v = e_.concat({x.k, dk}, 3), dy = e_.concat({dq, x.q}, 3);
    const std::vector<ValueId> y = attended(q, k, v, true);
    std::vector<ValueId> backward{dy, y[0], y[1]};
    std::ranges::copy(inputs(q, k, v, true), std::back_inserter(backward));
    const ValueId gradient =
        r_.emitter.emit("attention_backward", backward, attributes(q, true))[0];
    const ValueId half = e_.slice(gradient, 3, sizes_.head_dim, sizes_.head_dim);
    if (!drops_) return half;
    const ValueId kept = attended(x.q, x.k, x.v, false)[0];
    const ValueId dropped =
        sizes_.packed ? e_.reshaped(r_.outputs[0], r_.emitter.spec(kept).shape) : r_.outputs[0];
    const ValueId delta = e_.mul(kept, row_products(dy, y[0]));
    const ValueId mean = e_.mul(dropped, row_products(dy, attended(q, k, v, false)[0]));
    return e_.add(half, e_.scaled(r_.emitter.emit1("sub", {delta, mean}), scale_));
  }
  // Returns a · b over the channels, [samples, queries, heads, 1].
  ValueId row_products(ValueId a, ValueId b) const { return e_.sum_from(e_.mul(a, b), 3); }

  const TangentRequest& r_;
  TangentEmitter e_;
  AttentionSizes sizes_;
  Attributes attributes_;  // of attention to q, k and v that are not packed
  double scale_;
  bool drops_;
};

}  // namespace

std::optional<ValueId> attention_tangent(const TangentRequest& r) {
  return AttentionTangent(r).run();
}

}  // namespace dltrain
