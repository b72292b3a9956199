"""Folders of ResNets and ViTs of transformers and timm, without either package: model.from, import, export, predict. The folders are
those of scripts/record_golden_huggingface.py; logits are compared in tests/run/huggingface.cpp too."""
import json
import shutil

import support
from support import OK, SOURCES, STORAGE, USAGE, png, safetensors

GOLDEN = SOURCES / "tests" / "golden" / "vision_folders"
# Keys that follow from the data here, have no effect, or are those of a data set with two classes.
SILENT = {"transformers_version", "dtype", "torch_dtype", "initializer_range", "encoder_stride", "pooler_act", "pooler_output_size",
          "out_features", "out_indices", "stage_names", "architecture", "model_args", "pretrained_cfg"}


def shapes(folder):
    return {name: value[1] for name, value in safetensors(folder / "model.safetensors").items()}


class VisionFolders(support.DltrainTest):
    def configuration(self, folder, name, keys=""):
        split = f"{{type: tensors, path: {GOLDEN / name / 'logits.safetensors'}, inputs: input, targets: target}}"
        return self.write(f"{name}.yaml", f"""
model: {{from: {folder}{keys}}}
data: {{train: {split}, eval: {split}}}
optimizer: {{type: sgd, learning_rate: 0.01}}
training: {{global_batch_size: 2, max_steps: 1}}
""")

    def probabilities(self, config, checkpoint):
        out = self.folder / "out.jsonl"
        self.run_dltrain("predict", config, "--checkpoint", checkpoint, "-o", out, "--top-k", 5)
        return [{entry["class"]: entry["probability"] for entry in json.loads(line)["top"]} for line in out.read_text().splitlines()]

    def assert_same_model(self, name, one, other):
        found = [self.probabilities(self.configuration(folder, name), folder) for folder in (one, other)]
        for a, b in zip(*found, strict=True):
            self.assertEqual(a.keys(), b.keys())
            for key, value in a.items():
                self.assertAlmostEqual(value, b[key], delta=1e-6)

    def test_every_form_goes_out_and_comes_back(self):
        for golden in sorted(GOLDEN.iterdir()):
            name = golden.name
            form = ["--timm"] if name.startswith("timm") else []
            out = self.folder / f"out-{name}"
            self.run_dltrain("import", golden, out, *form)
            self.assertEqual(shapes(out), shapes(golden))
            config, again = (json.loads((folder / "config.json").read_text()) for folder in (golden, out))
            for key in set(config) - SILENT:
                self.assertEqual(again[key], config[key], f"{name}: {key}")
            self.assert_same_model(name, golden, out)

    def test_timm_and_transformers_are_exchanged(self):
        there, back = self.folder / "there", self.folder / "back"
        self.run_dltrain("import", GOLDEN / "timm_vit", there)
        self.assertIn("vit.encoder.layer.1.attention.attention.key.bias", shapes(there))
        self.assertEqual(json.loads((there / "config.json").read_text())["image_size"], 32)
        processor = json.loads((there / "preprocessor_config.json").read_text())
        self.assertEqual((processor["image_mean"], processor["size"], processor["crop_size"]),
                         ([0.5] * 3, {"shortest_edge": 35}, {"height": 32, "width": 32}))
        self.run_dltrain("import", there, back, "--timm")
        self.assertEqual(safetensors(back / "model.safetensors"), safetensors(GOLDEN / "timm_vit" / "model.safetensors"))
        pretrained = json.loads((back / "config.json").read_text())["pretrained_cfg"]
        self.assertEqual((pretrained["input_size"], pretrained["mean"], round(pretrained["crop_pct"], 2)), ([3, 32, 32], [0.5] * 3, 0.91))
        self.assert_same_model("timm_vit", GOLDEN / "timm_vit", there)
        # What timm's model does not have is not lost in silence.
        self.refused(USAGE, "import", GOLDEN / "vit", self.folder / "other", "--timm", says="epsilon: 1.0e-12")
        self.refused(USAGE, "import", GOLDEN / "resnet", self.folder / "other", "--timm", says="out_channels: 2")

    def photos(self):
        for kind, shade in (("cat", 40), ("dog", 200)):
            folder = self.folder / "photos" / kind
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(6):
                (folder / f"{i}.png").write_bytes(png(40, 48, lambda y, x: (shade, (shade + 7 * i + y) % 256, x)))
        return self.folder / "photos"

    def test_a_folder_is_fine_tuned_on_other_classes_and_exported(self):
        photos, start, run, out = self.photos(), self.folder / "start", self.folder / "run", self.folder / "out"
        self.run_dltrain("import", GOLDEN / "timm_vit", start)
        train = ["train", start / "config.yaml", "--output-dir", run, "-s", f"data.path={photos}", "-s", "training.global_batch_size=4",
                 "-s", "data.eval_fraction=0.4"]
        self.refused(STORAGE, *train, "-s", "model.strict=true", says="strict: false leaves it out")
        log = self.run_dltrain(*train).err
        self.assertIn("heads.head.weight has shape [5, 16] in the file and [2, 16] in the model: initialised again", log)
        self.assertNotIn("normalized in another way", log)
        log = self.run_dltrain(*train[:2], "--output-dir", self.folder / "plain", *train[4:], "-s", "data.normalize=null").err
        self.assertIn("normalized in another way; use data: {scale: 0.00392156862745098, normalize: {mean: [0.5, 0.5, 0.5], ", log)
        self.run_dltrain("export", run, out)
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config["id2label"], {"0": "cat", "1": "dog"})
        processor = json.loads((out / "preprocessor_config.json").read_text())
        self.assertEqual((processor["image_mean"], processor["size"]), ([0.5] * 3, {"shortest_edge": 35}))
        # The exported folder, which has names and normalization, says the same of new photos.
        found = []
        for model in (run, out):
            table = self.folder / "new.csv"
            self.run_dltrain("predict", model, photos, "-o", table)
            found.append([line.split(",")[-2:] for line in table.read_text().splitlines()])
        self.assertEqual([row[0] for row in found[0]], [row[0] for row in found[1]])
        self.assertEqual(self.run_dltrain("eval", out, photos).code, OK)
        # Training goes on with the head of the folder, whose classes are in another order.
        other = self.folder / "other-order"
        shutil.copytree(out, other, ignore=shutil.ignore_patterns(".dltrain"))
        config["id2label"] = {"0": "dog", "1": "cat"}
        (other / "config.json").write_text(json.dumps(config))
        log = self.run_dltrain(*train[:2], "--output-dir", self.folder / "again", *train[4:], "-s", f"model.from={other}").err
        self.assertIn("know the classes dog, cat, and the data has cat, dog: outputs keep their places", log)
        timm = self.folder / "timm"
        for text in ("{", '{"size": {"height": -3, "width": 3}, "do_normalize": false}', '{"size": 32, "image_mean": "a"}'):
            (out / "preprocessor_config.json").write_text(text)
            self.assertIn("does not say how images are normalized", self.run_dltrain("predict", out, photos, "-o", self.folder / "new.csv").err)
        self.run_dltrain("export", run, timm, "--timm")
        self.assertEqual(json.loads((timm / "config.json").read_text())["label_names"], ["cat", "dog"])

    def test_a_model_of_images_has_no_texts(self):
        self.refused(USAGE, "generate", GOLDEN / "vit", "--prompt", "x", says="is a model of images, which has no texts")

    def test_other_models_are_refused_by_name(self):
        folder = self.folder / "copy"
        for name, key, value, says in (
                ("resnet", "depths", [1, 1, 1, 1], "depths [1, 1, 1, 1] is not supported"),
                ("resnet", "hidden_sizes", [8, 16, 32, 100], "hidden_sizes: only [8, 16, 32, 64] is supported"),
                ("resnet", "downsample_in_bottleneck", True, "downsample_in_bottleneck: true is not supported, only false"),
                ("resnet_basic", "hidden_act", "gelu", "hidden_act: \"gelu\" is not supported, only \"relu\""),
                ("vit", "qkv_bias", False, "qkv_bias: false is not supported"),
                ("vit", "num_attention_heads", 3, "num_attention_heads: 3 does not divide hidden_size, which is 16"),
                ("timm_vit", "architecture", "vit_base_patch16_clip_224", "the architecture 'vit_base_patch16_clip_224' is not supported"),
                ("timm_vit", "global_pool", "avg", "global_pool: \"avg\" is not supported"),
                ("timm_vit", "model_args", {"class_token": False}, "model_args.class_token: false is not a known key")):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(GOLDEN / name, folder)
            config = json.loads((folder / "config.json").read_text())
            config[key] = value
            (folder / "config.json").write_text(json.dumps(config))
            self.refused(USAGE, self.configuration(folder, name), "--dry-run", says=says)


if __name__ == "__main__":
    support.main()
