"""What tests of several ranks share."""
import os
import pathlib
import socket

from support import DltrainTest

# Long enough that something can happen to it, of data large enough that nobody warns of many epochs.
ENDLESS = ("-s", "training.max_steps=1000000", "-s", "data.train.samples=100000", "-s", "checkpoint.save_steps=50", "-s", "logging.logging_steps=1000")


# The same number of threads for every layout, or bits differ (docs/equality.md).
os.environ["OMP_NUM_THREADS"] = "1"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port):
    """Whether somebody listens there."""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def ranks_of(launcher):
    """{rank: process number} of the ranks that a launcher has started."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) != launcher.pid or status[0] == "Z":
                continue
            variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
        except (OSError, IndexError):
            continue
        if "RANK" in variables:
            found[int(variables["RANK"])] = int(entry.name)
    return found


def catches(process, number):
    """Whether a process does more about a signal than to die of it."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigBlk", "SigCgt"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


class LaunchTest(DltrainTest):
    def launch(self, flags, *arguments, **popen):
        return self.run_dltrain("launch", *flags, "--", self.small(), "-q", "--output-dir", self.folder / "run",
                                *arguments, **popen)

    def one(self, *arguments):
        run = self.folder / "one"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--nproc-per-node", 4, *arguments)
        return run

    def wait_for_a_step(self, process):
        """Waits until the run of `folder / run` has logged a step."""
        path = self.folder / "run" / "metrics.jsonl"
        self.wait_for(lambda: process.poll() is not None or (path.exists() and len(path.read_text().splitlines()) >= 1),
                      "the first step")
