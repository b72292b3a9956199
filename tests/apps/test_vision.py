"""Small ResNets and a VGG against torchvision's, recorded by scripts/record_golden_vision.py: every loss and gradient norm of 20
steps from the same weights and batches, and the loss in evaluation mode afterwards. Weights and images are made by
formula.py on both sides."""
import json

import formula
import support
from support import SOURCES, steps
from test_golden import CHAOS, FIRST, SMOOTH, distance

GOLDEN = json.loads((SOURCES / "tests" / "golden" / "vision" / "losses.json").read_text())
SMOOTH_CASES = ("resnet18-silu", "vit_b_16-gelu")  # whose f32 and f64 runs agree to 1e-6


class Vision(support.DltrainTest):
    def configuration(self, case, batches):
        path = self.folder / "case.yaml"
        about = ("image", "batch", "steps", "learning_rate", "f32", "f64")
        own = ", ".join(f"{key}: {value}" for key, value in case.items() if key not in about)
        if "hidden_size" not in case:
            own += f", width: {GOLDEN['width']}"
        path.write_text(f"""
model: {{{own}, num_classes: {GOLDEN["classes"]}}}
data:
  train: {{type: tensors, path: {batches}, inputs: x, targets: y, shuffle: false}}
  eval: {{type: tensors, path: {batches}, inputs: x, targets: y}}
optimizer: {{type: sgd, learning_rate: {case["learning_rate"]}, momentum: 0.9, weight_decay: 5.0e-4}}
training: {{global_batch_size: {case["batch"]}, max_steps: {case["steps"]}}}
evaluation: {{samples: {case["batch"]}}}
logging: {{logging_steps: 1}}
""")
        return path

    def agree(self, name):
        case = GOLDEN["cases"][name]
        size = case["image"]
        samples = case["steps"] * case["batch"]
        pixels, labels = formula.batches(samples, [size, size, 3], GOLDEN["classes"])
        support.save_safetensors(self.folder / "batches.safetensors",
                                 {"x": ("F32", [samples, size, size, 3], pixels), "y": ("I64", [samples], labels)})
        config = self.configuration(case, self.folder / "batches.safetensors")
        # The names and shapes of the weights are those of a checkpoint of one step.
        self.run_dltrain(config, "--output-dir", self.folder / "names", "-q", "--max-steps", "1", "-s", "data.eval=null",
                         "-s", "evaluation.samples=null")
        shapes = support.safetensors(self.folder / "names" / "checkpoints" / "latest" / "model.safetensors")
        weights = {tensor: ("F32", shape, formula.weight(tensor, shape)) for tensor, (_, shape, _) in shapes.items()}
        weights["bn1.num_batches_tracked"] = ("I64", [], [7])  # as torch saves it; of no use here
        support.save_safetensors(self.folder / "weights.safetensors", weights)
        self.run_dltrain(config, "--output-dir", self.folder / "run", "-q", "-s", f"model.init_from={self.folder}/weights.safetensors")
        found = steps(self.folder / "run")
        self.assertEqual(len(found), case["steps"])
        worst = 0
        for i, line in enumerate(found):
            for series in ("loss", "grad_norm"):
                f32, f64 = case["f32"][series][: i + 1], case["f64"][series][: i + 1]
                apart = max(distance(a, b) for a, b in zip(f32, f64))
                bound = SMOOTH if name in SMOOTH_CASES else max(SMOOTH, CHAOS * apart)
                if i == 0 and series == "loss":
                    bound = FIRST
                away = distance(line[series], f64[i])
                self.assertLessEqual(away, bound, f"{name} {series}, step {i + 1}")
                worst = max(worst, away if series == "loss" else 0)
        evaluation = [line["eval_loss"] for line in support.metrics(self.folder / "run") if "eval_loss" in line]
        apart = max(distance(a, b) for a, b in zip(case["f32"]["loss"], case["f64"]["loss"]))
        apart = max(apart, distance(case["f32"]["eval_loss"], case["f64"]["eval_loss"]))
        self.assertLessEqual(distance(evaluation[-1], case["f64"]["eval_loss"]),
                             SMOOTH if name in SMOOTH_CASES else max(SMOOTH, CHAOS * apart))
        print(f"{name}: losses within {worst:.1e}")

    def test_a_smooth_resnet18_trains_as_in_torch(self):
        self.agree("resnet18-silu")

    def test_a_resnet18_with_relu_trains_as_in_torch_within_its_chaos(self):
        self.agree("resnet18-relu")

    def test_a_vision_transformer_trains_as_in_torch(self):
        self.agree("vit_b_16-gelu")

    def test_a_vgg_trains_as_in_torch_within_its_chaos(self):
        self.agree("vgg11_bn-silu")

    def test_a_resnet50_trains_as_in_torch_within_its_chaos(self):
        self.agree("resnet50-silu")


if __name__ == "__main__":
    support.main()
