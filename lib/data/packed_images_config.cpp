// The keys of `type: packed_images`.
#include "base/cpus.h"
#include "data/broken_images.h"
#include "data/config.h"
#include "data/image_config.h"
#include "data/packed_images.h"

namespace dltrain {
namespace {

struct PackedImagesConfig final : ImageConfig {
  std::string path;
  bool skip_broken = false;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "A file that `dltrain data prepare` wrote",
            .required = true,
            .is_path = true,
            .known_as = {"file"}});
    describe_on_error(f, skip_broken);
    ImageConfig::describe(f);
  }
  bool tail_is_by_class() const override { return true; }
  std::shared_ptr<const ImageSource> open_images() const override {
    const auto images = open_packed_images(path);
    return skip_broken ? without_broken(images, path, bound_cpu_count()) : images;
  }
};

}  // namespace

KindRow<DatasetConfig> packed_images_row() {
  return {"packed_images", "Images in one file, mapped into memory; dltrain data prepare writes it",
          make_kind_of<PackedImagesConfig>};
}

}  // namespace dltrain
