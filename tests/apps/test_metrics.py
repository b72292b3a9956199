"""Metrics of evaluations are scikit-learn's: tests/golden/metrics.json, by scripts/record_golden_metrics.py."""
import json

import support
from support import SOURCES, save_safetensors


class Metrics(support.DltrainTest):
    def evaluated(self, case):
        """What `eval --result` says of outputs that the model only passes on."""
        outputs, targets = case["outputs"], case["targets"]
        n, width = len(outputs), len(outputs[0])
        flat = [x for row in outputs for x in row]
        labels = isinstance(targets[0], int)
        wanted = targets if labels else [x for row in targets for x in row]
        data = save_safetensors(self.folder / "data.safetensors", {
            "x": ("F32", [n, width], flat), "y": ("I64", [n], wanted) if labels else ("F32", [n, width], wanted)})
        identity = [float(i == j) for i in range(width) for j in range(width)]
        weights = save_safetensors(self.folder / "identity.safetensors", {
            "same.weight": ("F32", [width, width], identity), "same.bias": ("F32", [width], [0.0] * width)})
        run, result = self.folder / case["name"], self.folder / "result.json"
        config = self.write("exp.yaml", f"""
model: {{layers: [{{linear: {width}, name: same}}], init_from: {weights}}}
loss: {case["loss"]}
data: {{type: tensors, path: {data}, inputs: x, targets: y, train: {{}}, eval: {{}}}}
optimizer: {{type: sgd, learning_rate: 0}}
training: {{global_batch_size: 5, max_steps: 1}}
evaluation: {{metrics: {json.dumps(case["metrics"])}}}
""")
        self.run_dltrain(config, "-q", "--output-dir", run)
        said = self.run_dltrain("eval", "--checkpoint", run, "--result", result).out
        return json.loads(result.read_text()), said

    def test_every_metric_is_that_of_scikit_learn(self):
        for case in json.loads((SOURCES / "tests" / "golden" / "metrics.json").read_text()):
            found, said = self.evaluated(case)
            with self.subTest(case["name"]):
                for name, value in case["expected"].items():
                    self.assertAlmostEqual(found[f"eval_{name}"], value, delta=1e-6 * max(1, abs(value)), msg=name)
                self.assertEqual(found.get("confusion"), case.get("confusion"))
                for row, expected in zip(found.get("classes", []), case.get("classes", []), strict=True):
                    self.assertEqual((row["class"], row["support"]), (expected["class"], expected["support"]))
                    for score in ("precision", "recall", "f1"):
                        self.assertAlmostEqual(row[score], expected[score], delta=1e-9)
                    self.assertRegex(said, rf"(?m)^{row['class']} +{expected['precision']:.4f} +{expected['recall']:.4f} +{expected['f1']:.4f} +{expected['support']}$")

    def test_a_binary_loss_of_one_channel_has_the_classes_0_and_1_of_all_pixels(self):
        logits, targets = [3, -1, 2, -2, 1, -3, -1, 4], [1, 0, 1, 0, 1, 1, 0, 1]
        data = save_safetensors(self.folder / "data.safetensors", {"x": ("F32", [2, 2, 2, 1], logits), "y": ("F32", [2, 2, 2, 1], targets)})
        weights = save_safetensors(self.folder / "identity.safetensors", {"same.weight": ("F32", [1, 1, 1, 1], [1.0]), "same.bias": ("F32", [1], [0.0])})
        config = self.write("exp.yaml", f"""
model: {{layers: [{{conv2d: {{out_channels: 1, kernel_size: 1}}, name: same}}], init_from: {weights}}}
loss: binary_cross_entropy
data: {{type: tensors, path: {data}, inputs: x, targets: y, train: {{}}, eval: {{}}}}
optimizer: {{type: sgd, learning_rate: 0}}
training: {{global_batch_size: 2, max_steps: 1}}
evaluation: {{metrics: [accuracy, f1, confusion]}}
""")
        run, result = self.folder / "run", self.folder / "result.json"
        self.run_dltrain(config, "-q", "--output-dir", run)
        said = self.run_dltrain("eval", run, "--result", result).out
        found = json.loads(result.read_text())
        self.assertEqual([(row["class"], row["support"]) for row in found["classes"]], [("0", 3), ("1", 5)])
        self.assertEqual(found["confusion"], [[3, 0], [1, 4]])
        self.assertAlmostEqual(found["eval_accuracy"], 7 / 8)
        self.assertAlmostEqual(found["eval_f1_macro"], (6 / 7 + 8 / 9) / 2)
        self.assertIn("confusion: a row for each class of the targets", said)


if __name__ == "__main__":
    support.main()
