#include "data/image_folder.h"

#include <filesystem>

#include "data/broken_images.h"
#include "data/config.h"
#include "data/image_dataset.h"
#include "images.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

// Two classes, three images, and files that are none.
struct Pictures {
  TemporaryFolder folder;

  Pictures() {
    put("b dogs/2.PNG", "photo.png");
    put("b dogs/deep/1.jpg", "photo.jpg");
    put("a cats/x.jpeg", "photo.gray.jpg");
    std::filesystem::create_directories(folder / ".hidden");
    folder.write("b dogs/notes.txt", "no image");
    folder.write("b dogs/.3.png", "hidden");
    folder.write("readme.png", "beside the classes");
  }
  void put(const std::string& name, const std::string& golden) const {
    std::filesystem::create_directories((folder / name).parent_path());
    const auto bytes = golden_image(golden);
    folder.write(name, std::string(bytes.begin(), bytes.end()));
  }
  std::string path() const { return folder.path().string(); }
};

}  // namespace

TEST_CASE("classes are the sub-folders by name, images their files by path") {
  const Pictures pictures;
  const auto source = open_image_folder({pictures.path()});
  CHECK(source->class_names() == std::vector<std::string>{"a cats", "b dogs"});
  CHECK(source->labels() == std::vector<int32_t>{0, 1, 1});
  CHECK_THAT(source->location_of(0), Contains("a cats/x.jpeg"));
  CHECK_THAT(source->location_of(1), Contains("b dogs/2.PNG"));
  CHECK_THAT(source->location_of(2), Contains("b dogs/deep/1.jpg"));
  CHECK(source->image_size() == ImageSize{0, 0, 3});
  std::vector<uint8_t> buffer;
  CHECK(source->read(2, buffer).encoding == ImageEncoding::jpeg);
  CHECK_THROWS_WITH(make_image_dataset(source, {}, {}), Contains("images may differ in size"));
}

TEST_CASE("names of classes are UTF-8, and those of files need not be") {
  const Pictures pictures;
  pictures.put("a cats/caf\xe9.jpg", "photo.jpg");
  CHECK_THAT(open_image_folder({pictures.path()})->location_of(0), Contains("caf\\xe9.jpg"));
  pictures.put("caf\xe9/1.jpg", "photo.jpg");
  CHECK_THAT(refusal_of([&] { open_image_folder({pictures.path()}); }),
             Contains("/caf\\xe9: is the name of a class, but is not UTF-8; rename the folder"));
}

TEST_CASE("images without classes are found behind links to folders, without cycles") {
  const Pictures pictures;
  const TemporaryFolder folder;
  std::filesystem::create_directory_symlink(pictures.path(), folder / "link");
  std::filesystem::create_directory_symlink(pictures.path(), pictures.folder / "b dogs" / "cycle");
  const ImageFolderOptions untargeted{.path = folder.path().string(), .untargeted = true};
  CHECK(open_image_folder(untargeted)->size() == 4);  // with readme.png
  CHECK(open_image_folder({pictures.path()})->size() == 3);
}

TEST_CASE("a broken image is named when its turn comes, or left out where that is wanted") {
  const Pictures pictures;
  const auto whole = golden_image("photo.jpg");
  const std::string cut(whole.begin(),
                        whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  pictures.folder.write("a cats/broken.jpg", cut);
  pictures.folder.write("b dogs/empty.png", "");
  pictures.folder.write("b dogs/text.png", "hello");

  const auto source = open_image_folder({pictures.path()});
  CHECK(source->size() == 6);
  const auto broken = find_broken(*source, 2);
  REQUIRE(broken.size() == 3);
  CHECK_THAT(broken[0].second, Contains("broken.jpg: damaged JPEG"));
  CHECK_THAT(broken[1].second, Contains("empty.png: is empty"));
  CHECK_THAT(broken[2].second, Contains("text.png: is not a JPEG or PNG"));

  const auto sound = without_broken(source, pictures.path(), 2);
  CHECK(sound->size() == 3);
  CHECK(sound->labels() == std::vector<int32_t>{0, 1, 1});
  CHECK(find_broken(*sound, 1).empty());
}

TEST_CASE("folders without classes or without images are refused") {
  TemporaryFolder folder;
  CHECK_THAT(refusal_of([&] { open_image_folder({folder.path().string()}); }),
             Contains("has no sub-folders"));
  std::filesystem::create_directories(folder / "empty");
  CHECK_THAT(refusal_of([&] { open_image_folder({folder.path().string()}); }),
             Contains("empty: has no .jpg, .jpeg or .png files"));
  folder.write("empty/a.jpg", "x");
  CHECK_THAT(refusal_of([&] {
               const auto images = open_image_folder({folder.path().string()});
               without_broken(images, folder.path().string(), 1);
             }),
             Contains("none of its images can be decoded"));
  CHECK_THAT(refusal_of([] { open_image_folder({"no-such-folder"}); }), Contains("cannot list"));
}
