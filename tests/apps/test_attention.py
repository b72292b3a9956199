"""A small transformer head against PyTorch's run recorded by scripts/record_golden_attention.py."""
import json

import support
from support import SOURCES, steps

# Relative. PyTorch's own runs in f32 and f64 are at most 5.6e-7 apart; the rest is room for sums in another order.
TOLERANCE = 1e-5

CONFIGURATION = """
name: golden-attention
model:
  init_from: tests/golden/attention/weights.safetensors
  layers:
    - {{type: reshape, shape: [5, 4]}}
    - {{type: class_token}}
    - {{type: position_embedding}}
    - {{type: multi_head_attention, num_heads: 2, causal: {causal}}}
    - {{type: multi_head_attention, num_heads: 2, causal: {causal}}}
    - {{type: flatten}}
    - {{type: linear, out_features: 10}}
loss: {{type: cross_entropy}}
data: {{type: tensors, path: tests/golden/mlp/batches.safetensors, inputs: x, targets: y, shuffle: false}}
optimizer: {{type: adamw, learning_rate: 0.02}}
training: {{global_batch_size: {batch}, max_steps: {steps}}}
logging: {{logging_steps: 1}}
"""


class Attention(support.DltrainTest):
    def test_attention_has_the_trajectory_of_torch(self):
        golden = json.loads((SOURCES / "tests" / "golden" / "attention" / "losses.json").read_text())
        self.assertEqual(sorted(golden["cases"]), ["causal", "vit"])
        for name, case in golden["cases"].items():
            for micro_batch in (golden["batch"], 4):
                configuration = self.write(f"{name}.yaml", CONFIGURATION.format(
                    causal=str(name == "causal").lower(), batch=golden["batch"], steps=golden["steps"]))
                run = self.folder / f"{name}-{micro_batch}"
                self.run_dltrain(configuration, "-q", "--output-dir", run, "-s", f"training.micro_batch_size={micro_batch}")
                lines = steps(run)
                self.assertEqual(len(lines), golden["steps"])
                for i, line in enumerate(lines):
                    for series in ("loss", "grad_norm"):
                        expected = case["f64"][series][i]
                        self.assertLessEqual(abs(line[series] - expected), TOLERANCE * expected, f"{name} {series}, step {i + 1}")


if __name__ == "__main__":
    support.main()
