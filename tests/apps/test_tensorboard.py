"""Event files of runs: framing and checksums by the format's definition, content with TensorBoard's own reader where
that package is installed; and that telling TensorBoard changes no bit of the weights."""
import importlib.util
import struct
import unittest

import support
from support import SMALL, USAGE, steps

IMAGES = SMALL.replace("shape: [12]", "shape: [6, 5, 3]").replace("layers:\n", "layers:\n    - flatten\n")
ON = ("-s", "logging.tensorboard=true", "-s", "logging.histogram_steps=20")


def crc32c(data, table=[]):
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        found.append(data[12 : 12 + length])
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(found[-1])
        data = data[16 + length :]
    return found


def event_file(run):
    (path,) = (run / "tensorboard").iterdir()
    return path


class TensorBoard(support.DltrainTest):
    def test_records_are_whole_and_the_weights_are_those_of_a_run_without(self):
        path = self.small(IMAGES)
        run, plain = self.folder / "run", self.folder / "plain"
        self.run_dltrain(path, "-q", "--output-dir", run, *ON)
        self.run_dltrain(path, "-q", "--output-dir", plain)
        self.assert_same_state(run, plain)
        self.assertFalse((plain / "tensorboard").exists())
        found = records(event_file(run))
        self.assertIn(b"brain.Event:2", found[0])
        # Version, hyperparameters, configuration, images; 8 scalars a step; 4 of the evaluation; weights and gradients of 4
        # tensors, twice; the end.
        self.assertEqual(len(found), 4 + 40 * 8 + 4 + 2 * 8 + 1)

    def test_a_resumed_run_has_each_step_once(self):
        path = self.small(SMALL.replace("type: cosine", "type: constant"))
        run = self.folder / "run"
        self.run_dltrain(path, "-q", "--output-dir", run, *ON)
        whole = len(records(event_file(run)))
        self.run_dltrain(path, "-q", "--output-dir", run, *ON, "--resume", run / "checkpoints" / "step-000020", "--overwrite")
        self.assertEqual(len(records(event_file(run))), whole)

    def test_histograms_need_tensorboard(self):
        self.refused(USAGE, self.small(), "-s", "logging.histogram_steps=5", says="needs tensorboard: true")

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "the package tensorboard is not installed")
    def test_tensorboard_reads_what_was_written(self):
        from tensorboard.backend.event_processing import event_accumulator

        run = self.folder / "run"
        self.run_dltrain(self.small(IMAGES), "-q", "--output-dir", run, *ON)
        read = event_accumulator.EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
        read.Reload()
        tags = read.Tags()
        for line, scalar in zip(steps(run), read.Scalars("train/loss"), strict=True):
            self.assertEqual(line["step"], scalar.step)
            self.assertAlmostEqual(line["loss"], scalar.value, delta=1e-6)
        self.assertIn("eval/accuracy", tags["scalars"])
        for tag in ("weights/layers.1.weight", "gradients/layers.4.bias"):
            histograms = read.Histograms(tag)
            self.assertEqual([h.step for h in histograms], [20, 40])
            self.assertEqual(histograms[0].histogram_value.num, sum(histograms[0].histogram_value.bucket))
        (image,) = read.Images("train/images")
        png = image.encoded_image_string
        self.assertTrue(png.startswith(b"\x89PNG"))
        self.assertEqual(struct.unpack(">II", png[16:24]), (image.width, image.height))
        # 16 images, each pixel enlarged 16 times, with captions and gaps
        self.assertEqual((image.width, image.height), (4 * (5 * 16 + 4) + 4, 4 * (6 * 16 + 18) + 4))
        (text,) = read.Tensors("configuration")
        self.assertIn(b"global_batch_size: 16", text.tensor_proto.string_val[0])
        self.assertEqual(read.summary_metadata["configuration"].plugin_data.plugin_name, "text")
        from tensorboard.plugins.hparams import metadata

        start = metadata.parse_session_start_info_plugin_data(read.summary_metadata["_hparams_/session_start_info"].plugin_data.content)
        hparams = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
        self.assertEqual(hparams["optimizer.learning_rate"], 0.01)
        self.assertEqual(hparams["lr_scheduler.type"], "cosine")
        self.assertEqual(hparams["training.global_batch_size"], 16)
        self.assertNotIn("training.on_non_finite", hparams)
        end = metadata.parse_session_end_info_plugin_data(read.summary_metadata["_hparams_/session_end_info"].plugin_data.content)
        self.assertEqual((end.status, end.end_time_secs >= start.start_time_secs), (1, True))


if __name__ == "__main__":
    support.main()
