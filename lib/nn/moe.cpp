// moe: a mixture of experts in the place of a hidden layer of a transformer (Shazeer et al. 2017).
// The router p = softmax(x·Wᵀ) chooses experts_per_token of num_experts for each token; the result
// is the sum of their outputs times their probabilities. An expert is an MLP without biases,
//   down_proj(activation(gate_proj(x)) · up_proj(x)), or without a gate
//   down_proj(activation(up_proj(x))).
// Shared experts, one such MLP of shared_experts times the width, get every token. No token is
// dropped: the products run over as many rows of each expert as chose it (lib/ops/experts.cpp).
//
// Parameters: gate.weight [experts, in] (the router, which computes in f32 in any precision),
// experts.gate_proj.weight, experts.up_proj.weight [experts, hidden, in], experts.down_proj.weight
// [experts, in, hidden], and likewise shared_experts.* without the first axis.
#include <array>

#include "base/error.h"
#include "nn/layer.h"

namespace dltrain {
namespace {

struct Moe final : Layer {
  int64_t num_experts = 0, experts_per_token = 0, intermediate_size = 0, shared_experts = 0;
  bool gated = true, normalize_top_k = true, router_bias = false;
  std::unique_ptr<Layer> activation = make_kind(layer_table(), "silu");
  double balance_loss = 0, router_z_loss = 0;

  void describe(Fields& f) override {
    f.integer("num_experts", num_experts,
              {.doc = "Experts",
               .required = true,
               .min = 1,
               .max = 65536,
               .known_as = {"num_local_experts", "n_routed_experts", "experts"}});
    f.integer("experts_per_token", experts_per_token,
              {.doc = "Experts that a token chooses",
               .required = true,
               .min = 1,
               .max = 1024,
               .known_as = {"num_experts_per_tok", "top_k", "k"}});
    f.integer("intermediate_size", intermediate_size,
              {.doc = "Width of the hidden layer of an expert",
               .required = true,
               .min = 1,
               .max = 1e9,
               .known_as = {"moe_intermediate_size", "hidden_dim", "ffn_dim"}});
    f.one_of("activation", activation, layer_table(),
             {.doc = "Activation of the hidden layer, or of its gate", .known_as = {"hidden_act"}});
    f.boolean("gated", gated,
              {.doc = "The activation of gate_proj multiplies up_proj (SwiGLU); false: a plain MLP "
                      "without gate_proj"});
    f.boolean("normalize_top_k", normalize_top_k,
              {.doc = "Divide the probabilities of the chosen experts by their sum",
               .known_as = {"norm_topk_prob"}});
    f.integer("shared_experts", shared_experts,
              {.doc = "Experts that get every token, with weight 1",
               .min = 0,
               .max = 1024,
               .known_as = {"n_shared_experts", "num_shared_experts"}});
    f.boolean("router_bias", router_bias, {.doc = "Add a bias to the logits of the router"});
    f.number("balance_loss", balance_loss,
             {.doc = "Coefficient of the loss that balances the load of the experts (Fedus et al. "
                     "2022), which is added to the loss of each micro-batch in training",
              .min = 0,
              .max = 1e6,
              .known_as = {"router_aux_loss_coef", "aux_loss_coef", "load_balancing_loss"}});
    f.number(
        "router_z_loss", router_z_loss,
        {.doc = "Coefficient of the z-loss of the router's logits (Zoph et al. 2022), likewise",
         .min = 0,
         .max = 1e6,
         .known_as = {"router_z_loss_coef", "z_loss"}});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (experts_per_token > num_experts) {
      diagnostics.add(*this, "experts_per_token", "a token cannot choose {} of {} experts",
                      experts_per_token, num_experts);
    }
    if (activation->name || activation->inputs || activation->share || activation->weight_init ||
        activation->bias_init) {
      diagnostics.add(*this, "activation", "the activation of experts takes only its own keys");
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    if (shape.rank() > 3) expect_vectors(shape);
    GraphBuilder& b = c.builder();
    const int64_t in = shape[-1];
    std::vector<ValueId> router{x, weight(c, "gate.weight", {num_experts, in})};
    if (router_bias) {
      router.push_back(c.parameter("gate.bias", {num_experts}, Initializer::uniform_for(in)));
    }
    const ValueId logits =
        b.emit1("matmul", router, {{"transpose_b", true}, {"full_precision", true}});
    const auto routed = b.emit("top_k_routing", {b.emit1("softmax", {logits})},
                               {{"k", experts_per_token}, {"normalize", normalize_top_k}});
    const ValueId weights = routed[0], rows = routed[2], sources = routed[3], offsets = routed[4];
    const ValueId tokens = b.emit1("dispatch_tokens", {x, sources, rows});
    const ValueId y = emit_mlp(c, tokens, "experts.", intermediate_size, offsets);
    ValueId out = b.emit1("combine_experts", {y, rows, sources, weights});
    if (shared_experts > 0) {
      const int64_t width = shared_experts * intermediate_size;
      out = b.emit1("add", {out, emit_mlp(c, x, "shared_experts.", width, kNoValue)});
    }
    c.add_router({.layer = c.path(),
                  .experts = num_experts,
                  .choices = experts_per_token,
                  .balance_loss = balance_loss,
                  .router_z_loss = router_z_loss},
                 logits, offsets);
    return out;
  }

 private:
  static ValueId weight(LayerContext& c, const std::string& name, const Shape& shape) {
    FileLayout file{shape, {}};
    file.stacked = shape.rank() == 3;
    return c.parameter(name, shape, Initializer::uniform_for(shape[-1]), file);
  }

  // The products of one MLP, or with `offsets` of one for each expert.
  ValueId emit_mlp(LayerContext& c, ValueId x, const std::string& prefix, int64_t width,
                   ValueId offsets) const {
    GraphBuilder& b = c.builder();
    const int64_t in = c.shape(x)[-1];
    const auto product = [&](ValueId of, const char* name, int64_t rows, int64_t columns) {
      if (offsets == kNoValue) {
        const ValueId w = weight(c, prefix + name, {rows, columns});
        return b.emit1("matmul", {of, w}, {{"transpose_b", true}});
      }
      const ValueId w = weight(c, prefix + name, {num_experts, rows, columns});
      return b.emit1("grouped_matmul", {of, w, offsets}, {{"transpose_b", true}});
    };
    ValueId hidden = kNoValue;
    if (gated) hidden = emit_activation(c, product(x, "gate_proj.weight", width, in));
    const ValueId up = product(x, "up_proj.weight", width, in);
    hidden = gated ? b.emit1("mul", {hidden, up}) : emit_activation(c, up);
    return product(hidden, "down_proj.weight", in, width);
  }

  ValueId emit_activation(LayerContext& c, ValueId x) const {
    const size_t parameters = c.parameters().size(), nodes = c.builder().graph().nodes.size();
    const ValueId y = activation->emit_inputs(c, std::array{x});
    const std::vector<Node>& all = c.builder().graph().nodes;
    const bool elementwise =
        std::all_of(all.begin() + static_cast<std::ptrdiff_t>(nodes), all.end(),
                    [](const Node& node) { return node.op->elementwise; });
    if (!elementwise || c.parameters().size() != parameters) {
      fail(ExitCode::usage,
           "{} cannot be the activation of experts: it is not a function of each "
           "element alone",
           activation->kind);
    }
    return y;
  }
};

}  // namespace

std::vector<KindRow<Layer>> moe_rows() {
  return {{"moe",
           "a mixture of experts: each token goes through the MLPs that a router chooses for it "
           "(Shazeer et al. 2017), and no token is dropped without parallelism.expert_capacity",
           make_kind_of<Moe>}};
}

}  // namespace dltrain
