"""Models over integer ids: they train, and ids that the embedding lacks are found before the first step."""
import struct

import support
from support import DATA, USAGE

MODEL = """
name: ids
model: {layers: [{type: embedding, num_embeddings: 5, embedding_dim: 4}, flatten, {type: linear, out_features: 2}]}
data: {train: {type: tensors, path: PATH, inputs: ids, targets: y}}
optimizer: {type: adamw, learning_rate: 0.1}
training: {global_batch_size: 8, micro_batch_size: 4, max_steps: 30}
logging: {logging_steps: 1}
"""


class Embedding(support.DltrainTest):
    def configuration(self, ids):
        samples = [ids[i:i + 3] for i in range(0, len(ids), 3)]
        labels = [int(sample[0] > 1) for sample in samples]
        path = support.save_safetensors(self.folder / "ids.safetensors", {"ids": ("I32", [len(samples), 3], ids),
                                                                          "y": ("I32", [len(samples)], labels)})
        return self.write("ids.yaml", MODEL.replace("PATH", str(path)))

    def test_a_model_over_ids_trains(self):
        ids = [(7 * i + i // 3) % 5 for i in range(48)]
        self.run_dltrain(self.configuration(ids), "--output-dir", self.folder / "run")
        losses = [step["loss"] for step in support.steps(self.folder / "run")]
        self.assertLess(losses[-1], 0.2 * losses[0])

    def test_the_vector_of_a_padding_id_stays_zero(self):
        configuration = self.configuration([(7 * i + i // 3) % 5 for i in range(48)])
        for more in ((), ("-s", "model.layers[0].weight_init={normal: 0.5}")):
            run = self.folder / f"run{len(more)}"
            self.run_dltrain(configuration, "-q", "--output-dir", run, "--max-steps", 3, "-s", "model.layers[0].padding_idx=2", *more)
            weights = support.safetensors(run / "checkpoints" / "latest" / "model.safetensors")["layers.0.weight"]
            values = struct.unpack("<20f", weights[2])
            self.assertEqual([value == 0 for value in values], [8 <= i < 12 for i in range(20)])

    def test_integers_for_a_linear_layer_are_told_to_be_ids(self):
        self.refused(USAGE, self.configuration([1] * 24), "-s", "model.layers=[{reshape: [1, 3]}, {linear: 2}]", "--output-dir", self.folder / "run",
                     says="got i32[4, 1, 3] ('input' has integers, which are ids for an embedding; save them as float32")

    def test_ids_beyond_the_embedding_are_refused_before_the_first_step(self):
        ids = [i % 5 for i in range(48)]
        ids[7] = 5
        self.refused(DATA, self.configuration(ids), "--output-dir", self.folder / "run",
                     says=("sample 2", "id 5 of input does not fit the model's embedding (0 to 4)"))


if __name__ == "__main__":
    support.main()
