"""Weights go to torchvision by name: where torch and torchvision are installed, what dltrain trained says the same
there. What torchvision calls its tensors is compared without it in tests/nn/architectures.cpp."""
import importlib.util
import json
import unittest

import support

INSTALLED = all(importlib.util.find_spec(name) for name in ("torch", "torchvision", "safetensors"))
SAMPLES, SIZE, CLASSES = 12, 64, 7


@unittest.skipUnless(INSTALLED, "torch and torchvision are not installed")
class Torchvision(support.DltrainTest):
    def agree(self, kind):
        import torch
        import torchvision
        from safetensors.torch import load_file, save_file

        torch.manual_seed(1)
        x = torch.randn(SAMPLES, SIZE, SIZE, 3)
        data = self.folder / "x.safetensors"
        save_file({"x": x, "y": (torch.arange(SAMPLES) % CLASSES).int()}, data)
        split = f"{{type: tensors, path: {data}, inputs: x, targets: y}}"
        config = self.write(f"{kind}.yaml", f"""
model: {{type: {kind}, num_classes: {CLASSES}}}
data: {{train: {split}, eval: {split}}}
optimizer: {{type: sgd, learning_rate: 0.01}}
training: {{global_batch_size: 4, max_steps: 3}}
""")
        run, out = self.folder / kind, self.folder / "out.jsonl"
        self.run_dltrain(config, "-q", "--output-dir", run)
        self.run_dltrain("predict", "--checkpoint", run, "-o", out, "--top-k", CLASSES)
        model = getattr(torchvision.models, kind)(num_classes=CLASSES)
        state = load_file(run / "checkpoints" / "latest" / "model.safetensors")
        missing, unexpected = model.load_state_dict(state, strict=False)
        self.assertEqual(unexpected, [])
        self.assertEqual([name for name in missing if not name.endswith("num_batches_tracked")], [])
        model.eval()
        with torch.no_grad():
            expected = torch.softmax(model(x.permute(0, 3, 1, 2)), 1)
        for line in out.read_text().splitlines():
            row = json.loads(line)
            for entry in row["top"]:
                self.assertAlmostEqual(entry["probability"], expected[row["sample"], int(entry["class"])].item(), delta=2e-5)

    def test_a_trained_resnet18_says_the_same_in_torchvision(self):
        self.agree("resnet18")

    def test_a_trained_resnet50_says_the_same_in_torchvision(self):
        self.agree("resnet50")


if __name__ == "__main__":
    support.main()
