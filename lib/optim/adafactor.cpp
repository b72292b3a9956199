// Adafactor as torch.optim.Adafactor (Shazeer & Stern 2018, without momentum).
#include <array>

#include "ops/update.h"
#include "optim/optimizer.h"

namespace dltrain {
namespace {

struct Adafactor final : Optimizer {
  double beta2_decay = -0.8, d = 1;
  std::array<double, 2> epsilons{0x1p-23, 1e-3};

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number(
        "beta2_decay", beta2_decay,
        {.doc = "Exponent of the number of the update in the decay of the variances", .max = 0});
    f.numbers("epsilons", epsilons,
              {.doc = "Lower limits of the root of a variance, and of the root mean square of a "
                      "parameter, which scales the step",
               .above = 0,
               .known_as = {"eps", "epsilon"}});
    f.number("d", d,
             {.doc = "Upper limit of the root mean square of an update",
              .above = 0,
              .known_as = {"clip_threshold"}});
  }
  std::string op() const override { return "adafactor_update"; }
  void emit_nodes(GraphBuilder& builder, std::vector<UpdateNode>& nodes) const override {
    std::vector<ValueId> sums;
    for (UpdateNode& node : nodes) {
      const std::vector<ValueId>& of = node.inputs;
      Attributes attributes;
      const std::optional<Shard>& shard = builder.graph().value(of[1]).shard;
      if (shard && shard->cut) {
        const Cut& cut = *shard->cut;
        attributes.set("range", adafactor_range(shard->whole.shape, 0, cut.dimension,
                                                cut_ranges(cut.parts, cut.rank)));
        node.attributes.set("range", attributes.integers("range"));
      }
      sums.push_back(builder.emit1("adafactor_sums", {of[0], of[1], of[2]}, attributes));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      std::vector<ValueId>& of = nodes[i].inputs;
      of.push_back(sums[i]);
      const auto made = builder.emit("adafactor_moments", of, nodes[i].attributes);
      of[3] = made[0];
      if (of[4] != kNoValue) of[4] = made[1];
      of.push_back(made.back());
    }
    Optimizer::emit_nodes(builder, nodes);
  }
  Attributes attributes() const override {
    return {{"beta2_decay", beta2_decay},
            {"epsilon1", epsilons[0]},
            {"epsilon2", epsilons[1]},
            {"d", d}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    if (shape.rank() < 2) return {{"variance", shape}, {}};
    return {{"row_variance", Shape{shape[0]}},
            {"column_variance", Shape{shape.elements(1, shape.rank())}}};
  }
};

}  // namespace

std::vector<KindRow<Optimizer>> adafactor_rows() {
  return {{"adafactor", "factored second moments (Shazeer & Stern 2018, as PyTorch's)",
           make_kind_of<Adafactor>}};
}

}  // namespace dltrain
