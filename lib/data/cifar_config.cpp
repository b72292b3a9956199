// The keys of `type: cifar10` and `type: cifar100`.
#include "data/cifar.h"
#include "data/config.h"
#include "data/image_config.h"

namespace dltrain {
namespace {

struct CifarConfig : ImageConfig {
  CifarOptions options;

  void describe(Fields& f) override {
    f.text("path", options.path,
           {.doc = "The folder of the extracted binary version, or its .tar.gz",
            .required = true,
            .is_path = true,
            .known_as = {"root", "folder"}});
    describe_split(f, options.test);
    ImageConfig::describe(f);
  }
  std::shared_ptr<const ImageSource> open_images() const override { return load_cifar(options); }
};

struct Cifar100Config final : CifarConfig {
  Cifar100Config() { options.kind = CifarKind::cifar100_fine; }

  void describe(Fields& f) override {
    f.choice("labels", options.kind,
             {{"fine", CifarKind::cifar100_fine, "100 classes"},
              {"coarse", CifarKind::cifar100_coarse, "their 20 groups"}},
             {.doc = "Which of the two labels of an image"});
    CifarConfig::describe(f);
  }
};

}  // namespace

KindRow<DatasetConfig> cifar10_row() {
  return {"cifar10", "CIFAR-10, binary version: 32 × 32 images of 10 classes",
          make_kind_of<CifarConfig>};
}
KindRow<DatasetConfig> cifar100_row() {
  return {"cifar100", "CIFAR-100, binary version: 32 × 32 images of 100 classes",
          make_kind_of<Cifar100Config>};
}

}  // namespace dltrain
