"""Advice: the notes of `dltrain check`, data.augment, `predict --suspicious`, spikes in the log."""
import csv
import json
import random
import re

from support import DATA, SMALL, USAGE, DltrainTest, main, metrics, png, save_safetensors


class Advice(DltrainTest):
    def notes(self, text, *arguments):
        said = self.run_dltrain("check", self.write("checked.yaml", text), "--time", 1, *arguments, code=None)
        self.assertIn(said.code, (0, 9), str(said))
        return re.findall(r"^NOTE  advice: (.*)$", said.out, re.MULTILINE)

    def test_a_usual_experiment_has_no_notes(self):
        self.assertEqual(self.notes(SMALL), [])

    def test_each_unusual_setting_has_its_note_alone(self):
        layers = "layers:\n    - {type: linear, out_features: 24}\n    - {type: gelu}\n    - {type: dropout, rate: 0.2}\n"
        self.assertIn(layers, SMALL)
        norm = SMALL.replace(layers, layers + "    - {type: linear, out_features: 24}\n    - batch_norm\n")
        binary = SMALL.replace("classes: 4", "classes: 2").replace("features: 4", "features: 1").replace("cross_entropy", "binary_cross_entropy")
        for text, says in (
            (norm, "layers.2 (dropout) before layers.4: dropout changes the variance"),
            (SMALL.replace(layers, layers.replace("    - {type: dropout, rate: 0.2}\n", "    - batch_norm\n    - {type: dropout, rate: 0.2}\n")), None),
            (re.sub(r"  eval: .*\n", "", SMALL), "no data is held out"),
            (SMALL.replace("    - {type: gelu}\n    - {type: dropout, rate: 0.2}\n", ""), "layers.0 and layers.1 are linear layers without an activation between them"),
            (SMALL.replace("    - {type: gelu}\n    - {type: dropout, rate: 0.2}\n", "").replace("norm: 1.0", "norm: 1.0, freeze: [layers.1.weight]"), None),
            (SMALL.replace("out_features: 4}\nloss", "out_features: 4}\n    - softmax\nloss"), "the last layer is a softmax, which cross_entropy has already"),
            (binary.replace("out_features: 1}\nloss", "out_features: 1}\n    - sigmoid\nloss"), "the last layer is a sigmoid, which binary_cross_entropy has already"),
            (binary, None),
            (SMALL.replace("shuffle: true", "shuffle: true, sampling: balanced").replace("cross_entropy}", "cross_entropy, balanced_class_weights: true}"), "both make up for rare classes, together twice"),
            (SMALL + "evaluation: {eval_steps: 1000}\n", "evaluation.eval_steps 1000 is more than the 40 steps"),
            (SMALL.replace("1.0e-2", "0.5"), "a learning rate of 0.5 is unusual for adamw: begin with 3e-4"),
            (SMALL.replace("type: adamw, learning_rate: 1.0e-2, weight_decay: 0.01", "type: sgd, learning_rate: 10"), "a learning rate of 10 is unusual for sgd: begin with 0.1"),
        ):
            notes = self.notes(text)
            self.assertEqual(len(notes), 0 if says is None else 1, f"{says}: {notes}")
            if says:
                self.assertIn(says, notes[0])

    def test_images_with_the_channels_first_are_told_where_training_begins(self):
        data = save_safetensors(self.folder / "images.safetensors", {"x": ("F32", [8, 3, 6, 6], [i % 13 for i in range(864)]), "y": ("I64", [8], [0, 1] * 4)})
        text = self.write("images.yaml", f"""
model: {{layers: [{{conv2d: {{out_channels: 2, kernel_size: 3}}}}, flatten, {{linear: auto}}]}}
data: {{type: tensors, path: {data}, inputs: x, targets: y}}
optimizer: {{type: sgd, learning_rate: 0.01}}
training: {{global_batch_size: 8, max_steps: 1}}
""")
        told = "layers.0 reads samples of shape [3, 6, 6] as [height, width, channels], with 6 channels"
        self.assertIn(told, self.run_dltrain(text, "--output-dir", self.folder / "first").err)
        last = "model.layers=[transpose: [0, 2, 3, 1], {conv2d: {out_channels: 2, kernel_size: 3}}, flatten, {linear: auto}]"
        self.assertNotIn("channels", self.run_dltrain(text, "--output-dir", self.folder / "last", "-s", last).err)

    def test_few_samples_of_a_sorted_split_are_told(self):
        table = self.write("sorted.csv", "x,y\n" + "".join(f"{i % 7},{'early' if i < 40 else 'late'}\n" for i in range(80)))
        text = self.write("sorted.yaml", f"""
model: {{layers: [{{linear: auto}}]}}
data: {{type: csv, path: {table}, target: y, eval: {{}}}}
optimizer: {{type: sgd, learning_rate: 0.01}}
training: {{global_batch_size: 8, max_steps: 2}}
""")
        told = "are the samples sorted by class?"
        self.assertNotIn(told, self.run_dltrain(text, "--output-dir", self.folder / "all").err)
        few = self.run_dltrain(text, "--output-dir", self.folder / "few", "-s", "evaluation.samples=20").err
        self.assertIn(told, few)
        self.assertIn("data.eval has the samples of data.train", few)

    def test_statistics_of_a_micro_batch_depend_on_the_ranks(self):
        text = self.write("norm.yaml", SMALL.replace("layers:\n", "layers:\n    - {type: batch_norm}\n"))
        told = "takes statistics of a micro-batch, here of 8 samples on each of 2 ranks"
        two = ("--max-steps", 2, "--nproc-per-node", 2)
        self.assertIn(told, self.run_dltrain(text, "--output-dir", self.folder / "two", *two).err)
        self.assertNotIn("micro-batch", self.run_dltrain(text, "--output-dir", self.folder / "one", "--max-steps", 2).err)
        given = self.run_dltrain(text, "--output-dir", self.folder / "given", *two, "-s", "training.micro_batch_size=8")
        self.assertNotIn("micro-batch", given.err)
        planned = self.run_dltrain("plan", text, "--world", 2).out
        self.assertIn("for the same global batch and micro_batch_size 8, every zero_stage", planned)

    def test_norms_on_the_residual_path_need_a_warm_up(self):
        model = "model: {type: %s, num_layers: 2, hidden_size: 16, num_heads: 2}\n"
        text = self.write("text.txt", "the quick brown fox jumps over the lazy dog " * 40)
        rest = """data: {type: text, path: %s, tokenizer: {type: char, special_tokens: ["<mask>"]}, sequence_length: 8, mlm_probability: 0.2, eval_fraction: 0.25}
optimizer: {type: adamw, learning_rate: 1.0e-3}
training: {global_batch_size: 8, max_steps: 40, max_grad_norm: 1}
"""
        bert = model % "bert" + "lr_scheduler: cosine\n" + rest % text
        notes = self.notes(bert)
        self.assertEqual(len(notes), 1, notes)
        self.assertIn("is a norm on the residual path (post-norm), which needs a warm-up", notes[0])
        self.assertEqual(self.notes(bert, "-s", "lr_scheduler={type: cosine, warmup_steps: 5}"), [])
        gpt = bert.replace("bert", "gpt2").replace("mlm_probability: 0.2, ", "").replace(", max_grad_norm: 1", "")
        notes = self.notes(gpt)
        self.assertEqual(len(notes), 1, notes)
        self.assertIn("gradients of models with attention have spikes", notes[0])
        notes = self.notes(gpt, "-s", "training.max_grad_norm=1", "-s", "precision.compute=bf16", "-s", "model.hidden_size=20")
        self.assertEqual(len(notes), 1, notes)
        self.assertRegex(notes[0], r"which is no multiple of \d+.*: a GPU computes such products slower")

    def test_one_key_removes_all_random_changes_of_images(self):
        for kind in ("a", "b"):
            for i in range(8):
                self.write(f"images/{kind}/{i}.png", png(8, 8, lambda y, x: (x * 30, y * 30, 40 * len(kind) + 20 * i)))
        text = """
model: {layers: [flatten, linear: auto]}
data:
  type: image_folder
  path: images
  train: {transforms: [random_crop: {size: 8, padding: 2}, horizontal_flip], random_affine: {rotate: 20}, mixup: {alpha: 0.4}}
optimizer: {type: sgd, learning_rate: 0.01}
training: {global_batch_size: 16, max_steps: 3}
logging: {logging_steps: 1}
"""
        config = self.write("images.yaml", text)
        plain = self.write("plain.yaml", text.replace("transforms: [random_crop: {size: 8, padding: 2}, horizontal_flip], random_affine: {rotate: 20}, mixup: {alpha: 0.4}",
                                                      "transforms: [center_crop: 8]"))
        losses = []
        for i, arguments in enumerate(([plain], [config, "-s", "data.train.augment=false"], [config])):
            run = self.folder / f"run{i}"
            self.run_dltrain("train", *arguments, "-q", "--output-dir", run)
            losses.append([line["loss"] for line in metrics(run) if "loss" in line])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[1], losses[2])

    def test_wrong_labels_are_among_the_most_suspicious_samples(self):
        numbers = random.Random(3)
        wrong = set(numbers.sample(range(200), 6))
        rows = []
        for i in range(200):
            kind = i % 2
            rows.append(f"{numbers.gauss(3 * kind, 0.7):.3f},{numbers.gauss(-2 * kind, 0.7):.3f},{'ab'[kind ^ (i in wrong)]}")
        table = self.write("table.csv", "x,y,kind\n" + "\n".join(rows) + "\n")
        config = self.write("table.yaml", f"""
model: {{layers: [linear: 8, relu, linear: auto]}}
data: {{type: csv, path: {table}, target: kind, normalize: auto}}
optimizer: {{type: adamw, learning_rate: 1.0e-2}}
training: {{global_batch_size: 20, max_steps: 60}}
""")
        run, out = self.folder / "run", self.folder / "suspicious.csv"
        self.run_dltrain("train", config, "-q", "--output-dir", run)
        self.run_dltrain("predict", run, "--split", "train", "--suspicious", 6, "-o", out)
        with open(out, newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        self.assertGreaterEqual(len({int(row["sample"]) for row in found} & wrong), 5)
        losses = [float(row["loss"]) for row in found]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertNotEqual(found[0]["target"], found[0]["class"])
        # The mean of all losses is that of an evaluation.
        self.run_dltrain("predict", run, "--split", "train", "--suspicious", 1000, "-o", self.folder / "all.jsonl")
        lines = [json.loads(line) for line in (self.folder / "all.jsonl").read_text().splitlines()]
        evaluated = self.folder / "evaluated.json"
        self.run_dltrain("eval", run, table, "--result", evaluated)
        self.assertEqual(len(lines), 200)
        self.assertAlmostEqual(sum(line["loss"] for line in lines) / 200, json.loads(evaluated.read_text())["eval_loss"], places=5)
        self.refused(DATA, "predict", run, self.write("new.csv", "x,y\n1,2\n"), "--suspicious", 3, "-o", out, says="there is no column 'kind'")
        self.refused(USAGE, "predict", run, "--split", "train", "--suspicious", 3, "--top-k", 2, "-o", out, says="--top-k")

    def test_a_spike_of_the_loss_is_named_in_the_log(self):
        numbers = random.Random(1)
        rows = [f"{numbers.gauss(0, 1):.3f},{numbers.gauss(0, 1):.3f},{i % 2}" for i in range(60 * 16)]
        for i in range(44 * 16, 45 * 16):  # one batch of another unit, with the labels reversed
            rows[i] = f"{200 * numbers.random():.3f},{-300 * numbers.random():.3f},{i % 2}"
        table = self.write("table.csv", "x,y,kind\n" + "\n".join(rows) + "\n")
        config = self.write("spike.yaml", f"""
model: {{layers: [linear: 2]}}
data: {{type: csv, path: {table}, target: kind, shuffle: false}}
optimizer: {{type: sgd, learning_rate: 0.01}}
training: {{global_batch_size: 16, max_steps: 60}}
logging: {{logging_steps: 1}}
""")
        said = self.run_dltrain("train", config, "-q", "--output-dir", self.folder / "run").err
        self.assertEqual(len(re.findall("the loss rose", said)), 1, said)
        self.assertRegex(said, r"step 45: the loss rose to [\d.e+]+ \(median of the 30 logged steps before: 0\.\d+\), gradient norm ")


if __name__ == "__main__":
    main()
