"""logging.prometheus: the newest metrics for the textfile collector of node_exporter."""
import re
import signal

from support import OK, SMALL, STOPPED, USAGE, DltrainTest, main, steps


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

    def test_two_runs_with_one_file_are_told(self):
        text = SMALL.replace("max_steps: 40", "max_steps: 4000000")
        processes = [self.start("train", self.write(f"{name}.yaml", text.replace("name: small", f"name: {name}")), "-q", "--output-dir", self.folder / name,
                                "-s", f"logging.prometheus={self.file}", "-s", "logging.logging_steps=10") for name in ("one", "other")]
        logs = [self.folder / name / "log.txt" for name in ("one", "other")]
        self.wait_for(lambda: all(log.exists() and "logging.prometheus" in log.read_text() for log in logs), "warnings")
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process, own, other in zip(processes, ("one", "other"), ("other", "one")):
            said = self.end(process)
            self.assertEqual(said.code, STOPPED, str(said))
            self.assertEqual(said.err.count("logging.prometheus: "), 1, said)
            self.assertIn(f"metrics.prom is written by the run {other} and by this one ({own})", said.err)
        self.assertEqual(list(self.folder.glob(".tmp*")), [])


if __name__ == "__main__":
    main()
