// conv2d and its two gradients: each geometry gives three cases, and one with bias.
#include <fmt/format.h>

#include "ops/case.h"
#include "ops/conv2d.h"

namespace dltrain {
namespace {

struct Geometry {
  Shape x, w;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

std::string print(const Geometry& g) {
  return fmt::format("{} ∗ {} stride {} padding {} dilation {} groups {}", to_string(g.x),
                     to_string(g.w), g.stride, g.padding, g.dilation, g.groups);
}

void add_cases_conv2d(std::vector<OpCase>& cases, const Geometry& g, const Attributes& attributes) {
  const Shape y = conv2d_output_shape(g.x, g.w, Conv2dAttributes(attributes));
  const std::string geometry = print(g);
  const CaseInput x = case_tensor(g.x), w = case_tensor(g.w), dy = case_tensor(y);
  cases.push_back({"conv2d " + geometry, "conv2d", {x, w}, attributes});
  cases.push_back(
      {"conv2d with bias " + geometry, "conv2d", {x, w, case_tensor({y[3]})}, attributes});
  Attributes backward = attributes;
  backward.set("input_shape", as_integers(g.x));
  cases.push_back(
      {"conv2d_backward_input " + geometry, "conv2d_backward_input", {dy, w}, backward});
  backward = attributes;
  backward.set("weight_shape", as_integers(g.w));
  cases.push_back(
      {"conv2d_backward_weight " + geometry, "conv2d_backward_weight", {dy, x}, backward});
}

Attributes attributes_of(const Geometry& g) {
  return {{"stride", std::vector<int64_t>{g.stride, g.stride}},
          {"padding", std::vector<int64_t>{g.padding, g.padding}},
          {"dilation", std::vector<int64_t>{g.dilation, g.dilation}},
          {"groups", g.groups}};
}

void add_cases_conv2d(std::vector<OpCase>& cases, const Geometry& g) {
  add_cases_conv2d(cases, g, attributes_of(g));
}

void add_weight_gradient(std::vector<OpCase>& cases, const Geometry& g) {
  Attributes attributes = attributes_of(g);
  const Shape y = conv2d_output_shape(g.x, g.w, Conv2dAttributes(attributes));
  attributes.set("weight_shape", as_integers(g.w));
  cases.push_back({"conv2d_backward_weight " + print(g),
                   "conv2d_backward_weight",
                   {case_tensor(y), case_tensor(g.x)},
                   attributes});
}

}  // namespace

void add_conv2d_cases(std::vector<OpCase>& cases) {
  add_cases_conv2d(cases, {.x = {1, 1, 1, 1}, .w = {1, 1, 1, 1}});
  add_cases_conv2d(cases, {.x = {2, 5, 7, 3}, .w = {4, 1, 1, 3}});
  add_cases_conv2d(cases, {.x = {2, 6, 5, 3}, .w = {4, 3, 3, 3}});
  add_cases_conv2d(cases, {.x = {2, 6, 5, 3}, .w = {4, 3, 3, 3}, .padding = 1});
  add_cases_conv2d(cases, {.x = {3, 9, 8, 5}, .w = {17, 3, 3, 5}, .stride = 2, .padding = 1});
  add_cases_conv2d(cases, {.x = {2, 8, 8, 1}, .w = {6, 5, 5, 1}, .padding = 2});
  add_cases_conv2d(cases, {.x = {1, 15, 13, 3}, .w = {8, 7, 7, 3}, .stride = 2, .padding = 3});
  add_cases_conv2d(cases, {.x = {2, 9, 9, 4}, .w = {6, 3, 3, 2}, .padding = 1, .groups = 2});
  add_cases_conv2d(cases,
                   {.x = {2, 7, 7, 6}, .w = {6, 3, 3, 1}, .padding = 1, .groups = 6});  // depthwise
  add_cases_conv2d(
      cases, {.x = {2, 7, 7, 3}, .w = {6, 3, 3, 1}, .stride = 2, .groups = 3});  // multiplier 2
  add_cases_conv2d(cases, {.x = {2, 11, 10, 3}, .w = {4, 3, 3, 3}, .padding = 2, .dilation = 2});
  add_cases_conv2d(
      cases, {.x = {2, 12, 11, 2}, .w = {3, 3, 3, 2}, .stride = 3, .padding = 1, .dilation = 3});
  add_cases_conv2d(cases, {.x = {2, 6, 6, 33}, .w = {17, 3, 3, 33}, .padding = 1});
  add_cases_conv2d(cases, {.x = {4, 28, 28, 1}, .w = {6, 5, 5, 1}, .padding = 2});
  add_cases_conv2d(cases, {.x = {2, 14, 14, 16}, .w = {32, 3, 3, 16}, .padding = 1});
  // A stride that leaves rows over, and one wider than the kernel.
  add_cases_conv2d(cases, {.x = {2, 8, 7, 3}, .w = {4, 3, 3, 3}, .stride = 2});
  add_cases_conv2d(cases, {.x = {2, 9, 10, 3}, .w = {4, 1, 1, 3}, .stride = 2});
  // Height and width differ in everything.
  add_cases_conv2d(cases, {.x = {2, 9, 12, 3}, .w = {4, 3, 5, 3}},
                   {{"stride", std::vector<int64_t>{2, 1}},
                    {"padding", std::vector<int64_t>{0, 2}},
                    {"dilation", std::vector<int64_t>{1, 2}}});
  // Many channels: the weight gradient by panels, whole and part-filled ones, places that lie
  // outside everywhere, and a long sum in several ranges of rows.
  add_weight_gradient(cases, {.x = {2, 4, 5, 64}, .w = {67, 1, 1, 64}});
  add_weight_gradient(cases, {.x = {3, 7, 6, 64}, .w = {64, 3, 3, 64}, .stride = 2, .padding = 1});
  add_weight_gradient(cases,
                      {.x = {1, 3, 2, 80}, .w = {66, 3, 3, 80}, .padding = 4, .dilation = 4});
  add_weight_gradient(cases, {.x = {2, 5, 5, 272}, .w = {251, 1, 1, 272}, .stride = 2});
  add_weight_gradient(cases, {.x = {5, 21, 21, 64}, .w = {65, 1, 1, 64}});

  // Many samples of few channels: vectors of samples, in full and in part-filled blocks.
  add_cases_conv2d(cases, {.x = {64, 6, 5, 1}, .w = {6, 5, 5, 1}, .padding = 2});
  add_cases_conv2d(cases, {.x = {50, 5, 6, 3}, .w = {7, 3, 3, 3}, .padding = 1});
  add_cases_conv2d(cases, {.x = {112, 5, 7, 2}, .w = {16, 3, 2, 2}});
  add_cases_conv2d(cases, {.x = {52, 7, 8, 2}, .w = {5, 3, 3, 2}, .stride = 2, .padding = 1});
  add_cases_conv2d(cases, {.x = {49, 6, 7, 17}, .w = {3, 3, 3, 17}, .padding = 2, .dilation = 2});
  cases.push_back({"conv2d with bias and relu of many samples",
                   "conv2d",
                   {case_tensor({60, 5, 5, 3}), case_tensor({8, 3, 3, 3}), case_tensor({8})},
                   {{"activation", std::string("relu")}}});

  for (const char* activation : {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}) {
    cases.push_back(
        {fmt::format("conv2d with bias and {}", activation),
         "conv2d",
         {case_tensor({2, 8, 7, 3}), case_tensor({5, 3, 3, 3}), case_tensor({5})},
         {{"padding", std::vector<int64_t>{1, 1}}, {"activation", std::string(activation)}}});
  }
  cases.push_back({"conv2d with an absent bias and relu",
                   "conv2d",
                   {case_tensor({2, 8, 7, 3}), case_tensor({5, 3, 3, 3}), case_absent()},
                   {{"activation", std::string("relu")}}});
}

}  // namespace dltrain
