"""dltrain data: inspect, show, prepare; and runs on images in each of their forms."""
import csv
import json
import os
import shutil
import struct

import support
from launching import free_port
from support import DATA, SOURCES, STORAGE, USAGE, png

GOLDEN = SOURCES / "tests" / "golden" / "images"
MODEL = """
name: pictures
model: {layers: [flatten, {linear: 2}]}
optimizer: {type: sgd, learning_rate: 0.01}
training: {global_batch_size: 2, max_steps: 3}
logging: {logging_steps: 1}
"""


class Data(support.DltrainTest):
    def folder_of_images(self):
        for kind, value in (("dark", 40), ("light", 200)):
            for i in range(4):
                self.write(f"images/{kind}/{i}.png", png(12 + i, 16, lambda y, x: (value + 5 * i, value + x, y)))
        shutil.copy(GOLDEN / "photo.jpg", self.folder / "images" / "light" / "photo.jpg")
        return self.folder / "images"

    def config(self, data):
        return self.write("exp.yaml", MODEL + data)

    def image_config(self, extra=""):
        return self.config(self.image_data("image_folder", self.folder_of_images(), extra))

    def packed_config(self, path):
        return self.write("packed.yaml", MODEL + self.image_data("packed_images", path))

    @staticmethod
    def image_data(kind, path, extra=""):
        return f"""
data:
  type: {kind}
  path: {path}
  transforms: [{{resize: 10}}, {{center_crop: 8}}]
  train: {{transforms: [{{random_resized_crop: 8}}, horizontal_flip]{extra}}}
  eval: {{}}
"""

    def test_a_run_on_an_image_folder_equals_one_on_its_packed_files(self):
        config = self.image_config()
        packed = self.folder / "packed.images"
        said = self.run_dltrain("data", "prepare", config, "-o", packed)
        self.assertIn("9 images", said.out)
        self.assertEqual(said.err, "")  # no progress without a terminal
        self.run_dltrain(config, "-q", "--output-dir", self.folder / "a")
        other = self.packed_config(packed)
        self.run_dltrain(other, "-q", "--output-dir", self.folder / "b")
        self.assert_same_state(self.folder / "a", self.folder / "b")
        # Other numbers of workers see the same samples.
        self.run_dltrain(config, "-q", "--output-dir", self.folder / "c", "-s", "data.workers=3")
        self.assert_same_state(self.folder / "a", self.folder / "c")

    def test_raw_packing_shrinks_and_reads_back(self):
        config = self.image_config()
        packed = self.folder / "raw.images"
        self.run_dltrain("data", "prepare", config, "-o", packed, "--encoding", "raw", "--shorter-side", "9")
        other = self.packed_config(packed)
        self.assertIn("train: 9 samples", self.run_dltrain("data", "inspect", other).out)
        self.refused(USAGE, "data", "prepare", config, "-o", packed, "--shorter-side", "9", says="--encoding raw")
        self.refused(USAGE, "data", "prepare", config, "-o", packed, "--shard-tokens", "9", says="--shard-tokens is for text only")

    def test_inspect_tells_counts_statistics_duplicates_broken_and_overlap(self):
        config = self.image_config()
        shutil.copy(self.folder / "images" / "dark" / "1.png", self.folder / "images" / "light" / "copy.png")
        said = self.run_dltrain("data", "inspect", config).out
        for text in ("train: 10 samples", "f32[8, 8, 3]", "classes: 2", "0 (dark)", "1 (light)", "broken: 0",
                     "duplicates: 1, of which 1 have another target", "light/copy.png = ", "dark/1.png",
                     "eval samples that are also in train: 10"):
            self.assertIn(text, said)
        self.write("images/dark/bad.jpg", b"\xff\xd8\xff nothing")
        said = self.run_dltrain("data", "inspect", config, code=DATA).out
        self.assertIn("broken: 1", said)
        self.assertIn("bad.jpg: damaged JPEG", said)
        self.refused(DATA, config, "-q", "--max-steps", 20, "--output-dir", self.folder / "run",
                     says=["bad.jpg: damaged JPEG", "data.on_error: skip leaves it out"])
        self.write("images/light/text.png", b"hello")
        said = self.refused(DATA, "data", "inspect", config, "-s", "data.normalize=auto", says="is inspected without normalize: auto").out
        self.assertEqual(said.count("broken: 2"), 2)  # of both splits
        result = self.run_dltrain(config, "--max-steps", 20, "--output-dir", self.folder / "skips", "-s",
                                  "data.on_error=skip")
        self.assertIn("left out: ", result.out + result.err)

    def test_a_broken_sample_does_not_cost_what_was_learnt(self):
        """In the last evaluation, and in the middle of the run (file order: the broken one comes in step 3)."""
        config = self.image_config(", shuffle: false")
        other = self.folder / "other"
        shutil.copytree(self.folder / "images", other)
        for split, step in (("eval", 4), ("train", 2)):
            run, bad = self.folder / split, self.write("other/light/3.png", b"\x89PNG\r\n\x1a\n nothing")
            command = (config, "-q", "--max-steps", 4, "--output-dir", run, "-s", f"data.{split}.path={other}", "-s",
                       "training.global_batch_size=3", "-s", "data.workers=1", "--resume", "auto")
            self.refused(DATA, *command, says=["3.png", f"A checkpoint of step {step} is saved", "--resume auto", "also --allow-changes"])
            if split == "train":  # other samples need the flag, the key alone does not
                said = self.refused(USAGE, *command, "-s", "data.train.on_error=skip", says=["samples of data.train: 9 -> 8", "--allow-changes"]).err
                self.assertNotIn("on_error: ", said)
            self.assertEqual(os.readlink(run / "checkpoints" / "latest"), f"step-{step:06}")
            shutil.copy(self.folder / "images" / "light" / "3.png", bad)
            self.run_dltrain(*command)
            self.assertEqual(json.loads((run / "summary.json").read_text())["steps"], 4)

    def test_inspect_finds_outliers_in_numbers(self):
        rows = "".join(f"{i % 7},{i % 5},{i % 3},{i % 2}\n" for i in range(60)) + "900,1,1,0\n4,4,4,1\n"
        path = self.write("a.csv", rows)
        said = self.run_dltrain("data", "inspect", self.config(f"data: {{type: csv, path: {path}, eval_fraction: 0.2}}")).out
        self.assertIn("eval: 12 samples", said)
        self.assertIn("a.csv:61: its mean is 300.7", said)
        self.assertIn("a.csv:62: constant, 4 everywhere", said)

    def test_show_writes_a_picture_of_augmented_samples(self):
        config = self.image_config(", cutmix: {alpha: 1}")
        for split in ("train", "eval"):
            path = self.folder / f"{split}.png"
            said = self.run_dltrain("data", "show", config, "-o", path, "--split", split, "--samples", 5).out
            self.assertIn("5 samples of", said)
            content = path.read_bytes()
            self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
            width, height = struct.unpack(">II", content[16:24])
            self.assertGreater(width, 3 * 96)
            self.assertGreater(height, 2 * 96)
        self.assertRegex(said, r"(?m)^ +0  dark$")
        first = (self.folder / "train.png").read_bytes()
        self.run_dltrain("data", "show", config, "-o", self.folder / "train.png", "--samples", 5)
        self.assertEqual(first, (self.folder / "train.png").read_bytes())
        self.refused(USAGE, "data", "show", config, says="-o FILE.png")
        flat = self.config("data: {type: synthetic, shape: [12]}")
        self.refused(USAGE, "data", "show", flat, "-o", self.folder / "x.png", says="only images")

    def test_show_prints_text_as_the_loss_sees_it(self):
        text = self.write("text.txt", "To be,\nor not to be. " * 20)
        data = f"data: {{type: text, path: {text}, tokenizer: {{type: char, special_tokens: [<mask>]}}, sequence_length: 10, shuffle: false, random_offset: false, eval_fraction: 0.2"
        said = self.run_dltrain("data", "show", self.config(data + "}"), "--samples", 2).out
        self.assertEqual(said, "   0  10 of 10 targets count\n"
                               "      input   To be,\\nor \n"
                               "      target  o be,\\nor n\n"
                               "   1  10 of 10 targets count\n"
                               "      input   not to be.\n"
                               "      target  ot to be. \n")
        # Nothing that a terminal would obey: ESC and, of two bytes, CSI.
        self.write("text.txt", "a\x1b[2J\x9b3é\t" * 20)
        said = self.run_dltrain("data", "show", self.config(data + "}"), "--samples", 1).out
        self.assertIn("      input   a?[2J?3é\\ta\n", said)
        self.write("text.txt", "To be,\nor not to be. " * 20)
        masked = self.run_dltrain("data", "show", self.config(data + ", mlm_probability: 0.3}"), "--split", "eval").out
        lines = masked.splitlines()
        self.assertEqual(len(lines), 12)
        self.assertEqual(lines[0], "   0  3 of 10 targets count")
        self.assertIn("[<mask>", masked)
        for shown, target in zip(lines[1::3], lines[2::3]):
            self.assertEqual(shown.count("["), len([run for run in target[14:].split("…") if run]))
        pairs = self.write("a.jsonl", '{"q": "ab", "a": "cd"}\n')
        pair = f"data: {{type: jsonl, path: {pairs}, tokenizer: {{type: byte, special_tokens: '<|endoftext|>'}}, sequence_length: 6, prompt: q, completion: a}}"
        said = self.run_dltrain("data", "show", self.config(pair)).out
        self.assertEqual(said, "   0  3 of 6 targets count\n"
                               "      input   abcd  + 2 of padding\n"
                               "      target  …cd<|endoftext|>…\n")
        self.refused(USAGE, "data", "show", self.config(pair), "-o", self.folder / "x.png", says="text is printed")
        # Repeated tokens are no padding.
        self.write("a.jsonl", '{"text": "abbbbb"}\n')
        said = self.run_dltrain("data", "show", self.config(pair.replace("prompt: q, completion: a", "document_mask: true"))).out
        self.assertEqual(said, "   0  6 of 6 targets count\n"
                               "      input      abbbbb\n"
                               "      documents  1\n"
                               "      target     bbbbb<|endoftext|>\n")

    def test_mistakes_are_told(self):
        config = self.config("data: {type: synthetic, shape: [8, 8, 1]}")
        self.refused(USAGE, "data", says="needs one of inspect")
        self.refused(USAGE, "data", "prepare", config, "-o", self.folder / "x", says="has neither images nor text")
        self.refused(USAGE, "data", "show", config, "-o", self.folder / "x.png", "--split", "eval", says="no eval split")
        self.refused(USAGE, self.config(f"data: {{type: image_folder, path: {self.folder_of_images()}}}"), "--dry-run",
                     says="images may differ in size")
        self.refused(DATA, self.config("data: {type: cifar10, path: no-such-folder}"), "--dry-run", says="no-such-folder")

    def animals(self, folder, *kinds, images=4):
        """A sub-folder for each kind, whose images have a colour of their own."""
        colours = {"ant": (250, 20, 20), "bee": (20, 250, 20), "cat": (20, 20, 250), "dog": (120, 120, 120)}
        for kind in kinds:
            for i in range(images):
                self.write(f"{folder}/{kind}/{i}.png", png(8, 8, lambda y, x: [max(0, c - 3 * i - y) for c in colours[kind]]))
        return self.folder / folder

    def train_animals(self):
        self.animals("train", "ant", "bee", "cat")
        self.animals("test", "bee", "cat")
        config = self.write("animals.yaml", MODEL.replace("linear: 2", "linear: 3").replace("max_steps: 3", "max_steps: 60") + f"""
data: {{type: image_folder, transforms: [{{resize: [8, 8]}}], train: {{path: {self.folder}/train}}, eval: {{path: {self.folder}/test}}}}
""")
        run = self.folder / "run"
        self.run_dltrain(config, "-q", "--output-dir", run)
        return config, run

    def predicted(self, run, *arguments, **options):
        path = self.folder / "out.csv"
        self.run_dltrain("predict", "--checkpoint", run, "-o", path, *arguments, **options)
        with open(path, newline="") as file:
            return list(csv.DictReader(file))

    def test_classes_are_matched_by_their_names(self):
        config, run = self.train_animals()
        rows = self.predicted(run)
        self.assertEqual([row["target"] for row in rows], ["bee"] * 4 + ["cat"] * 4)
        self.assertEqual([row["class"] for row in rows], ["bee"] * 4 + ["cat"] * 4)
        state = json.loads((run / "checkpoints" / "latest" / "state.json").read_text())
        self.assertEqual(state["class_names"], ["ant", "bee", "cat"])
        # A packed file of the eval images has their names; and the checkpoint's names count, not those of today's data.
        packed = self.folder / "test.images"
        self.run_dltrain("data", "prepare", config, "--split", "eval", "-o", packed)
        self.animals("few", "cat")
        for data in (f"data.eval={{type: packed_images, path: {packed}}}", f"data.train.path={self.folder}/few"):
            again = self.predicted(run, "-s", data)
            self.assertEqual([(r["target"], r["class"]) for r in again], [(r["target"], r["class"]) for r in rows])
        self.assertIn("accuracy 1", self.run_dltrain("eval", "--checkpoint", run, "-s", f"data.train.path={self.folder}/few",
                                                     "-s", f"data.eval.path={self.folder}/few").out)
        self.animals("other", "cat", "dog")
        for command in (("train", config, "--dry-run"), ("eval", "--checkpoint", run), ("predict", "--checkpoint", run, "-o", self.folder / "x.csv")):
            self.refused(DATA, *command, "-s", f"data.eval.path={self.folder}/other", says="the class 'dog' is not one of the 3")
        packed = self.folder / "other.images"
        self.run_dltrain("data", "prepare", config, "--split", "eval", "-s", f"data.eval.path={self.folder}/other", "-o", packed)
        rows = self.predicted(run, packed)  # predictions need no targets
        self.assertEqual(list(rows[0]), ["sample", "source", "class", "probability"])
        self.assertEqual([row["class"] for row in rows][:4], ["cat"] * 4)
        self.refused(DATA, "eval", run, packed, says="the class 'dog' is not one of the 3")

    def test_images_of_another_size_are_told(self):
        config, run = self.train_animals()
        size = ("-s", "data.transforms=[{resize: [9, 9]}]")
        self.refused(STORAGE, "predict", run, self.folder / "test", "-o", self.folder / "x.csv", *size, says="other transforms, image sizes or lengths than in training?")
        self.refused(DATA, config, "--dry-run", "-s", "data.eval.transforms=[{resize: [9, 9]}]",
                     says=["the samples of the splits differ", "the `transforms` of both must end in one size"])

    def test_predict_takes_images_without_classes(self):
        config, run = self.train_animals()
        flat = self.folder / "flat"
        flat.mkdir()
        for kind in ("cat", "bee"):
            shutil.copy(self.folder / "test" / kind / "0.png", flat / f"{kind}.png")
        shutil.copy(self.folder / "test" / "bee" / "1.png", flat / "bee.webp")
        flags = ("-s", f"data.eval.path={flat}", "-s", "data.eval.target=none")
        rows = self.predicted(run, *flags)
        self.assertEqual(list(rows[0]), ["sample", "source", "class", "probability"])
        self.assertEqual([row["class"] for row in rows], ["bee", "cat"])
        self.assertIn("skipped 1 file without the ending .jpg, .jpeg or .png",
                      self.run_dltrain("predict", "--checkpoint", run, "-o", self.folder / "out.jsonl", *flags).err)
        self.assertNotIn("target", (self.folder / "out.jsonl").read_text())
        self.refused(USAGE, "eval", "--checkpoint", run, *flags, says="only predict takes such data")
        self.refused(USAGE, config, "--dry-run", *flags, says="data.eval has no targets")
        self.refused(USAGE, config, "--dry-run", "-s", "data.train.target=none", says="data.train has no targets")
        self.refused(DATA, "predict", "--checkpoint", run, "-o", self.folder / "x.csv", "-s", f"data.eval.path={flat}", says="target: none")
        self.refused(USAGE, "predict", "--checkpoint", run, "-o", self.folder / "x.csv", "--top-k", 4, says="3 classes")

    def test_new_images_need_nothing_but_the_run(self):
        config, run = self.train_animals()
        held = self.write("held.yaml", config.read_text().replace(f"train: {{path: {self.folder}/train}}, eval: {{path: {self.folder}/test}}",
                                                                 f"path: {self.folder}/train, eval_fraction: 0.25, train: {{mixup: {{alpha: 0.2}}}}"))
        self.run_dltrain(held, "-q", "--output-dir", self.folder / "held")
        packed = self.folder / "test.images"
        self.run_dltrain("data", "prepare", config, "--split", "eval", "-o", packed)
        binary = self.folder / "test.bin"
        shutil.copy(packed, binary)
        flat = self.folder / "flat"
        flat.mkdir()
        for kind in ("cat", "bee"):
            shutil.copy(self.folder / "test" / kind / "0.png", flat / f"{kind}.png")
        shutil.rmtree(self.folder / "train")
        for file in (flat / "cat.png", self.write("new.csv", "1,2\n")):
            self.refused(DATA, "predict", run, file, "-o", self.folder / "out.csv", says=[str(file), "give a folder of images"])
        for trained in (run, self.folder / "held"):
            out = self.folder / "out.csv"
            for place, known in ((flat, False), ("test", True), (packed, True), (binary, True)):
                said = self.run_dltrain("predict", trained, place, "-o", out, cwd=self.folder).out
                self.assertIn(f"samples of {place}, by {trained}", said)
                with open(out, newline="") as file:
                    rows = list(csv.DictReader(file))
                self.assertEqual("target" in rows[0], known)
                right = [row.get("target", os.path.basename(row["source"]).split(".")[0]) for row in rows]
                self.assertEqual([row["class"] for row in rows], right)
            self.assertIn("8 samples of test, loss", self.run_dltrain("eval", trained, "test", cwd=self.folder).out)
        self.refused(DATA, "eval", run, flat, says="has no sub-folders")
        self.animals("other", "cat", "dog")
        self.refused(DATA, "eval", run, self.folder / "other", says="the class 'dog' is not one of the 3")
        self.assertIn("2 samples", self.run_dltrain("predict", run, flat, "-o", self.folder / "x.csv").out)
        self.refused(DATA, "predict", run, self.folder / "nothere", "-o", self.folder / "x.csv", says="there is no file or folder")
        self.refused(USAGE, "predict", self.folder / "nothere", flat, "-o", self.folder / "x.csv", says="give a run folder")
        self.refused(USAGE, "predict", run, flat, packed, "-o", self.folder / "x.csv", says="give one file or folder of data")
        self.refused(USAGE, "predict", run, flat, "--split", "train", "-o", self.folder / "x.csv", says="--split")

    def test_predict_follows_links_and_tells_what_it_leaves_out(self):
        _, run = self.train_animals()
        test, out = self.folder / "test", self.folder / "out.csv"
        (self.folder / "links").mkdir()
        (self.folder / "links" / "link").symlink_to(test)
        self.assertIn("8 samples", self.run_dltrain("predict", run, self.folder / "links", "-o", out).out)
        shutil.copy(test / "bee" / "0.png", test / "beside.png")
        said = self.run_dltrain("predict", run, test, "-o", out)
        self.assertIn("skipped 1 file beside the folders of the classes, the first is ", said.err)
        self.assertIn("8 samples", said.out)

    def test_names_that_are_not_utf8(self):
        config, run = self.train_animals()
        test = os.fsencode(self.folder / "test")
        os.rename(test + b"/bee/0.png", test + b"/bee/caf\xe9.png")
        self.assertTrue(any("caf\\xe9.png" in row["source"] for row in self.predicted(run, self.folder / "test")))
        os.rename(os.fsencode(self.folder / "train") + b"/ant", os.fsencode(self.folder / "train") + b"/caf\xe9")
        self.refused(DATA, config, "--output-dir", self.folder / "other", says=["caf\\xe9", "rename the folder"])

    def test_a_fraction_of_a_folder_is_one_of_each_class(self):
        folder = self.animals("train", "ant", "bee")
        config = self.config(f"data: {{type: image_folder, path: {folder}, transforms: [{{resize: [8, 8]}}], eval_fraction: 0.25}}")
        self.assertRegex(self.run_dltrain("data", "inspect", config).out, r"(?s)eval: 2 samples.*ant.*bee")

    def test_sorted_samples_are_told(self):
        self.write("sorted.csv", "".join(f"{i % 7},{i % 5},{i // 20}\n" for i in range(40)))
        random = self.config(f"data: {{type: csv, path: {self.folder}/sorted.csv, eval_fraction: 0.25}}")
        self.assertNotIn("has no samples", self.run_dltrain(random, "--output-dir", self.folder / "random").err)
        config = self.config(f"data: {{type: csv, path: {self.folder}/sorted.csv, eval_fraction: 0.25, eval_split: tail}}")
        run = self.run_dltrain(config, "--output-dir", self.folder / "run")
        self.assertIn("the eval split has no samples of the classes 0", run.out + run.err)
        self.assertIn("the eval split has no samples of the classes 0", self.failed_check(config))
        same = self.config(f"data: {{type: csv, path: {self.folder}/sorted.csv, train: {{}}, eval: {{rows: [10, 30]}}}}")
        self.assertIn("20 of 20 samples of the eval split are trained on", self.failed_check(same))
        rows = [f"{i},{i * i % 17},{i % 2}\n" for i in range(59)]
        self.write("rows.csv", "".join(rows + rows[:1]))
        for train, passes, says in (([0, 50], "FAIL", "11 of 20"), ([0, 40], "PASS", "1 of 20")):
            config = self.config(f"data: {{type: csv, path: {self.folder}/rows.csv, train: {{rows: {train}}}, eval: {{rows: [40, 60]}}}}")
            said = self.run_dltrain("check", config, "--time", 1, code=None).out
            self.assertRegex(said, rf"{passes}  data and targets.*{says} samples of the eval split are trained on")

    def test_a_run_goes_on_with_the_order_and_the_split_that_it_began_with(self):
        self.write("sorted.csv", "".join(f"{i % 7},{i % 5},{i // 20}\n" for i in range(40)))
        support.save_safetensors(self.folder / "t.safetensors", {"x": ("F32", [8, 2], [0.5] * 16), "y": ("I32", [8], [0, 1] * 4)})
        for data, key in ((f"type: csv, path: {self.folder}/sorted.csv, eval_fraction: 0.25", "eval_split: tail"),
                          (f"type: tensors, path: {self.folder}/t.safetensors, inputs: x, targets: y", "shuffle: false")):
            run = self.folder / key[:5]
            self.run_dltrain(self.config(f"data: {{{data}, {key}}}"), "-q", "--output-dir", run)
            self.run_dltrain(self.config(f"data: {{{data}}}"), "-q", "--output-dir", run, "--resume", "auto", "--max-steps", 5)
            self.assertIn(f" {key}\n", (run / "config.yaml").read_text())
            self.run_dltrain(self.config(f"data: {{{data}}}"), "-q", "--output-dir", self.folder / "new", "--overwrite")
            self.assertNotIn(f" {key}\n", (self.folder / "new" / "config.yaml").read_text())

    def failed_check(self, config):
        done = self.run_dltrain("check", config, code=None)
        self.assertNotEqual(done.code, 0)
        return done.out + done.err

    def test_broken_images_are_not_packed_and_files_not_replaced(self):
        config = self.image_config()
        packed = self.folder / "x.images"
        whole = (self.folder / "images" / "light" / "photo.jpg").read_bytes()
        (self.folder / "images" / "light" / "cut.jpg").write_bytes(whole[:len(whole) // 2])
        self.refused(DATA, "data", "prepare", config, "-o", packed, says=["cut.jpg", "data.on_error: skip leaves it out"])
        self.assertFalse(packed.exists())
        self.run_dltrain("data", "prepare", config, "-o", packed, "-s", "data.on_error=skip")
        before = packed.read_bytes()
        self.refused(USAGE, "data", "prepare", config, "-o", packed, says="--overwrite")
        self.run_dltrain("data", "prepare", config, "-o", packed, "--overwrite", "-s", "data.on_error=skip")
        self.assertEqual(packed.read_bytes(), before)
        self.refused(USAGE, "data", "prepare", self.packed_config(packed), "-o", packed, "--overwrite", says="would replace")
        self.assertEqual(packed.read_bytes(), before)
        self.refused(USAGE, "data", "show", config, "-o", self.folder / "x.jpg", says="name in .png")

    def test_a_packed_image_that_broke_is_left_out_where_that_is_asked_for(self):
        config = self.image_config()
        packed = self.folder / "x.images"
        self.run_dltrain("data", "prepare", config, "-o", packed)
        photo = (self.folder / "images" / "light" / "photo.jpg").read_bytes()
        content = packed.read_bytes()
        at = content.index(photo)
        packed.write_bytes(content[:at] + bytes(16) + content[at + 16:])
        train = (self.packed_config(packed), "--max-steps", 20, "--overwrite", "--output-dir", self.folder / "run")
        self.refused(DATA, *train, says=["x.images, image ", "is not a JPEG or PNG"])
        said = self.run_dltrain(*train, "-s", "data.on_error=skip").err
        self.assertIn("left out: ", said)
        self.assertIn("x.images, image ", said)

    def test_a_run_does_not_lie_among_its_images(self):
        for folder in (self.folder_of_images() / "light", self.folder / "images" / "runs"):
            self.refused(USAGE, self.image_config(), "--output-dir", folder / "run", says="whose files are inputs; name another folder")
            self.assertFalse(folder.joinpath("run").exists())
        sweep = ("-s", "sweep={trials: 2, parameters: {optimizer.learning_rate: [0.1, 0.01]}}", "--output-dir", self.folder / "images" / "sweep")
        self.refused(USAGE, "sweep", self.image_config(), *sweep, says="whose files are inputs; name another folder")
        self.assertFalse((self.folder / "images" / "sweep").exists())

    def test_a_named_model_replaces_the_layers_of_another_file(self):
        config = self.image_config()
        lenet = self.write("lenet.yaml", "extends: exp.yaml\nmodel: {layers: null, type: vgg11, width: 4, hidden: 16}\n")
        size = ("-s", "data.transforms=[{resize: [32, 32]}]", "-s", "data.train.transforms=[{resize: [32, 32]}]")
        self.refused(USAGE, lenet, "-s", "model.layers=[flatten]", says="(layers: null, or type: null, removes that of another file)")
        self.assertIn("would start a new run", self.run_dltrain(lenet, "--dry-run", *size).out)
        self.run_dltrain(config, "--dry-run", *size, "-s", "model.layers=null", "-s", "model.type=vgg11", "-s", "model.width=4", "-s", "model.hidden=16")

    def test_a_mean_in_other_units_is_told(self):
        normal = "data.normalize={mean: [%s, %s, %s], std: [%s, %s, %s]}"
        told = "so samples hardly differ"
        for mean, deviation, warns in ((125, 60, True), (0.5, 255, True), (0.5, 0.25, False)):
            ended = self.run_dltrain(self.image_config(), "--output-dir", self.folder / f"run{mean}-{deviation}", "-s", normal % (*[mean] * 3, *[deviation] * 3))
            self.assertEqual(told in ended.err, warns, ended.err)

    def test_ranks_that_read_other_files_are_told(self):
        """One path, but another file for each rank, as on disks of two nodes."""
        texts = {0: "the text of rank 0 " * 40, 1: "the text of rank 0 " * 39}
        for rank, text in texts.items():
            (self.folder / str(rank)).mkdir()
            self.write(f"{rank}/text.txt", text)
            self.write(f"{rank}/same.txt", texts[0])
            self.write(f"{rank}/letters.txt", texts[0].replace("x", "xy"[rank]))
        config = self.write("exp.yaml", """
model: {layers: [{embedding: {embedding_dim: 4}}, {linear: auto}]}
data: {type: text, path: /proc/self/cwd/text.txt, tokenizer: char, sequence_length: 8}
optimizer: {type: sgd, learning_rate: 0.1}
training: {global_batch_size: 2, max_steps: 2}
""")
        run = self.folder / "run"

        def ranks(*arguments):
            port = str(free_port())
            started = [self.start(config, "-q", "--output-dir", run, "--overwrite", *arguments, cwd=self.folder / str(rank),
                                  env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in (0, 1)]
            return [self.end(process) for process in started]

        for name, says in (("same", None), ("text", "data.train on rank 1"), ("letters", "differs from rank 0's")):
            results = ranks("-s", f"data.path=/proc/self/cwd/{name}.txt")
            self.assertEqual([result.code for result in results], [DATA, DATA] if says else [0, 0], "\n".join(map(str, results)))
            if says:
                self.assertIn(says, results[1].err)
        for rank in (0, 1):
            shutil.copy(run / "checkpoints" / "latest" / "model.safetensors", self.folder / str(rank))
        weights = self.folder / "1" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-4] ^= 1
        weights.write_bytes(content)
        results = ranks("-s", "data.path=/proc/self/cwd/same.txt", "-s", "model.init_from=/proc/self/cwd/model.safetensors")
        self.assertEqual([result.code for result in results], [DATA, DATA], "\n".join(map(str, results)))
        self.assertIn("the file /proc/self/cwd/model.safetensors on rank 1", results[1].err)

    def test_completion_knows_the_parts_of_data(self):
        script = self.run_dltrain("completion", "bash").out
        for word in ("inspect", "show", "prepare", "--shorter-side"):
            self.assertIn(word, script)


if __name__ == "__main__":
    support.main()
