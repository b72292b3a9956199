// The parts of an exported folder that only models of images have: the shape of the images and
// their normalization.
#pragma once

#include <optional>

#include "checkpoint/huggingface_writer.h"
#include "data/config.h"
#include "data/schema.h"
#include "nn/huggingface/image_input.h"
#include "tensor/safetensors_set.h"

namespace dltrain {

// Returns the shape of the positions of a ViT in a folder, from which the size of its images
// follows.
std::optional<Shape> image_positions(const std::filesystem::path& folder,
                                     const SafetensorsSet& files);
// Returns the shape and dtype of a sample of the model: an image, or token ids.
TensorSpec sample_of(const IdentifiedModel& model, const std::optional<Shape>& positions);

// Returns the images of evaluations on this data; nothing for data without 8-bit images.
std::optional<ImageInput> image_input_of(const DataConfig& data, const DataSchema& schema);

// Adds the size and the channels of the images to config.json, and what is known of their
// normalization: to preprocessor_config.json for transformers, to config.json for timm.
void add_images(const std::optional<ImageInput>& input, const std::vector<OutputTensor>& tensors,
                IdentifiedModel& model, HuggingFaceFolder& out);

}  // namespace dltrain
