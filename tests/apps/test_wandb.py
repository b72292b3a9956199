"""logging.wandb: the files of Weights & Biases' offline mode, read by the definition of the format, and by the package's own
classes where it is installed."""
import json
import re
import struct
import zlib

from support import SMALL, STOPPED, USAGE, DltrainTest, main, metrics

BLOCK = 32768


def records(path):
    """The records of a .wandb file: LevelDB's log format with another checksum."""
    data = path.read_bytes()
    assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
    at, parts = 7, []
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        check, length, kind = struct.unpack("<IHB", data[at: at + 7])
        part = data[at + 7: at + 7 + length]
        assert check == zlib.crc32(part, zlib.crc32(bytes([kind]))), at
        assert (at + 6) // BLOCK == (at + 6 + length) // BLOCK or (at + 7 + length) % BLOCK == 0, "a part crosses a block"
        at += 7 + length
        parts.append(part)
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []
    assert at == len(data) and not parts


def fields(message):
    """[(number, value)] of a message of protocol buffers: integers and bytes."""
    at, out = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            out.append((key >> 3, varint()))
        else:
            assert key & 7 == 2, key
            length = varint()
            out.append((key >> 3, message[at: at + length]))
            at += length
    return out


def one(message, number, default=None):
    return next((value for field, value in fields(message) if field == number), default)


class Wandb(DltrainTest):
    def train(self, *arguments, text=SMALL, logging="{logging_steps: 1, wandb: mine}", **options):
        text = text.replace("logging: {logging_steps: 1}", f"logging: {logging}")
        return self.run_dltrain("train", self.write("wandb.yaml", text), "-q", "--output-dir", self.folder / "run", *arguments, **options)

    def file(self):
        found = list((self.folder / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0].parent.name, r"^offline-run-\d{8}_\d{6}-" + re.escape(found[0].stem.removeprefix("run-")) + "$")
        return found[0]

    def history(self):
        rows = {}
        for record in records(self.file()):
            history = one(record, 2)
            if history is not None:
                row = {one(item, 2).decode(): json.loads(one(item, 16)) for number, item in fields(history) if number == 1}
                self.assertEqual(one(one(history, 2), 1), row["_step"])
                rows[row["_step"]] = row
        return rows

    def check_history(self):
        rows = self.history()
        wanted = {}
        for line in metrics(self.folder / "run"):
            wanted.setdefault(line["step"], {}).update(line)
        self.assertEqual(sorted(rows), sorted(wanted))
        for step, line in wanted.items():
            for key, value in line.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool) and key not in ("step", "time"):
                    self.assertEqual(rows[step][key], value, key)
            self.assertAlmostEqual(rows[step]["_timestamp"], line["time"], places=3)

    def test_every_line_of_the_metrics_is_there_and_the_configuration(self):
        about = 'experiment: {notes: "é <b>", tags: [quick, "a b"]}\n'
        self.train(text=SMALL + about)
        self.check_history()
        all_records = list(records(self.file()))
        self.assertEqual([one(record, 1) for record in all_records], list(range(1, len(all_records) + 1)))
        run = one(all_records[1], 17)
        self.assertEqual((one(run, 3), one(run, 8), one(run, 9).decode()), (b"mine", b"small", "é <b>"))
        self.assertEqual([value for number, value in fields(run) if number == 10], [b"quick", b"a b"])
        config = {one(item, 1).decode(): json.loads(one(item, 16)) for number, item in fields(one(run, 4)) if number == 1}
        self.assertEqual((config["optimizer.learning_rate"], config["model.layers[1].type"], config["seed"]), (0.01, "gelu", 7))
        self.assertEqual(one(one(all_records[-1], 18), 1), 0)

    def test_a_resumed_run_is_one_run_without_the_steps_that_were_lost(self):
        self.train("--stop-at", 13, code=STOPPED)
        name = self.file()
        self.assertEqual(one(one(list(records(name))[-1], 18), 1), STOPPED)
        self.train("--resume", "auto")
        self.assertEqual(self.file(), name)
        self.check_history()

    def test_long_records_are_cut_at_the_borders_of_blocks(self):
        self.train("--max-steps", 400, text=SMALL + f"experiment: {{notes: {'x' * 100000}}}\n")
        self.check_history()
        self.assertGreater(self.file().stat().st_size, 5 * BLOCK)

    def test_a_failure_of_the_tracker_stops_no_run(self):
        (self.folder / "run").mkdir()
        self.train("--stop-at", 5, code=STOPPED, logging="{logging_steps: 1}")
        (self.folder / "run" / "wandb").write_text("mine")
        said = self.train("--resume", "auto").err
        self.assertIn("nothing more is written for wandb", said)
        self.assertEqual((self.folder / "run" / "wandb").read_text(), "mine")
        self.assertTrue((self.folder / "run" / "summary.json").exists())

    def test_mistakes(self):
        self.refused(USAGE, "train", self.write("x.yaml", SMALL.replace("logging_steps: 1}", "wandb: {mode: online, project: a}}")), says="offline")
        self.refused(USAGE, "train", self.write("x.yaml", SMALL.replace("logging_steps: 1}", "wandb: {entity: a}}")), says="project")

    def test_the_package_reads_it(self):
        try:
            from wandb.proto import wandb_internal_pb2
        except ImportError:
            self.skipTest("the package wandb is not installed")
        self.train()
        kinds = []
        for bytes_of in records(self.file()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(bytes_of)
            kinds.append(record.WhichOneof("record_type"))
        self.assertEqual(kinds[:2], ["header", "run"])
        self.assertEqual(kinds.count("history"), 40)
        self.assertEqual(kinds[-1], "exit")


if __name__ == "__main__":
    main()
