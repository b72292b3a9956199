// The keys of `type: idx`.
#include <filesystem>

#include "base/error.h"
#include "data/config.h"
#include "data/idx.h"
#include "data/image_config.h"

namespace dltrain {
namespace {

// Returns a published file of the folder, plain or compressed.
std::string find_file(const std::string& folder, const std::string& name) {
  const auto path = std::filesystem::path(folder) / name;
  std::error_code ignored;
  for (const char* ending : {"", ".gz"}) {
    if (std::filesystem::exists(path.string() + ending, ignored)) return path.string() + ending;
  }
  throw Error(ExitCode::data, "does not exist, with or without .gz", path.string());
}

struct IdxConfig final : ImageConfig {
  std::optional<std::string> path, images, labels;
  bool test = false;
  std::optional<int64_t> classes;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "Folder with the files of MNIST or Fashion-MNIST under their published names "
                   "(train-images-idx3-ubyte, …), plain or gzip",
            .is_path = true,
            .known_as = {"root", "folder"}});
    describe_split(f, test);
    f.text("images", images, {.doc = "Instead of path: the file of images", .is_path = true});
    f.text("labels", labels, {.doc = "Instead of path: the file of labels", .is_path = true});
    f.integer("classes", classes,
              {.doc = "Labels must be below this", .min = 1, .known_as = {"num_classes"}});
    ImageConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    ImageConfig::validate(diagnostics);
    if (images.has_value() != labels.has_value()) {
      diagnostics.add(*this, images ? "images" : "labels", "images and labels must both be given");
    } else if (path.has_value() == images.has_value()) {
      diagnostics.add(*this, "path", "give either path, a folder, or the files images and labels");
    }
  }

  std::shared_ptr<const ImageSource> open_images() const override {
    if (images) return load_idx({*images, *labels, classes});
    const std::string part = test ? "t10k" : "train";
    return load_idx({find_file(*path, part + "-images-idx3-ubyte"),
                     find_file(*path, part + "-labels-idx1-ubyte"), classes});
  }
};

}  // namespace

KindRow<DatasetConfig> idx_row() {
  return {"idx", "Images and labels in IDX files: MNIST, Fashion-MNIST, EMNIST; plain or gzip",
          make_kind_of<IdxConfig>};
}

}  // namespace dltrain
