// embedding: a learned vector for each id (of a word, token or category). The ids of the model's
// integer input are checked before training (compile/id_bounds.h).
#include <cmath>

#include "base/error.h"
#include "nn/layer.h"

namespace dltrain {
namespace {

struct Embedding final : Layer {
  int64_t embedding_dim = 0;
  std::optional<int64_t> num_embeddings, padding_idx;
  bool scale_embedding = false;

  void describe(Fields& f) override {
    f.integer("num_embeddings", num_embeddings,
              {.doc = "Number of ids: they are 0 to num_embeddings - 1; default: the vocabulary "
                      "(model.vocab_size)",
               .min = 1,
               .max = 2147483647,
               .known_as = {"vocab_size", "vocabulary_size", "input_dim"}});
    f.integer("embedding_dim", embedding_dim,
              {.doc = "Length of a vector",
               .required = true,
               .min = 1,
               .max = 1e8,
               .known_as = {"hidden_size", "output_dim", "features"}});
    f.integer("padding_idx", padding_idx,
              {.doc = "Id whose vector is initially zero and gets no gradient", .min = 0});
    f.boolean("scale_embedding", scale_embedding,
              {.doc = "Multiply the vectors by √embedding_dim (Vaswani et al. 2017)"});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (padding_idx && num_embeddings && *padding_idx >= *num_embeddings) {
      diagnostics.add(*this, "padding_idx", "padding_idx must be less than num_embeddings");
    }
  }

  // As in PyTorch, values are standard normal.
  ValueId emit(LayerContext& c, ValueId x) const override {
    if (c.builder().spec(x).dtype != DType::i32) {
      fail(ExitCode::usage, "expects integer ids, got {}", to_string(c.builder().spec(x)));
    }
    const int64_t rows = num_embeddings ? *num_embeddings : c.vocabulary();
    Initializer initializer = Initializer::normal_of(1);
    if (padding_idx) {
      if (*padding_idx >= rows) {
        fail(ExitCode::usage, "padding_idx {} is not below the number of ids, {}", *padding_idx,
             rows);
      }
      initializer.zeros_at = {*padding_idx * embedding_dim, embedding_dim};
    }
    const ValueId weight = c.parameter("weight", {rows, embedding_dim}, initializer);
    const ValueId rows_of_ids =
        c.builder().emit1("embedding", {x, weight}, {{"padding_idx", padding_idx.value_or(-1)}});
    if (!scale_embedding) return rows_of_ids;
    return c.scaled(rows_of_ids, std::sqrt(static_cast<double>(embedding_dim)));
  }
};

}  // namespace

std::vector<KindRow<Layer>> embedding_rows() {
  return {{"embedding", "a learned vector for each id", make_kind_of<Embedding>}};
}

}  // namespace dltrain
