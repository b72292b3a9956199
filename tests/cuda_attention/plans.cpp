// The attention of the language models has plans of cuDNN on GPUs that are only described. cuDNN
// compiles these plans and hands their code to a driver: stub/driver.cpp takes it.
#include <set>
#include <span>

#include <dlfcn.h>

#include "catch.h"
#include "cuda/vendor/cudnn_attention_plan.h"
#include "cuda_engine/described.h"

namespace dltrain {
namespace {

struct Case {
  const char* name;
  AttentionCall call;
};

AttentionCall packed(int64_t samples, int64_t tokens, int64_t heads, bool causal) {
  AttentionCall p{{.samples = samples, .queries = tokens, .keys = tokens}, DType::bf16};
  p.heads = p.kv_heads = heads;
  p.head_dim = 64;
  p.query_stride = p.key_stride = 3 * heads * 64;
  p.scale = 0.125;
  p.pattern.causal = causal;
  return p;
}

AttentionCall grouped(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  AttentionCall p{{.samples = 4, .queries = 1024, .keys = 1024}, DType::bf16};
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.head_dim = head_dim;
  p.query_stride = heads * head_dim;
  p.key_stride = kv_heads * head_dim;
  p.scale = 0.09;
  p.pattern.causal = true;
  return p;
}

AttentionCall with(AttentionCall call, double dropout, bool masked) {
  call.dropout = dropout;
  if (masked) call.mask = AttentionCall::Mask::tokens;
  return call;
}

AttentionCall documents(AttentionCall call) {
  call.mask = AttentionCall::Mask::documents;
  return call;
}

// Calls check(call, backward, target) for both GPUs and directions.
template <typename F>
void for_each_plan(std::span<const Case> cases, const F& check) {
  // cuDNN asks for it by its name and gets the one that is loaded.
  REQUIRE(dlopen(DLTRAIN_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL) != nullptr);
  const std::pair<const char*, int> gpus[] = {{"a100", 80}, {"h200", 90}};
  for (const auto& [gpu, version] : gpus) {
    const AttentionTarget target{.description = gpu_description(gpu), .sm_version = version};
    for (const Case& c : cases) {
      for (const bool backward : {false, true}) {
        INFO(gpu << ", " << c.name << (backward ? ", backward" : ""));
        check(c.call, backward, target);
      }
    }
  }
}

TEST_CASE("the attention of the language models has 16-bit cuDNN plans on Ampere and Hopper") {
  const Case cases[] = {{"GPT-2 124M", packed(64, 1024, 12, true)},
                        {"GPT-2 1.5B", packed(16, 1024, 25, true)},
                        {"BERT-large", packed(16, 512, 16, false)},
                        {"Llama 3.2 1B", grouped(32, 8, 64)},
                        {"Qwen 2.5 1.5B", grouped(12, 2, 128)}};
  for_each_plan(cases, [](AttentionCall call, bool backward, const AttentionTarget& target) {
    std::string why;
    const auto plan = plan_attention(call, backward, target, &why);
    INFO(why);
    REQUIRE(plan != nullptr);
    // Any that can be built may be run; autotune tells them apart by name.
    const std::set<std::string> names(plan->proposals().begin(), plan->proposals().end());
    CHECK(names.size() == plan->proposals().size());
    size_t usable = 0;
    for (size_t i = 0; i < plan->proposals().size(); ++i) usable += plan->select(i) ? 1 : 0;
    CHECK(usable >= 1);
  });
}

TEST_CASE("attention with dropout or padding has cuDNN plans too, with a deterministic backward") {
  const AttentionCall gpt = packed(16, 1024, 12, true), bert = packed(16, 512, 16, false);
  const Case cases[] = {{"GPT-2 124M with dropout", with(gpt, 0.1, false)},
                        {"BERT-large with dropout", with(bert, 0.1, false)},
                        {"BERT-large with padding", with(bert, 0, true)},
                        {"BERT-large with dropout and padding", with(bert, 0.1, true)},
                        {"causal, with padding", with(packed(4, 130, 2, true), 0.1, true)},
                        {"GPT-2 124M with documents", documents(gpt)},
                        {"GPT-2 124M with dropout and documents", documents(with(gpt, 0.1, false))},
                        {"Llama 3.2 1B with documents", documents(grouped(32, 8, 64))}};
  for_each_plan(cases, [](AttentionCall call, bool backward, const AttentionTarget& target) {
    std::string why;
    const auto plan = plan_attention(call, backward, target, &why);
    INFO(why);
    CHECK(plan != nullptr);
  });
}

TEST_CASE("a stored plan of attention is restored as it was, and damaged ones are refused") {
  const Case cases[] = {{"BERT-large", with(packed(16, 512, 16, false), 0.1, true)}};
  for_each_plan(cases, [](AttentionCall call, bool backward, const AttentionTarget& target) {
    const auto plan = plan_attention(call, backward, target);
    REQUIRE(plan != nullptr);
    const std::string stored = plan->stored();
    REQUIRE(stored.size() > 1000);
    const auto restored = restore_attention(stored, target);
    REQUIRE(restored != nullptr);
    CHECK(restored->workspace_bytes() == plan->workspace_bytes());
    CHECK(restore_attention("", target) == nullptr);
    CHECK(restore_attention(stored.substr(0, stored.size() / 2), target) == nullptr);
  });
}

TEST_CASE("what cuDNN's attention refuses comes with its reason") {
  AttentionCall call = packed(64, 1024, 12, true);
  std::string why;
  CHECK(plan_attention(call, false, {.description = gpu_description("a100"), .sm_version = 75},
                       &why) == nullptr);
  CHECK_THAT(why, Catch::Matchers::Contains("SM80"));
  call.head_dim = 60;
  CHECK(plan_attention(call, true, {.description = gpu_description("h200"), .sm_version = 90},
                       &why) == nullptr);
  CHECK_THAT(why, Catch::Matchers::Contains("multiple of 8"));
}

}  // namespace
}  // namespace dltrain
