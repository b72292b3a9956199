// Adafactor (lib/ops/update_adaptive.cpp), tensor by tensor. A tensor of two or more axes is
// a matrix of its first axis by the rest; one of fewer axes is divided into pieces that are treated
// as rows. Sums are in double within rows or pieces and added in order, so that they do not depend
// on the number of threads.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/sum_of_squares.h"
#include "cpu/support.h"
#include "ops/update.h"
#include "shared/adafactor_rules.h"
#include "shared/make_kernel.h"
#include "shared/update_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/adafactor.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
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
}  // namespace dltrain::HWY_NAMESPACE
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

// The part of a tensor that the op is given, in pieces of rows of the shard.
struct Pieces {
  explicit Pieces(const AdafactorMatrix& matrix)
      : begin(matrix.factored ? matrix.begin : 0),
        all(matrix.count),
        columns(matrix.factored ? matrix.column.count() : matrix.count) {  // or one row
    if (all == 0) return;
    first_row = begin / columns;
    rows = (begin + all - 1) / columns - first_row + 1;
    a_row = ceil_div(columns, kPiece);
  }

  // f(piece, row and column of the shard, first element of the piece in the range, elements)
  template <typename F>
  void each(const F& f) const {
    const int64_t most = std::max<int64_t>(1, columns);
    parallel_each(size(), std::max<int64_t>(1, 2 * kPiece / most), [&](int64_t i) {
      const int64_t row = first_row + i / a_row, column = i % a_row * kPiece;
      const int64_t whole = row * columns + column - begin;
      const int64_t last = whole + std::min(kPiece, columns - column);
      const int64_t at = std::max<int64_t>(whole, 0);
      const int64_t count = std::max<int64_t>(0, std::min(last, all) - at);
      f(i, row, column + at - whole, at, count);
    });
  }
  int64_t size() const { return rows * a_row; }

  int64_t begin, all, columns;
  int64_t first_row = 0, rows = 0, a_row = 0;  // rows of the range, pieces of a row
};

// f(first, place of it in the matrix, count) for each run of the rows or columns [begin, end) of a
// shard.
template <typename F>
void each_run(const AdafactorMatrix::Axis& axis, int64_t begin, int64_t end, const F& f) {
  for (int r = 0; r < axis.run_count; ++r) {
    const AdafactorMatrix::Run& run = axis.runs[r];
    const int64_t from = std::max(begin, run.in_shard);
    const int64_t to = std::min(end, run.in_shard + run.count);
    if (from < to) f(from, run.first + from - run.in_shard, to - from);
  }
}

// The op for any addresses.
struct AdafactorPlan {
  explicit AdafactorPlan(const KernelRequest& request)
      : groups(request.attributes), rule(adafactor_rule(request.attributes)) {
    for (size_t t = 0; t < groups.group.size(); ++t) {
      matrices.push_back(adafactor_matrix(request.attributes, t, request.inputs[1 + t].shape));
      pieces.emplace_back(matrices.back());
      most_pieces = std::max(most_pieces, pieces.back().size());
    }
  }

  UpdateGroups groups;
  AdafactorRule rule;
  std::vector<AdafactorMatrix> matrices;
  std::vector<Pieces> pieces;
  int64_t most_pieces = 0;
};

class AdafactorCall {
 public:
  AdafactorCall(const AdafactorPlan& plan, const Bindings& bindings)
      : plan_(plan),
        state_(bindings.input<StepState>(0)),
        tensors_(bindings.inputs.subspan(1)),
        results_(bindings.outputs.last(plan.matrices.size())),
        squares_(static_cast<double*>(bindings.workspace)) {}

  void sums() const {
    for (size_t t = 0; t < plan_.matrices.size(); ++t) sum(t);
  }
  void moments() const;
  void update() const;

 private:
  template <typename T = float>
  T* tensor(size_t role, size_t t) const {
    return static_cast<T*>(tensors_[role * plan_.matrices.size() + t]);
  }
  double* result(size_t t) const { return static_cast<double*>(results_[t]); }
  double total(int64_t pieces) const { return std::accumulate(squares_, squares_ + pieces, 0.0); }

  // 1 / (mean of the rows' variances).
  float inverse_mean(size_t t) const {
    const AdafactorMatrix& a = plan_.matrices[t];
    if (!a.factored) return 1;
    const float* row = tensor(2, t);
    double sum = 0;
    for (int64_t r = 0; r < a.rows; ++r) sum += row[r];
    return static_cast<float>(plan_.rule.inverse_mean(sum, static_cast<double>(a.rows)));
  }
  // f(piece, first element of the piece, elements, their quotients)
  template <typename F>
  void each_quotient(size_t t, const F& f) const {
    const AdafactorMatrix& a = plan_.matrices[t];
    const auto view = gradient_view<float>(*state_);
    const float scale = inverse_mean(t), least = plan_.rule.least<float>();
    const float *g = tensor(1, t), *row = tensor(2, t), *column = tensor(3, t);
    const auto quotient = HWY_DYNAMIC_DISPATCH(divide);
    plan_.pieces[t].each([&](int64_t i, int64_t r, int64_t k, int64_t at, int64_t count) {
      float out[kPiece];
      if (!a.factored) {
        quotient(view, g + at, row + at, 1, least, out, count);
      } else {
        each_run(a.column, k, k + count, [&](int64_t from, int64_t in_matrix, int64_t columns) {
          quotient(view, g + at + from - k, column + in_matrix, row[a.row.in_matrix(r)] * scale,
                   least, out + from - k, columns);
        });
      }
      f(i, at, count, out);
    });
  }

  void sum(size_t t) const {
    const AdafactorMatrix& a = plan_.matrices[t];
    double* out = result(t);
    std::fill_n(out, a.sums(), 0.0);
    if (state_->out.finite == 0 || a.count == 0) return;
    const auto view = gradient_view<float>(*state_);
    const float *p = tensor(0, t), *g = tensor(1, t);
    const Pieces& pieces = plan_.pieces[t];
    double* of_gradient = squares_ + plan_.most_pieces;
    pieces.each([&](int64_t i, int64_t, int64_t, int64_t at, int64_t count) {
      squares_[i] = sum_of_squares(p + at, count);
      if (a.factored) of_gradient[i] = sum_of_squares(view, g + at, count);
    });
    out[0] = total(pieces.size());
    if (!a.factored) return;
    for (int64_t i = 0; i < pieces.size(); ++i) {
      out[1 + a.row.in_matrix(pieces.first_row + i / pieces.a_row)] += of_gradient[i];
    }
    double* columns = out + 1 + a.rows;
    const auto add = HWY_DYNAMIC_DISPATCH(add_squares);
    parallel_for(pieces.columns, kColumnGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = pieces.first_row; r < pieces.first_row + pieces.rows; ++r) {
        const int64_t row = r * pieces.columns - a.begin;  // where it begins in the range
        const int64_t first = std::max(begin, -row), last = std::min(end, a.count - row);
        each_run(a.column, first, last, [&](int64_t from, int64_t in_matrix, int64_t count) {
          add(view, g + row + from, columns + in_matrix, count);
        });
      }
    });
  }
  void move(size_t t) const {
    const AdafactorMatrix& a = plan_.matrices[t];
    const double share = plan_.rule.share(*state_), *sums = tensor<double>(4, t);
    float *row = tensor(2, t), *column = tensor(3, t);
    if (!a.factored) {
      const auto view = gradient_view<float>(*state_);
      const auto move = HWY_DYNAMIC_DISPATCH(update_variance);
      plan_.pieces[t].each([&](int64_t, int64_t, int64_t, int64_t at, int64_t count) {
        move(view, static_cast<float>(share), tensor(1, t) + at, row + at, count);
      });
      return;
    }
    if (a.rows * a.columns == 0) return;
    for (int64_t r = 0; r < a.rows; ++r) {
      row[r] = adafactor_lerp(row[r], sums[1 + r] / static_cast<double>(a.columns), share);
    }
    for (int64_t c = 0; c < a.columns; ++c) {
      column[c] =
          adafactor_lerp(column[c], sums[1 + a.rows + c] / static_cast<double>(a.rows), share);
    }
  }

  const AdafactorPlan& plan_;
  const StepState* state_;
  std::span<void*const> tensors_, results_;
  double* squares_;  // of each piece, of two kinds
};

void AdafactorCall::moments() const {
  for (size_t t = 0; t < plan_.matrices.size(); ++t) {
    *result(t) = 0;
    if (state_->out.finite == 0) continue;
    move(t);
    each_quotient(t, [&](int64_t i, int64_t, int64_t count, const float* quotients) {
      squares_[i] = sum_of_squares(quotients, count);
    });
    *result(t) = total(plan_.pieces[t].size());
  }
}

void AdafactorCall::update() const {
  if (state_->out.finite == 0) return;
  for (size_t t = 0; t < plan_.matrices.size(); ++t) {
    const AdafactorMatrix& a = plan_.matrices[t];
    const auto rms = [&](double sum) {
      return std::sqrt(sum / static_cast<double>(a.rows * a.columns));
    };
    const double lr = state_->in.learning_rate * plan_.groups.of(t).lr_scale;
    const auto step = static_cast<float>(
        plan_.rule.step(*state_, lr, rms(*tensor<double>(4, t)), rms(*tensor<double>(5, t))));
    const auto keep = static_cast<float>(1 - lr * plan_.groups.of(t).weight_decay);
    const auto finish = HWY_DYNAMIC_DISPATCH(apply);
    float* p = tensor(0, t);
    each_quotient(t, [&](int64_t, int64_t at, int64_t count, const float* quotients) {
      finish(keep, step, quotients, p + at, count);
    });
  }
}

std::unique_ptr<Kernel> make_adafactor(const KernelRequest& request,
                                       void (AdafactorCall::*run)() const) {
  if (request.inputs.size() < 2 || request.inputs[1].dtype != DType::f32) return nullptr;
  const AdafactorPlan plan(request);
  return make_kernel([plan, run](const Bindings& b, Stream&) { (AdafactorCall(plan, b).*run)(); },
                     static_cast<size_t>(plan.most_pieces) * 2 * sizeof(double));
}

}  // namespace

std::unique_ptr<Kernel> make_adafactor_sums(const KernelRequest& request) {
  return make_adafactor(request, &AdafactorCall::sums);
}
std::unique_ptr<Kernel> make_adafactor_moments(const KernelRequest& request) {
  return make_adafactor(request, &AdafactorCall::moments);
}
std::unique_ptr<Kernel> make_adafactor_update(const KernelRequest& request) {
  return make_adafactor(request, &AdafactorCall::update);
}

}  // namespace dltrain
#endif
