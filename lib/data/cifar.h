// CIFAR-10 and CIFAR-100 in their binary version: records of one or two labels and 32 × 32 pixels
// in three planes; extracted, or in the published .tar.gz.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/byte_source.h"
#include "data/image_source.h"

namespace dltrain {

enum class CifarKind : uint8_t { cifar10, cifar100_fine, cifar100_coarse };

struct CifarOptions {
  // The folder of the files, its parent, or the archive.
  std::string path = {};
  bool test = false;
  CifarKind kind = CifarKind::cifar10;
};

// Reads all files of a split into memory; images are [32, 32, 3]. Throws Error(data) naming file
// and record.
std::shared_ptr<const ImageSource> load_cifar(const CifarOptions& options);

// Reads an archive from any source of bytes.
std::shared_ptr<const ImageSource> load_cifar(const CifarOptions& options, ByteReader archive);

}  // namespace dltrain
