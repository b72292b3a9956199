// The keys of `type: image_folder`.
#include "base/cpus.h"
#include "data/broken_images.h"
#include "data/config.h"
#include "data/image_config.h"
#include "data/image_folder.h"

namespace dltrain {
namespace {

struct ImageFolderConfig final : ImageConfig {
  ImageFolderOptions options;
  bool skip_broken = false;

  void describe(Fields& f) override {
    f.text("path", options.path,
           {.doc = "A folder with a sub-folder of JPEG and PNG files for each class",
            .required = true,
            .is_path = true,
            .known_as = {"root", "folder"}});
    f.choice("color", options.channels, {{"rgb", 3, "three channels"}, {"gray", 1, "one channel"}},
             {.doc = "The format to which images are converted", .known_as = {"mode", "channels"}});
    f.choice("target", options.untargeted,
             {{"folder", false, "the class is the sub-folder of path"},
              {"none", true, "images anywhere below path, without classes, for predict"}},
             {.doc = "The targets"});
    describe_on_error(f, skip_broken);
    ImageConfig::describe(f);
  }
  bool tail_is_by_class() const override { return true; }
  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override {
    auto dataset = ImageConfig::open(how);
    return options.untargeted ? without_targets(std::move(dataset)) : dataset;
  }
  std::shared_ptr<const ImageSource> open_images() const override {
    const auto images = open_image_folder(options);
    return skip_broken ? without_broken(images, options.path, bound_cpu_count()) : images;
  }
};

}  // namespace

KindRow<DatasetConfig> image_folder_row() {
  return {"image_folder",
          "JPEG and PNG files, a sub-folder for each class; needs transforms that end in one size",
          make_kind_of<ImageFolderConfig>};
}

}  // namespace dltrain
