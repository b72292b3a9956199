// Optimizers with an element rule (shared/element_rules.h): one pass over all parameters, in chunks
// over the threads; every element is read and written once. The compiler vectorises the loop over
// the scalar rule for each of Highway's instruction sets (kernels/CMakeLists enables this for
// square roots); results do not depend on the set, since there is no contraction to FMA. Moments in
// 8 bits are widened and narrowed block by block, in the cache.
#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/convert.h"
#include "cpu/element_update.h"
#include "cpu/makers.h"
#include "cpu/tensor_chunks.h"
#include "ops/rules.h"
#include "ops/update.h"
#include "shared/moment_codes.h"
#include "shared/update_groups.h"
#include "tensor/random_rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/optimizers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// `tensors`: start of the chunk in the parameter, the gradient and each moment.
template <typename Rule>
void update_chunk(const typename Rule::template Factors<float>& f, float* const* tensors,
                  int64_t count) {
  float* own[Rule::kMoments + 2];
  for (int k = 0; k < Rule::kMoments + 2; ++k) own[k] = tensors[k];
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) update_element<Rule>(f, own, i);
}

template <typename... Rules>
struct ChunkUpdates {
  static ElementFunctionsOf<Rules...> all() { return {update_chunk<Rules>...}; }
};
ElementFunctions choose() {
  return OverElementRules<ChunkUpdates>::all();
}

// A block of a moment from its codes.
void widen_block(const WideMomentCodes& table, const uint8_t* codes, float scale, float* out) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> du8;
  for (size_t i = 0; i < kMomentBlock; i += hn::Lanes(d)) {
    const auto code = hn::PromoteTo(di, hn::LoadU(du8, codes + i));
    hn::StoreU(hn::Mul(hn::GatherIndex(d, table.value, code), hn::Set(d, scale)), d, out + i);
  }
}

// The codes of a block (MomentCodes::nearest). Returns its scale.
float narrow_block(const WideMomentCodes& table, const float* moment, uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> du8;
  auto most = hn::Zero(d);
  for (size_t i = 0; i < kMomentBlock; i += hn::Lanes(d)) {
    most = hn::Max(most, hn::Abs(hn::LoadU(d, moment + i)));
  }
  const float scale = hn::GetLane(hn::MaxOfLanes(d, most));
  const auto divisor = hn::Set(d, scale > 0 ? scale : 1.0f);
  for (size_t i = 0; i < kMomentBlock; i += hn::Lanes(d)) {
    const auto x = hn::Div(hn::LoadU(d, moment + i), divisor), size = hn::Abs(x);
    const auto upper = hn::Sub(hn::ShiftRight<16>(hn::BitCast(di, size)), hn::Set(di, kFirstPlace));
    const auto place = hn::Min(hn::Max(upper, hn::Zero(di)), hn::Set(di, kPlaces - 1));
    auto k = hn::GatherIndex(di, table.below, place);
    const auto more = hn::RebindMask(di, hn::Gt(size, hn::GatherIndex(d, table.between, k)));
    k = hn::Add(k, hn::IfThenElseZero(more, hn::Set(di, 1)));
    const auto zero = hn::Set(di, table.zero);
    const auto negative = hn::Sub(zero, hn::Min(k, hn::Set(di, table.most_negative)));
    const auto is_negative = hn::RebindMask(di, hn::Lt(x, hn::Zero(d)));
    const auto code = hn::IfThenElse(is_negative, negative, hn::Add(zero, k));
    hn::StoreU(hn::DemoteTo(du8, code), du8, codes + i);
  }
  return scale;
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
HWY_EXPORT(choose);
HWY_EXPORT(widen_block);
HWY_EXPORT(narrow_block);

ElementFunctions element_functions() {
  return HWY_DYNAMIC_DISPATCH(choose)();
}

namespace {

// The tables of the first and of the second moment.
const WideMomentCodes& moment_codes(size_t moment) {
  static const auto tables = [] {
    std::array<WideMomentCodes, 2> out;
    for (size_t k = 0; k < out.size(); ++k) fill_moment_codes(out[k], k == 0);
    return out;
  }();
  return tables[moment];
}

// Inputs: step_state, then `count` tensors for each role (parameters, gradients, moments…).
template <typename Rule>
class ElementUpdate final : public Kernel {
  using Factors = typename Rule::template Factors<float>;

 public:
  ElementUpdate(const KernelRequest& request, const Rule& rule)
      : rule_(rule),
        groups_(request.attributes),
        chunks_(request.inputs.subspan(1, groups_.group.size())),
        copies_(first_copy(request.attributes, request.inputs.size())),
        rounding_(request.attributes),
        in_8_bits_(request.attributes.has("block")) {
    for (size_t i = copies_; i != 0 && i < request.inputs.size(); ++i) {
      if (!is_absent(request.inputs[i])) narrow_ = narrow_function(request.inputs[i].dtype);
    }
  }

  // Contains the factors of each group in this step.
  size_t workspace_bytes() const override { return groups_.settings.size() * sizeof(Factors); }

  void run(const Bindings& bindings, Stream&) const override {
    const StepState& state = *bindings.input<StepState>(0);
    if (state.out.finite == 0) return;
    auto* all_factors = static_cast<Factors*>(bindings.workspace);
    for (size_t g = 0; g < groups_.settings.size(); ++g) {
      all_factors[g] = rule_.template factors<float>(state, groups_.settings[g]);
    }
    const auto tensors = bindings.inputs.subspan(1);
    const auto function = element_function(rule_);
    chunks_.parallel(16384, [&](int64_t, const TensorChunk& chunk) {
      std::array<float*, Rule::kMoments + 2> roles;
      for (size_t role = 0; role < roles.size(); ++role) {
        void* tensor = tensors[role * groups_.group.size() + chunk.tensor];
        roles[role] = static_cast<float*>(tensor) + chunk.begin;
      }
      const Factors& factors = all_factors[groups_.group[chunk.tensor]];
      const auto update = [&](const TensorChunk& part) {
        if (rounding_.any()) {
          update_narrow(state, function, factors, tensors[part.tensor], roles, part);
          return;
        }
        function(factors, roles.data(), part.count);
        if (copies_ != 0) round(tensors[copies_ - 1 + part.tensor], part, roles[0]);
      };
      if constexpr (kHas8BitMoments<Rule>) {
        if (in_8_bits_) return update_blocks(tensors, chunk, roles, update);
      }
      update(chunk);
    });
  }

 private:
  // Calls update(block) for each block of a chunk, with `roles` of the block and wide moments.
  template <typename Update>
  void update_blocks(std::span<void* const> tensors, const TensorChunk& chunk,
                     std::array<float*, Rule::kMoments + 2>& roles, const Update& update) const {
    static_assert(kTensorChunk % kMomentBlock == 0);
    const size_t n = groups_.group.size();
    float wide[Rule::kMoments + 1][kMomentBlock];
    uint8_t codes[kMomentBlock] = {};
    for (int64_t at = chunk.begin; at < chunk.begin + chunk.count; at += kMomentBlock) {
      const auto count = std::min(kMomentBlock, chunk.begin + chunk.count - at);
      const auto bytes = static_cast<size_t>(count);
      const auto codes_of = [&](size_t k) {
        return static_cast<uint8_t*>(tensors[(2 + k) * n + chunk.tensor]) + at;
      };
      const auto scale_of = [&](size_t k) {
        return static_cast<float*>(tensors[(2 + Rule::kMoments + k) * n + chunk.tensor]) +
               at / kMomentBlock;
      };
      for (size_t k = 0; k < Rule::kMoments; ++k) {
        std::memcpy(codes, codes_of(k), bytes);
        HWY_DYNAMIC_DISPATCH(widen_block)(moment_codes(k), codes, *scale_of(k), wide[k]);
        roles[2 + k] = wide[k];
      }
      update({chunk.tensor, at, count});
      for (size_t k = 0; k < Rule::kMoments; ++k) {
        std::fill(wide[k] + count, wide[k] + kMomentBlock, 0.0f);
        *scale_of(k) = HWY_DYNAMIC_DISPATCH(narrow_block)(moment_codes(k), wide[k], codes);
        std::memcpy(codes_of(k), codes, bytes);
      }
      roles[0] += count;
      roles[1] += count;
    }
  }

  // Updates parameters in bf16, in f32 pieces. `roles`: as for f32, but the first is not used.
  void update_narrow(const StepState& state, ElementFunction<Rule> function, const Factors& factors,
                     void* tensor, std::array<float*, Rule::kMoments + 2> roles,
                     const TensorChunk& chunk) const {
    constexpr int64_t kPiece = 512;  // a multiple of a block of random numbers
    static_assert(kTensorChunk % kPiece == 0);
    const auto step = static_cast<uint64_t>(state.in.step);
    auto* parameter = static_cast<Bf16*>(tensor) + chunk.begin;
    float piece[kPiece];
    for (int64_t from = 0; from < chunk.count; from += kPiece) {
      const int64_t count = std::min(kPiece, chunk.count - from);
      for (int64_t i = 0; i < count; ++i) piece[i] = to_f32(parameter[from + i]);
      std::array<float*, Rule::kMoments + 2> own = roles;
      for (float*& role : own) role += from;
      own[0] = piece;
      function(factors, own.data(), count);
      for (int64_t i = 0; i < count; i += 4) {
        const Philox4 random = random_block(state.in.seed, rounding_.stream(chunk.tensor), step,
                                            static_cast<uint64_t>(chunk.begin + from + i) / 4);
        for (int64_t k = i; k < std::min(i + 4, count); ++k) {
          parameter[from + k] = round_at_random(piece[k], random.v[k - i]);
        }
      }
    }
  }

  // Rounds a chunk, which is still in the cache, to the copy.
  void round(void* copy, const TensorChunk& chunk, const float* p) const {
    if (copy != nullptr) narrow_(p, static_cast<uint16_t*>(copy) + chunk.begin, chunk.count);
  }

  Rule rule_;
  UpdateGroups groups_;
  TensorChunks chunks_;
  size_t copies_;  // index of the first copy among the inputs; 0: none
  UpdateRounding rounding_;
  bool in_8_bits_;
  NarrowFunction narrow_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_element_update(const KernelRequest& request) {
  // The dtype of the first gradient decides: parameters without masters are bf16.
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  if (request.inputs[1 + count].dtype != DType::f32) return nullptr;
  return with_element_rule(request.op, request.attributes,
                           [&]<typename Rule>(const Rule& rule) -> std::unique_ptr<Kernel> {
                             if (request.attributes.has("block") && !kHas8BitMoments<Rule>) {
                               return nullptr;
                             }
                             return std::make_unique<ElementUpdate<Rule>>(request, rule);
                           });
}

}  // namespace dltrain
#endif
