#include "shared/galore.h"

#include <algorithm>

#define EIGEN_DONT_PARALLELIZE  // the same bits for every number of threads
#include <Eigen/Eigenvalues>
#include <Eigen/QR>

#include "base/philox.h"
#include "ops/galore.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

using Matrix = Eigen::MatrixXd;
template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Returns the eigenvectors of the greatest eigenvalues of a symmetric matrix as columns.
Matrix leading_eigenvectors(const Matrix& symmetric, int64_t count) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(symmetric);  // in ascending order
  return solver.eigenvectors().rightCols(count).rowwise().reverse();
}

// Returns an orthonormal basis of the columns.
Matrix orthonormal(const Matrix& columns) {
  const Eigen::HouseholderQR<Matrix> qr(columns);
  return qr.householderQ() * Matrix::Identity(columns.rows(), columns.cols());
}

// A gradient as a matrix A whose rows belong to the projected side.
template <typename T>
struct Gradient {
  const T* values;
  int64_t rows, columns;

  bool left() const { return projects_from_left({rows, columns}); }
  int64_t side() const { return left() ? rows : columns; }
  int64_t length() const { return left() ? columns : rows; }

  // f(first column, columns of A in f64), in blocks, so that little memory is needed.
  template <typename F>
  void each_block(const F& f) const {
    const Eigen::Map<const RowMajor<T>> all(values, rows, columns);
    for (int64_t begin = 0; begin < length(); begin += kProjectionBlock) {
      const int64_t count = std::min(kProjectionBlock, length() - begin);
      if (left()) {
        f(begin, Matrix(all.middleCols(begin, count).template cast<double>()));
      } else {
        f(begin, Matrix(all.middleRows(begin, count).transpose().template cast<double>()));
      }
    }
  }
  // Returns A·Aᵀ·q.
  Matrix squared_times(const Matrix& q) const {
    Matrix out = Matrix::Zero(side(), q.cols());
    each_block([&](int64_t, const Matrix& block) {
      const Matrix back = block.transpose() * q;
      out.noalias() += block * back;
    });
    return out;
  }
};

template <typename T>
Matrix exact_vectors(const Gradient<T>& a, int64_t count) {
  Matrix square = Matrix::Zero(a.side(), a.side());  // the lower triangle
  a.each_block([&](int64_t, const Matrix& block) {
    square.template selfadjointView<Eigen::Lower>().rankUpdate(block);
  });
  return leading_eigenvectors(square, count);
}

template <typename T>
Matrix randomized_vectors(const Gradient<T>& a, int64_t count, const StepState& state) {
  static const uint64_t stream = random_stream("galore_projection");
  const auto update = static_cast<uint64_t>(state.out.updates);
  const int64_t width = std::min(a.side(), count + kMoreVectors);
  Matrix start = Matrix::Zero(a.side(), width);
  a.each_block([&](int64_t begin, const Matrix& block) {
    Matrix signs(block.cols(), width);
    for (int64_t i = 0; i < signs.rows(); ++i) {
      for (int64_t k = 0; k < width; ++k) {
        const auto element = static_cast<uint64_t>((begin + i) * width + k);
        signs(i, k) = (random_bits(state.in.seed, stream, update, element) & 1) != 0 ? 1 : -1;
      }
    }
    start.noalias() += block * signs;
  });
  Matrix basis = orthonormal(start);
  for (int i = 0; i < kProjectionSteps; ++i) basis = orthonormal(a.squared_times(basis));
  return basis * leading_eigenvectors(basis.transpose() * a.squared_times(basis), count);
}

template <typename T>
void project(const Bindings& b, const TensorSpec& g, const TensorSpec& projection, int64_t gap,
             bool randomized) {
  const StepState& state = *b.input<StepState>(0);
  if (state.out.finite == 0 || (state.out.updates - 1) % gap != 0) return;
  const Gradient<T> a{b.input<T>(1), g.shape[0], g.shape[1]};
  const int64_t rank = projection.shape[0];
  Matrix vectors = randomized ? randomized_vectors(a, rank, state) : exact_vectors(a, rank);
  for (int64_t i = 0; i < rank; ++i) {
    Eigen::Index greatest = 0;
    vectors.col(i).cwiseAbs().maxCoeff(&greatest);
    if (vectors(greatest, i) < 0) vectors.col(i) *= -1;
  }
  Eigen::Map<RowMajor<T>>(static_cast<T*>(b.inputs[2]), rank, a.side()) =
      vectors.transpose().template cast<T>();
}

}  // namespace

std::unique_ptr<Kernel> make_galore_projection(const KernelRequest& request) {
  const TensorSpec g = request.inputs[1], projection = request.inputs[2];
  const int64_t gap = request.attributes.integer("gap");
  const bool randomized = request.attributes.boolean("randomized");
  if (g.dtype == DType::f64) {
    return make_kernel(
        [=](const Bindings& b, Stream&) { project<double>(b, g, projection, gap, randomized); });
  }
  if (g.dtype != DType::f32) return nullptr;
  return make_kernel(
      [=](const Bindings& b, Stream&) { project<float>(b, g, projection, gap, randomized); });
}

std::unique_ptr<Kernel> make_step_view(const KernelRequest& request) {
  const bool unit_rate = request.attributes.boolean("unit_rate");
  const bool plain = request.attributes.boolean("plain_gradient");
  return make_kernel([=](const Bindings& b, Stream&) {
    *b.output<StepState>(0) = step_view(*b.input<StepState>(0), unit_rate, plain);
  });
}

}  // namespace dltrain
