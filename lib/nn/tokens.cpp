// Layers over sequences [samples, tokens, width] that encode positions and types of tokens:
// class_token prepends a learned token (Devlin et al. 2019; Dosovitskiy et al. 2021),
// position_embedding adds a learned vector to every position, sinusoidal_positions a fixed one;
// rotary_positions rotates heads of queries and keys, token_type_embedding adds a vector for each
// segment. Parameters have torchvision's names and shapes: class_token [1, 1, width], pos_embedding
// [1, tokens, width]; with max_positions those of torch.nn.Embedding: weight [max_positions,
// width], of which a sequence uses the first rows.
#include "base/error.h"
#include "nn/decoding.h"
#include "nn/layer.h"
#include "ops/gathered_parts.h"

namespace dltrain {
namespace {

[[noreturn]] void too_long(int64_t tokens, int64_t max_positions) {
  fail(ExitCode::usage,
       "sequences of {} tokens are longer than max_positions {}; lower data.sequence_length or "
       "raise max_positions",
       tokens, max_positions);
}

// Returns the shape of `tokens`.
Shape shape_of_tokens(LayerContext& c, ValueId tokens) {
  const Shape shape = c.shape(tokens);
  expect_tokens(shape);
  return shape;
}

// Returns the first rows of a table [all, width] as [1, rows, width].
ValueId first_rows(LayerContext& c, ValueId table, int64_t rows) {
  const Shape shape = c.shape(table);
  if (rows < shape[0]) table = emit_range(c.builder(), table, 0, {0, rows});
  return c.reshape(table, {1, rows, shape[1]});
}

struct ClassToken final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = shape_of_tokens(c, x);
    if (decoding_of(c, x) != nullptr) {
      fail(ExitCode::usage,
           "puts a token in front of the others, so this model cannot generate text");
    }
    const ValueId token = c.parameter("class_token", {1, 1, shape[2]}, Initializer::zeros());
    const ValueId repeated = c.builder().emit1(
        "broadcast", {token}, {{"shape", std::vector<int64_t>{shape[0], 1, shape[2]}}});
    return c.builder().emit1("concat", {repeated, x}, {{"axis", int64_t{1}}});
  }
};

struct PositionEmbedding final : Layer {
  double std = 0.02;
  std::optional<int64_t> max_positions;

  void describe(Fields& f) override {
    f.number("std", std,
             {.doc = "Standard deviation of the initial values",
              .min = 0,
              .known_as = {"init_std", "initializer_range"}});
    f.integer("max_positions", max_positions,
              {.doc = "Number of positions in the table, for sequences of at most that length; "
                      "default: the length of the sequences",
               .min = 1,
               .max = 1e8,
               .known_as = {"max_position_embeddings", "n_positions", "block_size"}});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = shape_of_tokens(c, x);
    if (Decoding* d = decoding_of(c, x)) return emit_placed(c, x, *d);
    if (max_positions && shape[1] > *max_positions) too_long(shape[1], *max_positions);
    const Initializer init = Initializer::normal_of(std);
    ValueId positions = max_positions ? c.parameter("weight", {*max_positions, shape[2]}, init)
                                      : c.parameter("pos_embedding", {1, shape[1], shape[2]}, init);
    if (const ValueId documents = c.document_positions(); documents != kNoValue) {
      if (!max_positions) positions = c.reshape(positions, {shape[1], shape[2]});
      positions =
          c.builder().emit1("embedding", {documents, positions}, {{"padding_idx", int64_t{-1}}});
    } else if (max_positions) {
      positions = first_rows(c, positions, shape[1]);
    }
    return c.builder().emit1("add", {x, positions});
  }

 private:
  // In generation, every token gets the row of its position.
  ValueId emit_placed(LayerContext& c, ValueId x, Decoding& decoding) const {
    const Shape shape = c.shape(x);
    GraphBuilder& b = c.builder();
    const Initializer init = Initializer::normal_of(std);
    int64_t count = max_positions.value_or(0);
    ValueId table;
    if (max_positions) {
      table = c.parameter("weight", {count, shape[2]}, init);
    } else {
      const Shape* trained =
          decoding.trained ? decoding.trained(c.path() + ".pos_embedding") : nullptr;
      if (trained == nullptr || trained->rank() != 3) {
        fail(ExitCode::usage,
             "its table has as many positions as the sequences; set max_positions");
      }
      count = (*trained)[1];
      table = c.parameter("pos_embedding", {1, count, shape[2]}, init);
      table = c.reshape(table, {count, shape[2]});
    }
    decoding.limit_positions(count);
    const ValueId positions =
        b.emit1("token_positions", {decoding.positions}, {{"tokens", shape[1]}, {"limit", count}});
    const ValueId rows = b.emit1("embedding", {positions, table}, {{"padding_idx", int64_t{-1}}});
    return b.emit1("add", {x, rows});
  }
};

// Returns the input `x` and, in generation, the positions of the tokens.
std::vector<ValueId> with_positions(LayerContext& c, ValueId x) {
  const Decoding* decoding = decoding_of(c, x);
  if (decoding == nullptr) return {x};
  return {x, decoding->positions};
}

// BERT's segments. Without a second input every token belongs to the first segment.
struct TokenTypeEmbedding final : Layer {
  int64_t num_types = 2;

  void describe(Fields& f) override {
    f.integer("num_types", num_types,
              {.doc = "Rows of the table", .min = 1, .max = 1e6, .known_as = {"type_vocab_size"}});
  }
  ValueId emit_inputs(LayerContext& c, std::span<const ValueId> values) const override {
    if (values.size() > 2) {
      fail(ExitCode::usage, "expects tokens and optionally their types, got {} inputs",
           values.size());
    }
    const Shape shape = shape_of_tokens(c, values[0]);
    const ValueId weight =
        c.parameter("weight", {num_types, shape[2]}, Initializer::normal_of(0.02));
    if (values.size() == 2) {
      const ValueId rows =
          c.builder().emit1("embedding", {values[1], weight}, {{"padding_idx", int64_t{-1}}});
      return c.builder().emit1("add", {values[0], rows});
    }
    return c.builder().emit1("add", {values[0], first_rows(c, weight, 1)});
  }
};

struct SinusoidalPositions final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_tokens(c.shape(x));
    if (c.document_positions() != kNoValue) {
      fail(ExitCode::usage,
           "counts from the first token of a sequence, not of a document; with "
           "data.document_mask use learned or rotary positions");
    }
    return c.builder().emit1("sinusoidal_positions", with_positions(c, x));
  }
};

enum class Scaling : uint8_t { none, linear, llama3 };

struct RopeScaling : ConfigObject {
  Scaling type = Scaling::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_positions = 8192;

  void describe(Fields& f) {
    f.choice("type", type,
             {{"none", Scaling::none},
              {"linear", Scaling::linear, "every angle is divided by factor"},
              {"llama3", Scaling::llama3, "only slowly rotating angles are divided"}},
             {.doc = "How angles are changed for sequences longer than those of the pre-training",
              .known_as = {"rope_type"}});
    f.number("factor", factor, {.doc = "How many times longer sequences are", .min = 1});
    f.number("low_freq_factor", low_freq_factor,
             {.doc = "llama3: waves longer than original_max_positions / this are stretched by the "
                     "whole factor",
              .above = 0});
    f.number("high_freq_factor", high_freq_factor,
             {.doc = "llama3: waves shorter than original_max_positions / this are unchanged",
              .above = 0});
    f.integer("original_max_positions", original_max_positions,
              {.doc = "llama3: maximum sequence length of the pre-training",
               .min = 1,
               .known_as = {"original_max_position_embeddings"}});
  }
  void validate(Diagnostics& diagnostics) const {
    if (type == Scaling::llama3 && high_freq_factor <= low_freq_factor) {
      diagnostics.add(*this, "high_freq_factor", "high_freq_factor must be above low_freq_factor");
    }
  }
};

struct RotaryPositions final : Layer {
  double theta = 10000;
  std::optional<int64_t> dim, max_positions;
  RopeScaling scaling;

  void describe(Fields& f) override {
    f.number("theta", theta,
             {.doc = "Base of the angles", .above = 1, .known_as = {"rope_theta", "base"}});
    f.integer(
        "dim", dim,
        {.doc = "Number of elements of each head that are rotated, from the first; default: all",
         .min = 2,
         .known_as = {"rotary_dim"}});
    f.integer("max_positions", max_positions,
              {.doc = "Limit of the sequence length; default: none",
               .min = 1,
               .known_as = {"max_position_embeddings"}});
    f.section("scaling", scaling,
              {.doc = "Changes of the angles for long sequences", .known_as = {"rope_scaling"}});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    if (c.shape(x).rank() != 4) {
      fail(ExitCode::usage, "expects [samples, tokens, heads, width of a head], got {}",
           to_string(c.shape(x)));
    }
    if (max_positions && c.shape(x)[1] > *max_positions) {
      too_long(c.shape(x)[1], *max_positions);
    }
    if (Decoding* d = decoding_of(c, x); d != nullptr && max_positions) {
      d->limit_positions(*max_positions);
    }
    Attributes attributes{{"theta", theta}};
    if (dim) attributes.set("dim", *dim);
    if (scaling.type != Scaling::none) {
      attributes.set("scaling", std::string(scaling.type == Scaling::linear ? "linear" : "llama3"));
      attributes.set("factor", scaling.factor);
    }
    if (scaling.type == Scaling::llama3) {
      attributes.set("low_freq_factor", scaling.low_freq_factor);
      attributes.set("high_freq_factor", scaling.high_freq_factor);
      attributes.set("original_max_positions", static_cast<double>(scaling.original_max_positions));
    }
    return c.builder().emit1("rotary", with_positions(c, x), attributes);
  }
};

}  // namespace

std::vector<KindRow<Layer>> tokens_rows() {
  return {
      {"class_token", "a learned token before the others", make_kind_of<ClassToken>},
      {"position_embedding", "adds a learned vector to each position",
       make_kind_of<PositionEmbedding>},
      {"token_type_embedding", "adds a learned vector for each token's type (Devlin et al. 2019)",
       make_kind_of<TokenTypeEmbedding>, "num_types"},
      {"sinusoidal_positions", "adds sines and cosines of the position (Vaswani et al. 2017)",
       make_kind_of<SinusoidalPositions>},
      {"rotary_positions",
       "rotates pairs of elements of each head of queries or keys by the position of the token, as "
       "in Llama (Su et al. 2021)",
       make_kind_of<RotaryPositions>}};
}

}  // namespace dltrain
