// adafactor_update (lib/ops/update_adaptive.cpp), tensor by tensor. A tensor of two or more axes is
// a matrix of its first axis by the rest; one of fewer axes is divided into pieces that are treated
// as rows. Sums are in double within rows or pieces and added in order, so that they do not depend
// on the number of threads.
#include <algorithm>
#include <cmath>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/sum_of_squares.h"
#include "cpu/support.h"
#include "shared/adafactor_rules.h"
#include "shared/make_kernel.h"
#include "shared/update_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/adafactor.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {

// sums[i] += g[i]²
void add_squares(const GradientView<float>& view, const float* g, double* sums, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(view(g[i]));
    sums[i] += x * x;
  }
}

void update_variance(const GradientView<float>& view, float share, const float* g, float* variance,
                     int64_t count) {
  const AdafactorLerp<float> move(share);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) variance[i] = move(variance[i], view(g[i]));
}

// quotient ← g / √max(scale · variance, least)
void divide(const GradientView<float>& view, const float* g, const float* variance, float scale,
            float least, float* quotient, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    quotient[i] = adafactor_quotient(view(g[i]), scale * variance[i], least);
  }
}

void apply(float keep, float step, const float* quotient, float* p, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) p[i] = keep * p[i] - step * quotient[i];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(add_squares);
HWY_EXPORT(update_variance);
HWY_EXPORT(divide);
HWY_EXPORT(apply);

constexpr int64_t kPiece = 4096;      // elements processed at a time
constexpr int64_t kColumnGrain = 64;  // columns of a thread are a multiple of it

struct Sums {
  double parameter, other;
};

// One tensor: `rows` by `columns`, or (factored false) one row.
struct Layout {
  explicit Layout(const Shape& shape)
      : factored(shape.rank() > 1),
        rows(factored ? shape[0] : 1),
        columns(factored ? shape.elements(1, shape.rank()) : shape.elements()),
        pieces_a_row(std::max<int64_t>(1, ceil_div(columns, kPiece))),
        pieces(rows * pieces_a_row) {}

  bool factored;
  int64_t rows, columns;
  int64_t pieces_a_row, pieces;
};

// The op for any addresses.
struct AdafactorPlan {
  explicit AdafactorPlan(const KernelRequest& request)
      : groups(request.attributes), rule(adafactor_rule(request.attributes)) {
    for (size_t t = 0; t < groups.group.size(); ++t) {
      layouts.emplace_back(request.inputs[1 + t].shape);
      most_pieces = std::max(most_pieces, layouts.back().pieces);
      most_columns = std::max(most_columns, layouts.back().columns);
    }
  }

  size_t workspace_bytes() const {
    return static_cast<size_t>(most_pieces) * sizeof(Sums) +
           static_cast<size_t>(most_columns) * sizeof(double);
  }

  UpdateGroups groups;
  AdafactorRule rule;
  std::vector<Layout> layouts;
  int64_t most_pieces = 0, most_columns = 0;
};

class AdafactorUpdate {
 public:
  AdafactorUpdate(const AdafactorPlan& plan, const Bindings& bindings)
      : groups_(plan.groups),
        rule_(plan.rule),
        layouts_(plan.layouts),
        state_(input<const StepState>(bindings, 0)),
        tensors_(bindings.inputs.subspan(1)),
        sums_(static_cast<Sums*>(bindings.workspace)),
        columns_(reinterpret_cast<double*>(sums_ + plan.most_pieces)) {}

  void run() const {
    if (state_->out.finite == 0) return;
    for (size_t t = 0; t < layouts_.size(); ++t) update(t);
  }

 private:
  float* tensor(size_t role, size_t t) const {
    return static_cast<float*>(tensors_[role * layouts_.size() + t]);
  }

  // f(piece, row, first element of the piece, elements)
  template <typename F>
  static void each_piece(const Layout& a, const F& f) {
    parallel_for(a.pieces, std::max<int64_t>(1, 2 * kPiece / std::max<int64_t>(1, a.columns)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t row = i / a.pieces_a_row;
                     const int64_t column = i % a.pieces_a_row * kPiece;
                     f(i, row, row * a.columns + column, std::min(kPiece, a.columns - column));
                   }
                 });
  }
  Sums total(const Layout& a) const {
    Sums out{0, 0};
    for (int64_t i = 0; i < a.pieces; ++i) {
      out.parameter += sums_[i].parameter;
      out.other += sums_[i].other;
    }
    return out;
  }

  void update(size_t t) const;
  float move_factors(size_t t, const GradientView<float>& view, double share) const;

  const UpdateGroups& groups_;
  const AdafactorRule& rule_;
  const std::vector<Layout>& layouts_;
  const StepState* state_;
  std::span<void* const> tensors_;
  Sums* sums_;  // of each piece
  double* columns_;
};

// Updates the row and column variances; returns 1 / (mean of the rows' variances). sums_ contain
// the squares of the parameter and the gradient.
float AdafactorUpdate::move_factors(size_t t, const GradientView<float>& view, double share) const {
  const Layout& a = layouts_[t];
  const float* g = tensor(1, t);
  float *row = tensor(2, t), *column = tensor(3, t);
  double mean = 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < a.pieces_a_row; ++i) squares += sums_[r * a.pieces_a_row + i].other;
    const double target = squares / static_cast<double>(a.columns);
    row[r] = adafactor_lerp(row[r], target, share);
    mean += row[r];
  }
  const auto add = HWY_DYNAMIC_DISPATCH(add_squares);
  parallel_for(a.columns, kColumnGrain, [&](int64_t begin, int64_t end) {
    std::fill(columns_ + begin, columns_ + end, 0.0);
    for (int64_t r = 0; r < a.rows; ++r) {
      add(view, g + r * a.columns + begin, columns_ + begin, end - begin);
    }
    for (int64_t c = begin; c < end; ++c) {
      const double target = columns_[c] / static_cast<double>(a.rows);
      column[c] = adafactor_lerp(column[c], target, share);
    }
  });
  return static_cast<float>(rule_.inverse_mean(mean, static_cast<double>(a.rows)));
}

void AdafactorUpdate::update(size_t t) const {
  const Layout& a = layouts_[t];
  if (a.rows * a.columns == 0) return;
  const auto view = gradient_view<float>(*state_);
  const GroupSettings& group = groups_.of(t);
  const double share = rule_.share(*state_);
  float *p = tensor(0, t), *g = tensor(1, t), *row = tensor(2, t), *column = tensor(3, t);
  const auto move = HWY_DYNAMIC_DISPATCH(update_variance);
  each_piece(a, [&](int64_t i, int64_t, int64_t at, int64_t count) {
    sums_[i].parameter = sum_of_squares(p + at, count);
    if (a.factored) {
      sums_[i].other = sum_of_squares(view, g + at, count);
    } else {
      move(view, static_cast<float>(share), g + at, row + at, count);
    }
  });
  const double elements = static_cast<double>(a.rows * a.columns);
  const double parameter_rms = std::sqrt(total(a).parameter / elements);
  const float inverse_mean = a.factored ? move_factors(t, view, share) : 1.0f;

  const auto least = rule_.least<float>();
  const auto quotient = HWY_DYNAMIC_DISPATCH(divide);
  const auto divided = [&](int64_t r, int64_t at, int64_t count, float* out) {
    const float* variance = a.factored ? column + (at - r * a.columns) : row + at;
    const float scale = a.factored ? row[r] * inverse_mean : 1.0f;
    quotient(view, g + at, variance, scale, least, out, count);
  };
  each_piece(a, [&](int64_t i, int64_t r, int64_t at, int64_t count) {
    float out[kPiece];
    divided(r, at, count, out);
    sums_[i].other = sum_of_squares(out, count);
  });
  const double update_rms = std::sqrt(total(a).other / elements);
  const double lr = state_->in.learning_rate * group.lr_scale;
  const auto step = static_cast<float>(rule_.step(*state_, lr, parameter_rms, update_rms));
  const auto keep = static_cast<float>(1 - lr * group.weight_decay);
  const auto finish = HWY_DYNAMIC_DISPATCH(apply);
  each_piece(a, [&](int64_t, int64_t r, int64_t at, int64_t count) {
    float out[kPiece];
    divided(r, at, count, out);
    finish(keep, step, out, p + at, count);
  });
}

}  // namespace

MadeKernel make_adafactor_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const AdafactorPlan plan(request);
  return make_kernel([plan](const Bindings& b, Stream&) { AdafactorUpdate(plan, b).run(); },
                     plan.workspace_bytes());
}

}  // namespace dltrain
#endif
