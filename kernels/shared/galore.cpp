#include "shared/galore.h"

#include <algorithm>

#define EIGEN_DONT_PARALLELIZE  // the same bits for every number of threads
#include <Eigen/Eigenvalues>
#include <Eigen/QR>

#include "base/philox.h"
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

// Returns leading left singular vectors as columns.
Matrix singular_vectors(const Matrix& a, int64_t count) {
  return leading_eigenvectors(a * a.transpose(), count);
}

Matrix randomized_vectors(const Matrix& a, int64_t count, uint64_t seed, uint64_t update) {
  constexpr int64_t kMore = 8;
  constexpr int kIterations = 2;
  static const uint64_t stream = random_stream("galore_projection");
  const int64_t width = std::min(a.rows(), count + kMore);
  Matrix start(a.cols(), width);  // of signs
  for (int64_t i = 0; i < start.size(); ++i) {
    const uint32_t bits = random_bits(seed, stream, update, static_cast<uint64_t>(i));
    start.data()[i] = (bits & 1) != 0 ? 1 : -1;
  }
  Matrix basis = orthonormal(a * start);
  for (int i = 0; i < kIterations; ++i) {
    const Matrix back = a.transpose() * basis;
    basis = orthonormal(a * back);
  }
  const Matrix small = basis.transpose() * a;
  return basis * singular_vectors(small, count);
}

template <typename T>
void project(const Bindings& b, const TensorSpec& g, const TensorSpec& projection, int64_t gap,
             bool randomized) {
  const StepState& state = *b.input<StepState>(0);
  if (state.out.finite == 0 || (state.out.updates - 1) % gap != 0) return;
  const Eigen::Map<const RowMajor<T>> view(b.input<T>(1), g.shape[0], g.shape[1]);
  const bool left = g.shape[0] < g.shape[1];
  const Matrix a = left ? Matrix(view.template cast<double>())
                        : Matrix(view.template cast<double>().transpose());
  const int64_t rank = projection.shape[0];
  Matrix vectors = randomized ? randomized_vectors(a, rank, state.in.seed,
                                                   static_cast<uint64_t>(state.out.updates))
                              : singular_vectors(a, rank);
  for (int64_t i = 0; i < rank; ++i) {
    Eigen::Index greatest = 0;
    vectors.col(i).cwiseAbs().maxCoeff(&greatest);
    if (vectors(greatest, i) < 0) vectors.col(i) *= -1;
  }
  Eigen::Map<RowMajor<T>>(static_cast<T*>(b.inputs[2]), rank, projection.shape[1]) =
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
    StepState state = *b.input<StepState>(0);
    if (unit_rate) state.in.learning_rate = 1;
    if (plain) {
      state.out.gradient_factor = 1;
      state.in.max_grad_value = 0;
    }
    *static_cast<StepState*>(b.outputs[0]) = state;
  });
}

}  // namespace dltrain
