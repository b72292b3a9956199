"""Ranks that share state (parallelism.zero_stage) or layers (parallelism.tensor), and reductions in a fixed order, as processes. What they
compute is swept over layouts in tests/run/layouts.cpp and zero.cpp, with threads as ranks."""
import json
import re
import socket

import support
from launching import free_port
from support import OK, SMALL, SOURCES, STORAGE, USAGE, checkpoints, steps

GOLDEN = "tests/golden/language"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
SMALL_UNITS = ("-s", "parallelism.bucket_mb=0.004")  # so that there are several


class Zero(support.DltrainTest):
    def train(self, configuration, folder, *arguments, ranks=1, code=OK):
        run = self.folder / folder
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--nproc-per-node", ranks, *arguments, env=ONE_THREAD, code=code)
        return run

    def test_a_fixed_reduction_has_the_same_bits_on_1_2_and_4_ranks(self):
        configuration = SOURCES / GOLDEN / "gpt2.yaml"
        fixed = ("-s", "training.reduction=fixed", "-s", "training.micro_batch_size=1")
        alone = self.train(configuration, "alone", *fixed)
        for ranks in (2, 4):
            shared = self.train(configuration, f"ranks{ranks}", *fixed, ranks=ranks)
            self.assert_same_state(alone, shared)
            self.assertEqual([(line["loss"], line["grad_norm"]) for line in steps(alone)],
                             [(line["loss"], line["grad_norm"]) for line in steps(shared)])

    def test_every_stage_has_the_trajectory_of_torch(self):
        golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())["cases"]["gpt2"]["f64"]
        for ranks, stage in ((2, 1), (4, 2), (2, 3)):
            run = self.train(SOURCES / GOLDEN / "gpt2.yaml", f"{ranks}-{stage}", "-s", f"parallelism.zero_stage={stage}",
                             *SMALL_UNITS, ranks=ranks)
            self.assert_trajectory(run, golden, f"stage {stage} on {ranks} ranks")

    def test_ranks_without_a_shared_run_folder_are_told_before_the_first_step(self):
        """As on two nodes with disks of their own, or started from different folders."""
        port = str(free_port())
        started = []
        for rank in (0, 1):
            (self.folder / str(rank)).mkdir()
            started.append(self.start(self.small(), "--output-dir", "run", "-s", "parallelism.zero_stage=2", "-s", "parallelism.join_timeout=2",
                                      cwd=self.folder / str(rank),
                                      env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}))
        results = [self.end(process) for process in started]
        self.assertEqual([result.code for result in results], [STORAGE, STORAGE], "\n".join(map(str, results)))
        self.assertIn("does not see the run folder run of rank 0", results[1].err)
        self.assertFalse((self.folder / "0" / "run" / "metrics.jsonl").exists())

    def test_saved_on_4_ranks_in_stage_3_it_goes_on_in_any_layout(self):
        configuration = self.small(SMALL.replace("global_batch_size: 16", "global_batch_size: 24"))
        whole = self.train(configuration, "whole", "-s", "parallelism.zero_stage=3", *SMALL_UNITS,
                           "-s", "checkpoint.save_total_limit=0", ranks=4)
        self.assertEqual(checkpoints(whole), [f"step-{step:06}" for step in (10, 20, 30, 40)])
        saved = whole / "checkpoints" / "step-000020"
        parts = sorted(path.name for path in saved.glob("model-*.safetensors"))
        self.assertEqual(parts, [f"model-{i:05}-of-00004.safetensors" for i in range(1, 5)])
        index = json.loads((saved / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(sorted(index), ["layers.0.bias", "layers.0.weight", "layers.3.bias", "layers.3.weight"])
        expected = steps(whole)[20:]
        for ranks, stage in ((1, 0), (2, 1), (3, 2), (4, 3), (2, 0)):
            run = self.train(configuration, f"on-{ranks}-{stage}", "-s", f"parallelism.zero_stage={stage}", *SMALL_UNITS,
                             "--resume", saved, ranks=ranks)
            found = steps(run)
            self.assertEqual([line["step"] for line in found], list(range(21, 41)))
            for line, other in zip(found, expected, strict=True):
                self.assertLessEqual(abs(line["loss"] - other["loss"]), 1e-5 * other["loss"], f"{ranks} ranks, stage {stage}")
        # The same layout goes on with the same bits.
        self.assertEqual([line["loss"] for line in steps(self.folder / "on-4-3")], [line["loss"] for line in expected])
        # A checkpoint in parts serves those who only use the model.
        self.run_dltrain("eval", "--checkpoint", whole)

    def test_state_of_whole_tensors_goes_on_in_any_layout(self):
        text = SMALL.replace("global_batch_size: 16", "global_batch_size: 24")
        for name, optimizer in (("lamb", "{type: lamb, learning_rate: 0.01}"),
                                ("adafactor", "{type: adafactor, learning_rate: 0.01}")):
            configuration = self.small(re.sub(r"(?m)^optimizer: .*$", f"optimizer: {optimizer}", text))
            averages = ("-s", "training.ema={decay: 0.5}", *SMALL_UNITS, "-s", "checkpoint.save_total_limit=0")
            whole = self.train(configuration, name, "-s", "parallelism.zero_stage=3", *averages, ranks=4)
            expected = steps(whole)[20:]
            for ranks, stage in ((1, 0), (3, 2), (4, 3)):
                run = self.train(configuration, f"{name}-{ranks}-{stage}", "-s", f"parallelism.zero_stage={stage}", *averages,
                                 "--resume", whole / "checkpoints" / "step-000020", ranks=ranks)
                for line, other in zip(steps(run), expected, strict=True):
                    self.assertLessEqual(abs(line["loss"] - other["loss"]), 1e-5 * other["loss"], f"{ranks} ranks, stage {stage}")
            self.assertEqual([line["loss"] for line in steps(self.folder / f"{name}-4-3")], [line["loss"] for line in expected])

    def test_groups_of_two_have_the_trajectory_of_torch(self):
        golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())["cases"]["gpt2"]["f64"]
        for stage in (1, 2, 3):
            run = self.train(SOURCES / GOLDEN / "gpt2.yaml", f"groups-{stage}", "-s", f"parallelism.zero_stage={stage}",
                             "-s", "parallelism.zero_shard_size=2", *SMALL_UNITS, ranks=4)
            self.assert_trajectory(run, golden, f"stage {stage} in groups of 2")

    def test_shards_of_layers_have_the_trajectory_of_torch(self):
        golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())["cases"]["gpt2"]["f64"]
        for ranks, stage in ((2, 0), (4, 1)):
            run = self.train(SOURCES / GOLDEN / "gpt2.yaml", f"tensor-{ranks}", "-s", "parallelism.tensor=2",
                             "-s", f"parallelism.zero_stage={stage}", *SMALL_UNITS, ranks=ranks)
            self.assert_trajectory(run, golden, f"{ranks} ranks")

    def test_saved_in_shards_of_layers_it_goes_on_on_one_rank_and_back(self):
        tensor = ("-s", "parallelism.tensor=2", "-s", "checkpoint.save_total_limit=0")
        whole = self.train(self.small(), "tensor", *tensor, ranks=2)
        alone = self.train(self.small(), "alone", "-s", "checkpoint.save_total_limit=0", "--resume",
                           whole / "checkpoints" / "step-000010")
        back = self.train(self.small(), "back", *tensor, "--resume", alone / "checkpoints" / "step-000020", ranks=4)
        expected = steps(whole)
        for run, first in ((alone, 10), (back, 20)):
            for line, other in zip(steps(run), expected[first:], strict=True):
                self.assertLessEqual(abs(line["loss"] - other["loss"]), 1e-5 * other["loss"])
        self.run_dltrain("eval", "--checkpoint", whole)
        self.run_dltrain("plan", self.small(), *tensor, "--world", "8")

    def test_saved_in_groups_it_goes_on_in_any_layout_and_back(self):
        configuration = self.small(SMALL.replace("global_batch_size: 16", "global_batch_size: 24"))

        def layout(stage, group):
            return ("-s", f"parallelism.zero_stage={stage}", "-s", f"parallelism.zero_shard_size={group}", *SMALL_UNITS)

        groups = self.train(configuration, "groups", *layout(3, 2), "-s", "checkpoint.save_total_limit=0", ranks=4)
        saved = groups / "checkpoints" / "step-000020"
        self.assertEqual(len(list(saved.glob("model-*.safetensors"))), 4)
        expected = steps(groups)[20:]
        for ranks, stage, group in ((1, 0, "all"), (1, 3, 2), (2, 1, "all"), (3, 2, "all"), (4, 3, "all"), (4, 1, 2), (4, 3, 2)):
            run = self.train(configuration, f"on-{ranks}-{stage}-{group}", *layout(stage, group), "--resume", saved, ranks=ranks)
            found = steps(run)
            self.assertEqual([line["step"] for line in found], list(range(21, 41)))
            for line, other in zip(found, expected, strict=True):
                self.assertLessEqual(abs(line["loss"] - other["loss"]), 1e-5 * other["loss"], f"{ranks} ranks, stage {stage}, {group}")
        # The same layout goes on with the same bits.
        self.assertEqual([line["loss"] for line in steps(self.folder / "on-4-3-2")], [line["loss"] for line in expected])
        # From one rank into groups.
        alone = self.train(configuration, "alone", "-s", "checkpoint.save_total_limit=0")
        back = self.train(configuration, "back", *layout(2, 2), "--resume", alone / "checkpoints" / "step-000020", ranks=4)
        for line, other in zip(steps(back), steps(alone)[20:], strict=True):
            self.assertLessEqual(abs(line["loss"] - other["loss"]), 1e-5 * other["loss"], "from one rank into groups")

    def test_the_ranks_of_a_node_are_a_group(self):
        configuration = self.small()
        whole = self.train(configuration, "whole", "-s", "parallelism.zero_stage=2", "-s", "parallelism.zero_shard_size=2",
                           *SMALL_UNITS, ranks=4)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        nodes = [self.start("launch", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", configuration,
                            "-q", "--output-dir", self.folder / "nodes", "-s", "parallelism.zero_stage=2",
                            "-s", "parallelism.zero_shard_size=node", *SMALL_UNITS,
                            env={"DLTRAIN_STORE_SECRET": "sesame", **ONE_THREAD}) for _ in range(2)]
        for node in nodes:
            result = self.end(node)
            self.assertEqual(result.code, OK, str(result))
        parts = sorted(path.name for path in (whole / "checkpoints" / "latest").glob("*-of-00004.safetensors"))
        self.assertGreaterEqual(len(parts), 4)
        for part in parts:
            self.assert_same_file(*(run / "checkpoints" / "latest" / part for run in (whole, self.folder / "nodes")))
        self.assertEqual([line["loss"] for line in steps(whole)], [line["loss"] for line in steps(self.folder / "nodes")])

    def test_what_ranks_cannot_share_is_refused_with_its_place(self):
        text = SMALL + "parallelism: {zero_stage: 2}\n"
        line = "training: {global_batch_size: 16, max_steps: 4, reduction: fixed}"
        path = self.write("refused.yaml", re.sub(r"(?m)^training: .*$", line, text))
        number = path.read_text().splitlines().index(line) + 1
        self.refused(USAGE, path, "--output-dir", self.folder / "run", "--nproc-per-node", 2,
                     says=("order of reduction", f"refused.yaml:{number}:"))
        for size, says in ((3, "2 ranks cannot be divided into groups of 3"), ("some", "neither all, node nor a number")):
            path = self.write("groups.yaml", SMALL + f"parallelism: {{zero_stage: 2, zero_shard_size: {size}}}\n")
            number = path.read_text().splitlines().index(f"parallelism: {{zero_stage: 2, zero_shard_size: {size}}}") + 1
            self.refused(USAGE, path, "--output-dir", self.folder / "run", "--nproc-per-node", 4 if size == 3 else 2,
                         says=(says.replace("2 ranks", "4 ranks"), f"groups.yaml:{number}:"))
        path = self.write("fixed.yaml", SMALL.replace("max_steps: 40", "max_steps: 40, reduction: fixed, micro_batch_size: 1")
                          .replace("global_batch_size: 16", "global_batch_size: 12"))
        self.refused(USAGE, path, "--output-dir", self.folder / "run", "--nproc-per-node", 2, says="a power of two")

    def test_the_plan_of_1024_ranks_needs_none(self):
        text = self.run_dltrain("plan", "--world", 1024, "-s", "parallelism.zero_stage=3", "-s", "precision.compute=bf16",
                                "-s", "training={global_batch_size: 1024, max_steps: 1}", SOURCES / GOLDEN / "gpt2.yaml").out
        self.assertIn("1024 ranks × 1 micro-step of 1", text)
        self.assertRegex(text, r"each sends .* gathered\)")
        self.assertRegex(text, r"of which .* s are exposed \(\d+ % overlap\)")

    def test_the_plan_knows_what_leaves_a_node(self):
        def sent(size):
            text = self.run_dltrain("plan", "--world", 1024, "--nproc-per-node", 8, "--node-link", 2e9, "-s", "parallelism.zero_stage=3",
                                    "-s", f"parallelism.zero_shard_size={size}",
                                    "-s", "training={global_batch_size: 1024, max_steps: 1}", SOURCES / GOLDEN / "gpt2.yaml").out
            found = re.search(r"on 128 nodes of 8: ([\d.]+) (\w+) go to ranks of the same node, ([\d.]+) (\w+) to other nodes", text)
            self.assertIsNotNone(found, text)
            units = {"B": 1, "KiB": 1024, "MiB": 1024 * 1024}
            return text, float(found[3]) * units[found[4]]

        text, between = sent("node")
        self.assertIn("the state is sharded over groups of 8 ranks; each of the 128 groups holds all of it", text)
        # An eighth of two messages, against three whole ones.
        self.assertLess(between, 0.15 * sent("all")[1])


if __name__ == "__main__":
    support.main()
