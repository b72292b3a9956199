"""dltrain launch: torchrun's flags, nodes, files, mistakes, and other launchers."""
import os
import re
import shutil
import socket
import subprocess

from launching import LaunchTest, answers, free_port
from support import OK, PROGRAM, RANK, SMALL, SOURCES, STORAGE, USAGE, main


class Launch(LaunchTest):
    def test_launched_ranks_train_as_the_short_way(self):
        one = self.one()
        for flags in (("--nproc-per-node", 4), ("--standalone", "--nproc_per_node=4", "--nnodes=1:1"),
                      ("--nproc-per-node=4", "--rdzv_backend", "c10d", "--rdzv-id", "x", "--monitor_interval", "0.05")):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.launch(flags)
            self.assert_same_state(one, self.folder / "run")

    def test_what_ranks_cannot_be_given(self):
        small = self.small()
        for arguments, sentence in ((("launch", "--nproc-per-node", 2, small, "--max-restarts", 2),
                                     "--max-restarts: flags of the launcher must precede the configuration"),
                                    (("launch", "--nproc", 2, small), "unknown argument --nproc; did you mean --nproc-per-node?"),
                                    (("launch", "--nproc-per-node", 2, "/dev/null"), "/dev/null: every rank reads the configuration")):
            result = self.run_dltrain(*arguments, code=USAGE)
            self.assertIn("dltrain: error: ", result.err)
            self.assertIn(sentence, result.err)
            self.assertNotIn("rank 0", result.err)

    def test_one_node_says_what_it_does_not_use(self):
        result = self.run_dltrain("launch", "--master-addr", "n01", "--rdzv-conf", "join_timeout=5", self.small(), "-q",
                                  "--output-dir", self.folder / "run", "--max-steps", 1)
        self.assertIn("dltrain: --master-addr, --rdzv-conf: not used, there is one node\n", result.err)
        for flags, names in ((("--rdzv-endpoint", "nosuchhost"), "the host of --rdzv-endpoint"),
                             (("--standalone", "--rdzv-conf", "read_timeout=5"), "--rdzv-conf"),
                             (("--standalone", "--master-port", 1234), "--master-port")):
            result = self.run_dltrain("launch", *flags, self.small(), "-q", "--output-dir", self.folder / "run", "--overwrite",
                                      "--max-steps", 1)
            self.assertIn(f"dltrain: {names}: not used, there is one node\n", result.err)

    def test_two_launchers_are_two_nodes(self):
        one = self.one()
        configuration = self.small()
        port = free_port()
        for numbered in (True, False):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            nodes = []
            for node in (1, 0):
                place = ("--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node) if numbered else (
                    "--rdzv-endpoint", f"127.0.0.1:{port}")
                nodes.append(self.start("launch", "--nnodes", 2, "--nproc-per-node", 1 + 2 * node, *place, configuration, "-q",
                                        "--output-dir", self.folder / "run", env={"DLTRAIN_STORE_SECRET": "sesame"}))
            for node in nodes:
                result = self.end(node)
                self.assertEqual(result.code, OK, str(result))
            self.assert_same_state(one, self.folder / "run")

    def namespaces(self):
        """Two network namespaces joined by a cable, with the addresses 10.77.0.1, 10.77.0.2, fd77::1 and fd77::2."""
        names = [f"dltrain-{os.getpid()}-{i}" for i in (1, 2)]

        def ip(*arguments):
            if subprocess.run(["ip", *arguments], capture_output=True).returncode != 0:
                self.skipTest(f"no right to `ip {' '.join(arguments)}`")

        if not shutil.which("ip"):
            self.skipTest("no program `ip`")
        for name in names:
            ip("netns", "add", name)
            self.addCleanup(subprocess.run, ["ip", "netns", "delete", name], capture_output=True)
        cable = [f"dlt{os.getpid() % 100000}{i}" for i in (1, 2)]
        ip("link", "add", cable[0], "netns", names[0], "type", "veth", "peer", "name", cable[1], "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", cable[i])
            ip("-n", name, "address", "add", f"fd77::{i + 1}/64", "dev", cable[i], "nodad")
            ip("-n", name, "link", "set", cable[i], "up")
            ip("-n", name, "link", "set", "lo", "up")
        return names

    def test_nodes_with_networks_of_their_own_reach_each_other(self):
        names = self.namespaces()
        one = self.one()
        configuration = self.small()
        for endpoint in ("10.77.0.1:29400", "[fd77::1]:29400"):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            nodes = []
            for name in reversed(names):
                nodes.append(self.begin(
                    ["ip", "netns", "exec", name, PROGRAM, "launch", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint",
                     endpoint, str(configuration), "-q", "--output-dir", str(self.folder / "run")],
                    env={"DLTRAIN_STORE_SECRET": "sesame"}))
            for node in nodes:
                result = self.end(node)
                self.assertEqual(result.code, OK, str(result))
            # Which node came first does not matter: rank 0 is at the endpoint.
            self.assert_same_state(one, self.folder / "run")

    def test_ranks_of_other_launchers_meet_over_ipv6(self):
        names = self.namespaces()
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "one", "--nproc-per-node", 2)
        variables = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "fd77::1", "MASTER_PORT": "29500"}
        ranks = [self.begin(["ip", "netns", "exec", name, PROGRAM, str(self.small()), "-q", "--output-dir",
                             str(self.folder / "run")], env=dict(variables, RANK=str(rank))) for rank, name in enumerate(names)]
        for rank in ranks:
            result = self.end(rank)
            self.assertEqual(result.code, OK, str(result))
        self.assert_same_state(self.folder / "one", self.folder / "run")

    def test_a_launcher_without_the_secret_is_refused(self):
        port = free_port()
        common = ("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "join_timeout=3")
        configuration = self.small()
        first = self.start(*common, configuration, "--output-dir", self.folder / "run", env={"DLTRAIN_STORE_SECRET": "sesame"})
        self.wait_for(lambda: answers(port), "the first launcher")
        self.refused(RANK, *common, configuration, "--output-dir", self.folder / "run", says="refused the secret of this launcher")
        result = self.end(first)
        self.assertEqual(result.code, RANK, str(result))
        self.assertIn(f"only 1 of 2 nodes connected to 127.0.0.1:{port} within 3 s", result.err)
        self.assertIn(f"a launcher or rank at 127.0.0.1 was refused at 127.0.0.1:{port}: it has another secret", result.err)
        self.assertEqual(len(result.err.splitlines()), 2, str(result))

    def test_nodes_that_others_can_reach_need_a_secret(self):
        secrets = set()
        for flags in (("--rdzv-endpoint", "192.0.2.1:29400"), ("--master-addr", "n01", "--node-rank", 1)):
            result = self.refused(USAGE, "launch", "--nnodes", 2, *flags, self.small(), "-s", "name=it's a run", env={"DLTRAIN_STORE_SECRET": ""},
                                  says=("DLTRAIN_STORE_SECRET is not set: anybody who reaches", f"    dltrain launch --nnodes 2 {flags[0]}",
                                        "-s 'name=it'\\''s a run'"))
            secrets.add(re.search(r"^    export DLTRAIN_STORE_SECRET=([0-9a-f]{32})$", result.err, re.MULTILINE).group(1))
            self.assertEqual("each with its own --node-rank" in result.err, "--node-rank" in flags)
        self.assertEqual(len(secrets), 2)

    def test_ranks_of_other_launchers_are_warned_once_without_a_secret(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.connect(("192.0.2.254", 9))  # nothing is sent: it only asks for the way there
            except OSError:
                self.skipTest("this host has no address that others reach")
            address = s.getsockname()[0]
        for secret, warnings in (("", 1), ("sesame", 0)):
            port = free_port()
            variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port),
                         "DLTRAIN_STORE_SECRET": secret}
            path = self.small()  # once: a rank that has started reads it
            ranks = [self.start(path, "-q", "--output-dir", self.folder / f"run{warnings}",
                                env=dict(variables, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(2)]
            self.wait_for(lambda: all(rank.poll() is not None for rank in ranks) or self.listens(address, port), "the store")
            results = [self.end(rank) for rank in ranks]
            self.assertEqual([result.code for result in results], [OK, OK], "\n".join(map(str, results)))
            self.assertEqual(sum(result.err.count("DLTRAIN_STORE_SECRET is not set") for result in results), warnings)

    def listens(self, address, port):
        """Whether the store is there; then it must be there alone, not at every address of the host."""
        with socket.socket() as s:
            if s.connect_ex((address, port)) != 0:
                return False
        self.assertFalse(answers(port))
        return True

    def test_a_rank_that_was_started_twice_is_told(self):
        variables = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        path = self.small()
        started = [self.start(path, "-q", "--output-dir", self.folder / "run", env=dict(variables, RANK=rank, LOCAL_RANK=rank))
                   for rank in ("0", "1", "1")]
        self.wait_for(lambda: any(process.poll() is not None for process in started[1:]), "the end of one")
        told = next(process for process in started[1:] if process.poll() is not None)
        for process in started:
            process.terminate()
        result = self.end(told)
        self.assertEqual(result.code, USAGE, str(result))
        self.assertIn("rank 1 was started twice, the second time as process ", result.err)
        for process in started:
            if process is not told:
                self.end(process)

    def test_a_port_in_use_is_named(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            endpoint = f"127.0.0.1:{port}"
            rank = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            for setting, flags, variables in (
                    ("--master-port", ("launch", "--master-port", port), {}),
                    ("--master-port", ("launch", "--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port", port), {}),
                    ("--rdzv-endpoint", ("launch", "--rdzv-endpoint", endpoint), {}),
                    ("--rdzv-endpoint", ("launch", "--nnodes", 2, "--node-rank", 0, "--rdzv-endpoint", endpoint), {}),
                    ("MASTER_PORT", (), rank)):
                self.refused(RANK, *flags, self.small(), "--output-dir", self.folder / "run", env=variables,
                             says=f"port {port} on 127.0.0.1 is in use by another program; choose another one with {setting}\n")

    def test_flags_that_make_no_sense_are_refused(self):
        path = self.small()
        for flags, says in (
            (("--no_python",), "--no_python"),
            (("--numa_binding=socket",), "--numa-binding"),
            (("--rdzv-backend", "etcd"), "static and c10d are possible"),
            (("--nnodes", "2"), "several nodes need an endpoint"),
            (("--nnodes", "2", "--master-addr", "x"), "needs --node-rank on each of them"),
            (("--nnodes", "1:2", "--rdzv-endpoint", "x", "--node-rank", "0"), "leave it out"),
            (("--nnodes", "2", "--rdzv-endpoint", "x", "--node-rank", "2"), "--node-rank 2 of 2 nodes"),
            (("--standalone", "--nnodes", "2"), "--standalone is one node"),
            (("--rdzv-endpoint", "x:1", "--master-addr", "y"), "are alternatives; give one"),
            (("--nnodes", "two"), "expected a number of nodes"),
            (("--nproc-per-node", "some"), "expected a number from 1 to"),
            (("--log-dir", "x", "--redirects", "9"), "--redirects"),
            (("--rdzv-conf", "join_timeout"), "expected join_timeout, last_call_timeout or read_timeout"),
            (("--rdzv-conf", "close_timeout=3"), "--rdzv-conf close_timeout=3: expected join_timeout"),
            (("--nnodes", "2", "--master-addr", "x", "--node-rank", "0", "--master-port", "0"),
             "several nodes need a fixed port, not 0"),
        ):
            self.refused(USAGE, "launch", *flags, path, says=says)
        self.refused(USAGE, "launch", "--nproc-per-node", 2, says="nothing to launch")
        self.refused(USAGE, "launch", "--nproc-per-node", 2, "plan", path, says="starts `dltrain train` only, not `dltrain plan`")
        self.refused(USAGE, "launch", path, "--nproc-per-node", 2, says="must precede the arguments of the ranks")
        self.assertIn("--max-restarts", self.run_dltrain("launch", "--help").out)

    def test_mistakes_are_told_once_before_ranks_start(self):
        result = self.refused(USAGE, "launch", "--nproc-per-node", 3, self.small(), "--output-dir", self.folder / "run",
                              says="a global batch of 16 cannot be shared evenly by 3 ranks; 15 and 18 would fit, and 16 would fit 2 ranks")
        self.assertEqual(result.err.count("cannot be shared"), 1)
        self.refused(USAGE, "launch", "--nproc-per-node", 2, self.small(), "-s", "training.max_step=3",
                     says="did you mean 'max_steps'?")
        result = self.refused(USAGE, "launch", "--nproc-per-node", 4, self.small(), "-s", "parallelism.zero_stage=3", "-s",
                              "parallelism.zero_shard_size=3", says="4 ranks cannot be divided into groups of 3")
        self.assertNotIn("rank 0 (process", result.err)
        self.assertFalse((self.folder / "run").exists())

    def test_ranks_with_different_configurations_are_refused(self):
        port = free_port()
        common = ("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", self.small(), "--output-dir",
                  self.folder / "run")
        nodes = [self.start(*common, "-s", f"optimizer.learning_rate={rate}") for rate in ("0.01", "0.02")]
        results = [self.end(node) for node in nodes]
        self.assertEqual([r.code for r in results], [USAGE, USAGE], "\n".join(map(str, results)))
        text = results[0].err + results[1].err
        self.assertRegex(text, r"different configurations: optimizer.learning_rate is 0.0[12] on rank 0 and 0.0[12] on rank 1")
        self.assertFalse((self.folder / "run" / "metrics.jsonl").exists())

    def test_nodes_that_do_not_share_the_run_folder_are_told(self):
        configuration = self.small()
        places = [self.folder / "here", self.folder / "there"]
        for place in places:
            place.mkdir()
        self.run_dltrain(configuration, "-q", "--output-dir", "run", "-s", "training.max_steps=2", cwd=places[0])
        nodes = [self.start("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", configuration, "--output-dir", "run",
                            "--resume", "auto", "-s", "training.max_steps=4", cwd=place)
                 for port in (free_port(),) for place in places]
        results = [self.end(node) for node in nodes]
        self.assertEqual([r.code for r in results], [USAGE, USAGE], "\n".join(map(str, results)))
        self.assertIn("none and step 2", results[0].err + results[1].err)
        self.assertFalse((places[1] / "run" / "metrics.jsonl").exists())

    def test_output_of_ranks_goes_to_files(self):
        self.launch(("--nproc-per-node", 2, "--log-dir", self.folder / "logs", "--redirects", 2, "--tee", 1, "--rdzv-id",
                     "job"), "-s", "training.max_steps=2")
        run, = (self.folder / "logs").iterdir()
        self.assertTrue(run.name.startswith("job_"), run)
        logs = run / "attempt_0"
        self.assertEqual(sorted(str(p.relative_to(logs)) for p in logs.rglob("*.log")),
                         ["0/stderr.log", "0/stdout.log", "1/stderr.log", "1/stdout.log"])

    def test_files_of_output_as_torchrun_has_them(self):
        """--tee without --log-dir goes to a temporary folder, which is told; --tee 0 means none."""
        (self.folder / "tmp").mkdir()
        result = self.launch(("--nproc-per-node", 2, "-t", 3), "-s", "training.max_steps=2", env={"TMPDIR": str(self.folder / "tmp")})
        run, = (self.folder / "tmp").glob("dltrain_none_*")
        self.assertIn(f"dltrain: the output of the ranks is written to {run}\n", result.err)
        self.assertTrue((run / "attempt_0" / "1" / "stdout.log").exists())
        for flags in (("--tee", 0), ("--redirects", 0), ("--tee=0", "--redirects=0")):
            result = self.launch(("--nproc-per-node", 2, "--log-dir", self.folder / "logs", *flags), "--overwrite", "-s",
                                 "training.max_steps=2")
            self.assertFalse((self.folder / "logs").exists())
            self.assertNotIn("output of the ranks", result.err)
        self.refused(STORAGE, "launch", "--nproc-per-node", 2, "--tee", 3, self.small(), "--output-dir", self.folder / "run",
                     "--overwrite", env={"TMPDIR": str(self.folder / "nowhere")}, says="set --log-dir")
        self.launch(("--nproc-per-node", 2, "--master-port", 0), "--overwrite", "-s", "training.max_steps=2")

    def test_the_short_way_counts_ranks_too(self):
        cores = len(os.sched_getaffinity(0))
        for name in ("cpu", "auto"):
            self.run_dltrain(self.small(SMALL.replace("16", str(4 * cores))), "-q", "--nproc_per_node", name, "--output-dir",
                             self.folder / name, "-s", "training.max_steps=2", env={"CUDA_VISIBLE_DEVICES": ""})
        for word in ("some", "0", "5000"):
            self.refused(USAGE, self.small(), "--nproc-per-node", word,
                         says=f"--nproc-per-node {word}: expected a number from 1 to 4096, auto, gpu or cpu")

    def test_a_launcher_that_mpirun_has_started_is_no_rank(self):
        """One launcher a node, started by mpirun or srun: what they say of it is not about its ranks."""
        around = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                  "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        self.launch(("--nproc-per-node", 4), env=around)
        self.assert_same_state(self.one(), self.folder / "run")
        self.refused(USAGE, self.small(), "--nproc-per-node", 2, env=dict(around, MASTER_ADDR="127.0.0.1"),
                     says="this process is already a rank, started by mpirun (Open MPI)")

    def test_all_ranks_begin_from_the_checkpoint_that_rank_0_finds(self):
        """Else a run that writes checkpoints meanwhile, or nodes that see different ones, give ranks different weights."""
        configuration = self.small()
        places = [self.folder / "here", self.folder / "there"]
        for place in places:
            place.mkdir()
        self.run_dltrain(configuration, "-q", "--output-dir", "old", "-s", "training.max_steps=20", cwd=places[0])
        shutil.copytree(places[0] / "old", places[1] / "old", symlinks=True)
        shutil.rmtree(places[1] / "old" / "checkpoints" / "step-000020")
        port = free_port()
        nodes = [self.start("launch", "--nnodes", 2, "--node-rank", i, "--master-addr", "127.0.0.1", "--master-port", port,
                            configuration, "-q", "--output-dir", self.folder / "run", "-s",
                            "model.init_from=/proc/self/cwd/old", cwd=places[i])
                 for i in (0, 1)]
        results = [self.end(node) for node in nodes]
        self.assertEqual([r.code for r in results], [STORAGE, STORAGE], "\n".join(map(str, results)))
        self.assertIn("step-000020", results[1].err)

    def test_torchrun_starts_ranks(self):
        torchrun = os.environ.get("TORCHRUN") or shutil.which("torchrun")
        if not torchrun:
            self.skipTest("no torchrun (set TORCHRUN)")
        one = self.one()
        subprocess.run([torchrun, "--no-python", "--nproc-per-node", "4", "--master-port", str(free_port()), PROGRAM, str(self.small()),
                        "-q", "--output-dir", str(self.folder / "run")], cwd=SOURCES, check=True, timeout=300,
                       env=dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1"), capture_output=True)
        self.assert_same_state(one, self.folder / "run")

    def test_mpirun_starts_ranks(self):
        mpirun = shutil.which("mpirun")
        if not mpirun:
            self.skipTest("no mpirun")
        one = self.one()
        port = str(free_port())
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", MASTER_PORT=port,
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        subprocess.run([mpirun, "-n", "4", PROGRAM, str(self.small()), "-q", "--output-dir", str(self.folder / "run")],
                       cwd=SOURCES, check=True, timeout=300, env=environment, capture_output=True)
        self.assert_same_state(one, self.folder / "run")


if __name__ == "__main__":
    main()
