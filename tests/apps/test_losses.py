"""Every loss against PyTorch, recorded by scripts/record_golden_losses.py: three steps and an evaluation whose
last batch is padded, on any cut of the batch; and what evaluations measure of regressions and classes."""
import json
import pathlib
import tempfile

import support
from support import DATA, OK, SOURCES, USAGE, metrics, steps

GOLDEN = SOURCES / "tests" / "golden" / "losses"
CLOSE = 2e-6  # relative: f32 against torch in f64, three steps


class Losses(support.DltrainTest):
    def configuration(self, loss, targets, outputs=4):
        batches = GOLDEN / "batches.safetensors"
        split = f"{{type: tensors, path: {batches}, inputs: x, targets: {targets}, shuffle: false}}"
        return self.write("loss.yaml", f"""
model:
  init_from: {GOLDEN / "weights.safetensors"}
  layers: [{{type: linear, out_features: {outputs}}}]
loss: {json.dumps(loss)}
data: {{train: {split}, eval: {split}}}
optimizer: {{type: sgd, learning_rate: 0.5}}
training: {{global_batch_size: 6, max_steps: 3}}
evaluation: {{samples: 16}}
logging: {{logging_steps: 1}}
""")

    def agree(self, name, case, *arguments):
        run = self.folder / f"{name}-{len(arguments)}-{arguments[-1] if arguments else ''}"
        self.run_dltrain(self.configuration(case["loss"], case["targets"]), "-q", "--overwrite", "--output-dir", run, *arguments)
        found = [line["loss"] for line in steps(run)]
        found.append([line["eval_loss"] for line in metrics(run) if "eval_loss" in line][-1])
        expected = case["losses"] + [case["eval_loss"]]
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            self.assertLessEqual(abs(a - b), CLOSE * abs(b), f"{name} {arguments}, number {i}: {a}, torch {b}")
        return found

    def test_every_loss_is_that_of_torch(self):
        golden = json.loads((GOLDEN / "losses.json").read_text())
        for name, case in golden["cases"].items():
            self.agree(name, case)
        listed = self.run_dltrain("list", "losses").out.splitlines()
        # distillation needs a teacher: tests/apps/test_distillation.py compares it with its definition.
        self.assertEqual({line.split()[0] for line in listed if line.strip()} - {"distillation"},
                         {case["loss"]["type"] for case in golden["cases"].values()})

    def test_losses_do_not_depend_on_how_the_batch_is_cut(self):
        cases = json.loads((GOLDEN / "losses.json").read_text())["cases"]
        for name in ("weights-smoothing", "ignore-balanced", "soft-weights-smoothing", "kl-mean", "binary-pos-weight", "mse"):
            self.agree(name, cases[name], "-s", "training.micro_batch_size=2")
            self.agree(name, cases[name], "--nproc-per-node", 2)

    def test_targets_that_do_not_fit_the_loss_are_refused(self):
        self.refused(DATA, self.configuration({"type": "mse"}, "labels"), says="targets are i32, the loss mse expects f32")
        self.refused(DATA, self.configuration({"type": "mse"}, "numbers", outputs=3), says="a sample has 4 targets")
        self.refused(USAGE, self.configuration({"type": "cross_entropy", "class_weights": [1, 2]}, "labels"),
                     says="2 class_weights, the model has 4 classes")
        self.refused(USAGE, self.configuration({"type": "cross_entropy", "balanced_class_weights": True}, "distributions"),
                     says="needs integer labels")
        self.refused(USAGE, self.configuration({"type": "cross_entropy"}, "distributions", outputs=1), says="needs at least two logits")
        # Numbers where shares of the classes should be, and shares that are not all of one.
        for row, says in (((0.2, 0.3, 1.7, 0.1), "target 1.7 is not the share of a class"), ((0.2, 0.3, 0.1, 0.1), "add up to 0.7, not to 1"),
                          ((0.2, 0.3, -0.5, 1), "target -0.5 is not the share of a class")):
            rows = [(0.25, 0.25, 0.25, 0.25), (0, 1, 0, 0), row]
            support.save_safetensors(self.folder / "t.safetensors", {
                "x": ("F32", [3, 2], range(6)), "y": ("F32", [3, 4], sum(rows, ()))})
            for loss in ("cross_entropy", "kl_divergence"):
                self.refused(DATA, self.write("soft.yaml", f"""
model: {{layers: [linear: 4]}}
loss: {loss}
data: {{type: tensors, path: {self.folder}/t.safetensors, inputs: x, targets: y}}
optimizer: {{type: sgd, learning_rate: 0.5}}
training: {{global_batch_size: 3, max_steps: 1}}
"""), says=[says, "t.safetensors, sample 2"])
        data = self.write("labels.csv", "0.1,0\n0.2,1\n0.3,0.37\n")
        self.refused(DATA, self.write("labels.yaml", f"""
model: {{layers: [linear: 2]}}
data: {{type: csv, path: {data}}}
optimizer: {{type: sgd, learning_rate: 0.5}}
training: {{global_batch_size: 3, max_steps: 1}}
"""), says=["labels.csv:3", "the label 0.37 is not an integer"])
        data = self.write("shares.csv", "0.1,0\n0.2,1\n0.3,1.25\n")
        self.refused(DATA, self.write("binary.yaml", f"""
model: {{layers: [linear: 1]}}
loss: {{type: binary_cross_entropy}}
data: {{type: csv, path: {data}, task: regression}}
optimizer: {{type: sgd, learning_rate: 0.5}}
training: {{global_batch_size: 3, max_steps: 1}}
"""), says="shares.csv:3: target 1.25 is not within 0 to 1")


class Evaluations(support.DltrainTest):
    def regression(self):
        """y = x0 + x1 exactly, which a linear layer learns; the last batch of an evaluation of 21 samples is padded."""
        x = [[((7 * i) % 11) / 11 - 0.5, ((5 * i) % 13) / 13 - 0.5] for i in range(70)]
        lines = [f"{a},{b},{a + b}" for a, b in x]
        return self.write("numbers.csv", "\n".join(lines) + "\n")

    def test_a_regression_is_learned_and_measured(self):
        run = self.folder / "run"
        configuration = self.write("regression.yaml", f"""
model: {{layers: [{{type: linear, out_features: 1}}]}}
loss: {{type: mse}}
data: {{type: csv, path: {self.regression()}, task: regression, eval_fraction: 0.3}}
optimizer: {{type: adamw, learning_rate: 0.05, weight_decay: 0}}
training: {{global_batch_size: 16, max_steps: 300}}
evaluation: {{metrics: [mae, mse, rmse, r2]}}
""")
        self.run_dltrain(configuration, "-q", "--output-dir", run)
        summary = json.loads((run / "summary.json").read_text())
        self.assertLess(summary["eval_mae"], 1e-2)
        self.assertLess(abs(summary["eval_mse"] - summary["eval_loss"]), 1e-6 * summary["eval_loss"])
        self.assertLess(abs(summary["eval_rmse"] ** 2 - summary["eval_mse"]), 1e-6 * summary["eval_mse"])
        self.assertGreater(summary["eval_r2"], 0.999)
        self.run_dltrain("check", configuration, code=OK)

    def classes(self, *arguments):
        run = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "-s", "evaluation.metrics=[accuracy, top_2, f1, precision, recall, confusion]",
                         *arguments, env={"OMP_NUM_THREADS": "1"})
        return run, json.loads((run / "classes.json").read_text()), [line for line in metrics(run) if "eval_loss" in line][-1]

    def test_scores_of_classes_are_those_of_the_confusion_matrix_on_any_number_of_ranks(self):
        run, table, line = self.classes()
        matrix = table["confusion"]
        self.assertEqual(sum(map(sum, matrix)), 40)
        self.assertAlmostEqual(sum(matrix[k][k] for k in range(4)) / 40, line["eval_accuracy"], places=7)
        scores = []
        for k in range(4):
            wanted, taken = sum(matrix[k]), sum(row[k] for row in matrix)
            scores.append(2 * matrix[k][k] / (wanted + taken))
            self.assertAlmostEqual(table["classes"][k]["f1"], scores[-1], places=12)
            self.assertEqual(table["classes"][k]["support"], wanted)
        self.assertAlmostEqual(line["eval_f1_macro"], sum(scores) / 4, places=7)
        self.assertGreaterEqual(line["eval_top_2"], line["eval_accuracy"])
        _, ranks, _ = self.classes("--nproc-per-node", 2, "-s", "training.micro_batch_size=8")
        self.assertEqual(ranks["confusion"], self.classes("-s", "training.micro_batch_size=8", "-s", "parallelism.data=1")[1]["confusion"])
        result = self.folder / "eval.json"
        out = self.run_dltrain("eval", "--checkpoint", run, "--result", result).out
        self.assertIn("weighted mean", out)
        self.assertEqual(json.loads(result.read_text())["confusion"], matrix)
        self.assertIn("confusion: a row for each class", out)
        rows = out[out.index("confusion:"):].splitlines()[1:5]
        self.assertEqual([list(map(int, row.split()[1:])) for row in rows], matrix)
        # The run selects its best checkpoint by a metric that is not wanted here.
        self.run_dltrain("eval", run, "-s", "evaluation.metrics=[confusion]", "-s", "checkpoint.metric=accuracy")

    def test_metrics_that_cannot_be_are_refused_at_their_place(self):
        self.refused(USAGE, self.small(), "-s", "evaluation.metrics=[acuracy]", says="unknown metric 'acuracy'; did you mean 'accuracy'?")
        self.refused(USAGE, self.small(), "-s", "evaluation.metrics=mae", says="mae cannot be computed: targets are classes")
        self.refused(USAGE, self.small(), "-s", "evaluation.metrics=top_9", says="top_9 of 4 classes")


if __name__ == "__main__":
    support.main()
