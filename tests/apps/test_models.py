"""Models as graphs of layers: named inputs, blocks, initial values from data; each as a person meets it."""
import math

import support
from support import USAGE, steps

TRAINING = """
optimizer: {type: sgd, learning_rate: 1.0e-2}
training: {global_batch_size: 4, max_steps: 2}
logging: {logging_steps: 1}
"""


class Models(support.DltrainTest):
    def test_a_model_reads_several_inputs_of_the_data_by_name(self):
        support.save_safetensors(self.folder / "pairs.safetensors",
                                 {"l": ("F32", [4, 2], [0.5, 1.0, -1.0, 2.0] * 2),
                                  "r": ("F32", [4, 3], [1.0, 0.0, 0.25] * 4), "t": ("I64", [4], [0, 1, 1, 0])})
        config = self.write("pairs.yaml", f"""
model:
  layers:
    - {{linear: 5, name: left_part}}
    - {{linear: 5, inputs: right}}
    - add: [left_part, previous]
    - silu
    - linear: 2
data:
  train: {{type: tensors, path: {self.folder}/pairs.safetensors, inputs: {{left: l, right: r}}, targets: t, shuffle: false}}
{TRAINING}""")
        self.run_dltrain(config, "--output-dir", self.folder / "run", "-q")
        losses = [line["loss"] for line in steps(self.folder / "run")]
        self.assertEqual(len(losses), 2)
        self.assertLess(losses[1], losses[0])
        names = support.safetensors(self.folder / "run" / "checkpoints" / "latest" / "model.safetensors")
        self.assertEqual(sorted(names), ["layers.1.bias", "layers.1.weight", "layers.4.bias", "layers.4.weight", "left_part.bias", "left_part.weight"])
        self.refused(USAGE, config, "-s", "model.layers=[linear: 2]", "--output-dir", self.folder / "other", says="no layer reads the data's 'right'")

    def test_the_final_bias_starts_at_the_class_frequencies(self):
        self.write("rows.csv", "1,0\n2,0\n3,0\n4,1\n")
        config = self.write("rows.yaml", f"""
model:
  final_bias_from_data: true
  layers: [linear: 4, relu, {{linear: 2, weight_init: zeros}}]
data: {{train: {{type: csv, path: {self.folder}/rows.csv, target: last, classes: 2}}}}
{TRAINING}""")
        self.run_dltrain(config, "--output-dir", self.folder / "run", "-q")
        entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
        self.assertAlmostEqual(steps(self.folder / "run")[0]["loss"], entropy, places=6)
        self.refused(USAGE, config, "-s", "model.layers=[linear: 2, relu, {linear: {out_features: 2, bias: false}}]",
                     "--output-dir", self.folder / "other", says="does not end in a bias of 2 values")

    def test_the_resolved_configuration_has_the_layers_of_blocks_and_runs_again(self):
        config = self.write("blocks.yaml", f"""
model:
  blocks:
    unit:
      parameters: {{width: , act: relu}}
      layers: [{{linear: $width}}, $act]
  layers: [{{block: unit, width: 8, name: a}}, {{repeat: {{times: 2, layers: [{{residual: [{{block: unit, width: 8}}]}}]}}}}, {{linear: 3, name: fc}}]
data: {{train: {{type: synthetic, shape: [5], classes: 3, samples: 16}}}}
{TRAINING}""")
        self.run_dltrain(config, "--output-dir", self.folder / "first", "-q")
        again = self.folder / "first" / "config.yaml"
        self.assertNotIn("block", again.read_text())
        self.run_dltrain(again, "--output-dir", self.folder / "second", "-q")
        self.assert_same_state(self.folder / "first", self.folder / "second")
        for stated in (config, again):
            self.run_dltrain(stated, "--output-dir", self.folder / "first", "-q", "--resume", "auto", "--max-steps", "3")

    def test_a_mistake_in_a_block_names_the_block_and_its_use(self):
        config = self.write("wrong.yaml", f"""
model:
  blocks:
    unit: {{layers: [{{linear: {{features: 3}}}}]}}
  layers: [{{block: unit}}, {{linear: 3}}]
data: {{train: {{type: synthetic, shape: [5], classes: 3, samples: 16}}}}
{TRAINING}""")
        result = self.refused(USAGE, config, "--output-dir", self.folder / "run", says="wrong.yaml:4:31: error: unknown key 'features'")
        self.assertIn("wrong.yaml:5:20: note: block 'unit' is used here", result.err)
        wrong = self.write("wrong.yaml", f"model: {{type: lama}}\ndata: {{train: {{type: synthetic, shape: [5], classes: 3, samples: 16}}}}\n{TRAINING}")
        self.refused(USAGE, wrong, "--dry-run", says="no architecture is called 'lama'")


if __name__ == "__main__":
    support.main()
