"""logging.prometheus: the newest metrics for the textfile collector of node_exporter."""
import re

from support import OK, SMALL, USAGE, DltrainTest, main, steps


class Prometheus(DltrainTest):
    def setUp(self):
        super().setUp()
        self.config = self.write("small.yaml", SMALL)
        self.file = self.folder / "metrics.prom"

    def train(self, *more, code=OK):
        return self.run_dltrain("train", self.config, "-q", "--output-dir", self.folder / "run", "--overwrite", "-s", f"logging.prometheus={self.file}",
                                "-s", "logging.logging_steps=1", *more, code=code)

    def test_the_file_has_the_last_values(self):
        self.train("-s", 'name=a "quoted" name')
        text = self.file.read_text()
        self.assertEqual(text.splitlines()[0], "# Written by dltrain")
        values = dict(re.findall(r'^(\w+)\{run="a \\"quoted\\" name"\} (\S+)$', text, re.M))
        self.assertEqual(len(values), text.count("# TYPE "))
        last = steps(self.folder / "run")[-1]
        for key in ("step", "loss", "learning_rate", "grad_norm"):
            self.assertEqual(float(values[f"dltrain_{key}"]), last[key])
        self.assertEqual(list(self.folder.glob("*.prom*")), [self.file])
        self.train()  # over its own file

    def test_foreign_files_are_kept_and_a_failing_disk_stops_no_run(self):
        self.train()
        metrics = (self.folder / "run" / "metrics.jsonl").read_text()
        self.file.write_text("node_load1 3\n")
        self.assertIn("metrics.prom exists and is not a file of dltrain's metrics", self.train(code=USAGE).err)
        self.assertEqual(self.file.read_text(), "node_load1 3\n")
        self.assertEqual((self.folder / "run" / "metrics.jsonl").read_text(), metrics)  # --overwrite has removed nothing
        self.file = self.folder / "nowhere" / "metrics.prom"
        said = self.train().err
        self.assertEqual(said.count("logging.prometheus: "), 1, said)


if __name__ == "__main__":
    main()
