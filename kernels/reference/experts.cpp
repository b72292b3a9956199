// The ops of mixtures of experts (lib/ops/experts.cpp), by their definitions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/expert_places.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

int64_t rows_before_last(const Shape& shape) {
  return shape.elements(0, shape.rank() - 1);
}

// Calls f(expert, first, end) for the rows of each expert.
template <typename F>
void each_expert(const NaiveCall& c, size_t offsets, const F& f) {
  const auto* at = c.input<int32_t>(offsets);
  for (int64_t e = 0; e + 1 < c.inputs[offsets].shape[0]; ++e) f(e, at[e], at[e + 1]);
}

// Softmax of one row of logits, and log Σ exp.
template <typename T>
double softmax_of(const T* x, std::vector<double>& p) {
  const double greatest = *std::max_element(x, x + p.size());
  double sum = 0;
  for (size_t e = 0; e < p.size(); ++e) sum += p[e] = std::exp(x[e] - greatest);
  for (double& value : p) value /= sum;
  return greatest + std::log(sum);
}

}  // namespace

std::unique_ptr<Kernel> reference_top_k_routing(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t experts = c.inputs[0].shape[-1], k = c.outputs[0].shape[-1];
    const int64_t tokens = rows_before_last(c.inputs[0].shape);
    auto* chosen = c.output<int32_t>(1);
    for (int64_t t = 0; t < tokens; ++t) {
      const T* p = c.input<T>(0) + t * experts;
      std::vector<int32_t> left(static_cast<size_t>(experts));
      std::iota(left.begin(), left.end(), 0);
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const auto best = std::max_element(left.begin(), left.end(),
                                           [&](int32_t a, int32_t b) { return p[a] < p[b]; });
        chosen[t * k + j] = *best;
        sum += p[*best];
        left.erase(best);
      }
      for (int64_t j = 0; j < k; ++j) {
        const double weight = p[chosen[t * k + j]];
        c.output<T>(0)[t * k + j] =
            static_cast<T>(c.attributes.boolean("normalize") ? weight / sum : weight);
      }
    }
    auto *rows = c.output<int32_t>(2), *sources = c.output<int32_t>(3);
    auto* offsets = c.output<int32_t>(4);
    int32_t row = 0;
    for (int32_t e = 0; e < experts; ++e) {
      offsets[e] = row;
      for (int32_t pair = 0; pair < tokens * k; ++pair) {
        if (chosen[pair] != e) continue;
        sources[row] = pair;
        rows[pair] = row++;
      }
    }
    offsets[experts] = row;
  });
}

std::unique_ptr<Kernel> reference_top_k_routing_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t experts = c.inputs[0].shape[-1], k = c.inputs[1].shape[-1];
    std::vector<double> out = c.zeros(0);
    for (int64_t t = 0; t < rows_before_last(c.inputs[0].shape); ++t) {
      const T *p = c.input<T>(0) + t * experts, *dw = c.input<T>(2) + t * k;
      const int32_t* chosen = c.input<int32_t>(1) + t * k;
      double sum = 0, product = 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += p[chosen[j]];
        product += double{dw[j]} * p[chosen[j]];
      }
      for (int64_t j = 0; j < k; ++j) {
        out[static_cast<size_t>(t * experts + chosen[j])] +=
            c.attributes.boolean("normalize") ? (dw[j] - product / sum) / sum : double{dw[j]};
      }
    }
    c.put_all<T>(0, out);
  });
}

std::unique_ptr<Kernel> reference_dispatch_tokens(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t width = c.inputs[0].shape[-1], k = c.inputs[2].shape[-1];
    for (int64_t r = 0; r < c.outputs[0].shape[0]; ++r) {
      const int64_t pair = c.input<int32_t>(1)[r];
      if (pair < 0) {
        for (int64_t d = 0; d < width; ++d) c.put<T>(0, r * width + d, 0);
        continue;
      }
      const double weight = c.has_input(3) ? double{c.input<T>(3)[pair]} : 1;
      for (int64_t d = 0; d < width; ++d) {
        c.put<T>(0, r * width + d, weight * c.input<T>(0)[pair / k * width + d]);
      }
    }
  });
}

std::unique_ptr<Kernel> reference_combine_experts(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t width = c.inputs[0].shape[1], k = c.inputs[1].shape[-1];
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t pair = i / width * k + j, row = c.input<int32_t>(1)[pair];
        if (row < 0) {
          sum += row == kOverflowRow ? std::nan("") : 0;
          continue;
        }
        const double weight = c.has_input(3) ? double{c.input<T>(3)[pair]} : 1;
        sum += weight * c.input<T>(0)[row * width + i % width];
      }
      c.put<T>(0, i, sum);
    }
  });
}

std::unique_ptr<Kernel> reference_combine_experts_backward_weights(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t width = c.inputs[1].shape[1], k = c.inputs[2].shape[-1];
    for (int64_t pair = 0; pair < c.outputs[0].shape.elements(); ++pair) {
      const T* dout = c.input<T>(0) + pair / k * width;
      const int32_t row = c.input<int32_t>(2)[pair];
      const T* y = c.input<T>(1) + row * width;
      double sum = row == kOverflowRow ? std::nan("") : 0;
      for (int64_t d = 0; row >= 0 && d < width; ++d) sum += double{dout[d]} * y[d];
      c.put<T>(0, pair, sum);
    }
  });
}

std::unique_ptr<Kernel> reference_place_rows(const KernelRequest& request) {
  return make_kernel([r = NaiveRequest(request)](const Bindings& bindings, Stream&) {
    const NaiveCall c(r, bindings);
    const int64_t owners = c.outputs[2].shape[0], experts = c.inputs[1].shape[0] - 1;
    const int64_t buffer = c.attributes.integer("buffer");
    const int64_t capacity = c.attributes.integer("capacity"), pairs = c.inputs[0].shape.elements();
    auto *places = c.output<int32_t>(0), *sources = c.output<int32_t>(1);
    auto *counts = c.output<int32_t>(2), *sent = c.output<int32_t>(3);
    std::fill_n(sources, owners * buffer, kNoRow);
    std::fill_n(counts, experts, 0);
    std::fill_n(sent, owners, 0);
    std::vector<double> sums(static_cast<size_t>(c.outputs[4].shape[0]));
    std::vector<int64_t> wanted(static_cast<size_t>(owners));
    each_expert(c, 1, [&](int64_t expert, int64_t first, int64_t end) {
      const int64_t owner = expert / (experts / owners);
      for (int64_t row = first; row < end; ++row) {
        const auto* rows = c.input<int32_t>(0);
        const auto pair = static_cast<int32_t>(std::find(rows, rows + pairs, row) - rows);
        const int64_t before =
            c.has_input(3) ? c.input<int32_t>(3)[pair] - c.input<int32_t>(4)[expert] : row - first;
        if (capacity > 0 && before >= capacity) {
          places[pair] = kNoRow;
          ++sums[0];
        } else if (++wanted[static_cast<size_t>(owner)]; sent[owner] == buffer) {
          places[pair] = kOverflowRow;
          ++sums[1];
        } else {
          places[pair] = static_cast<int32_t>(owner * buffer + sent[owner]++);
          sources[places[pair]] = pair;
          ++counts[expert];
        }
      }
    });
    const auto most = static_cast<double>(*std::ranges::max_element(wanted));
    for (size_t bin = 2; bin < sums.size(); ++bin) {
      const double reach = std::exp2(static_cast<double>(bin - 2) / 8);
      if (bin + 1 < sums.size() && most * static_cast<double>(owners) > reach * double(pairs))
        continue;
      sums[bin] = 1;
      break;
    }
    c.put_all<double>(4, sums);
  });
}

std::unique_ptr<Kernel> reference_sort_received(const KernelRequest& request) {
  return make_kernel([r = NaiveRequest(request)](const Bindings& bindings, Stream&) {
    const NaiveCall c(r, bindings);
    const int64_t ranks = c.inputs[0].shape[0], experts = c.inputs[0].shape[1];
    const int64_t buffer = c.attributes.integer("buffer");
    const auto* counts = c.input<int32_t>(0);
    auto *sources = c.output<int32_t>(0), *rows = c.output<int32_t>(1);
    auto *offsets = c.output<int32_t>(2), *received = c.output<int32_t>(3);
    std::fill_n(sources, ranks * buffer, kNoRow);
    std::fill_n(rows, ranks * buffer, kNoRow);
    std::fill_n(received, ranks, 0);
    int32_t row = 0;
    for (int64_t e = 0; e < experts; ++e) {
      offsets[e] = row;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        for (int32_t i = 0; i < counts[rank * experts + e]; ++i) {
          const auto at = static_cast<int32_t>(rank * buffer + received[rank]++);
          rows[at] = row;
          sources[row++] = at;
        }
      }
    }
    offsets[experts] = row;
  });
}

std::unique_ptr<Kernel> reference_grouped_matmul(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t inner = c.inputs[0].shape[1], columns = c.outputs[0].shape[1];
    const bool transposed = c.attributes.boolean("transpose_b");
    const int64_t used = c.input<int32_t>(2)[c.inputs[2].shape[0] - 1];
    for (int64_t i = used * columns; i < c.outputs[0].shape.elements(); ++i) c.put<T>(0, i, 0);
    each_expert(c, 2, [&](int64_t expert, int64_t first, int64_t end) {
      const T* b = c.input<T>(1) + expert * inner * columns;
      for (int64_t i = first * columns; i < end * columns; ++i) {
        const T* a = c.input<T>(0) + i / columns * inner;
        const int64_t j = i % columns;
        double sum = 0;
        for (int64_t l = 0; l < inner; ++l) {
          sum += c.factor(a[l]) * c.factor(b[transposed ? j * inner + l : l * columns + j]);
        }
        c.put<T>(0, i, sum);
      }
    });
  });
}

std::unique_ptr<Kernel> reference_grouped_matmul_backward_weight(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t m = c.outputs[0].shape[1], n = c.outputs[0].shape[2];
    each_expert(c, 2, [&](int64_t expert, int64_t first, int64_t end) {
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = 0;
        for (int64_t r = first; r < end; ++r) {
          sum += c.factor(c.input<T>(0)[r * m + i / n]) * c.factor(c.input<T>(1)[r * n + i % n]);
        }
        c.put<T>(0, expert * m * n + i, sum);
      }
    });
  });
}

std::unique_ptr<Kernel> reference_router_losses(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t experts = c.inputs[0].shape[-1], tokens = rows_before_last(c.inputs[0].shape);
    const auto count = static_cast<double>(tokens);
    std::vector<double> p(static_cast<size_t>(experts)), chosen(p.size());
    each_expert(c, 1, [&](int64_t expert, int64_t first, int64_t end) {
      chosen[static_cast<size_t>(expert)] = static_cast<double>(end - first);
    });
    double balance = 0, z = 0, entropy = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const double log_sum_exp = softmax_of(c.input<T>(0) + t * experts, p);
      z += log_sum_exp * log_sum_exp;
      for (size_t e = 0; e < p.size(); ++e) {
        balance += static_cast<double>(experts) * chosen[e] / count * p[e];
        if (p[e] > 0) entropy -= p[e] * std::log(p[e]);
      }
    }
    c.put<double>(0, 0, balance / count);
    c.put<double>(0, 1, z / count);
    chosen.insert(chosen.end(), {balance, z, entropy});
    c.put_all<double>(1, chosen);
  });
}

std::unique_ptr<Kernel> reference_router_losses_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t experts = c.inputs[0].shape[-1], tokens = rows_before_last(c.inputs[0].shape);
    const auto count = static_cast<double>(tokens);
    const auto* offsets = c.input<int32_t>(1);
    const auto* dlosses = c.input<double>(2);
    std::vector<double> p(static_cast<size_t>(experts));
    for (int64_t t = 0; t < tokens; ++t) {
      const double log_sum_exp = softmax_of(c.input<T>(0) + t * experts, p);
      // The gradient of the balancing loss with respect to each probability, and its mean under p.
      const auto slope = [&](size_t e) {
        return dlosses[0] * static_cast<double>(experts) / count *
               static_cast<double>(offsets[e + 1] - offsets[e]) / count;
      };
      double mean = 0;
      for (size_t e = 0; e < p.size(); ++e) mean += slope(e) * p[e];
      for (size_t e = 0; e < p.size(); ++e) {
        c.put<T>(0, t * experts + static_cast<int64_t>(e),
                 p[e] * (slope(e) - mean + dlosses[1] * 2 * log_sum_exp / count));
      }
    }
  });
}

}  // namespace dltrain
