#!/usr/bin/env python3
"""Compares the searches of `dltrain sweep` with Optuna's on known functions, at equal budgets.

    pip install optuna
    ninja -C build bench_search && bench/search.py [--seeds 20] [--trials 60]

Prints, for each function, the median over the seeds of the best value found; smaller is better. The last column counts
the seeds with which our search found a better value than Optuna's. Halving trains the trials of a model of learning
curves: ours is successive halving on quasi-random trials, Optuna's its SuccessiveHalvingPruner (asynchronous) on
quasi-random ones (QMCSampler), until both have used the same number of steps.
"""
import argparse
import math
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def sphere(x):
    return sum((value - 0.3) ** 2 for value in x)


def branin(x):
    a, b = x
    return (b - 5.1 / (4 * math.pi**2) * a * a + 5 / math.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def rosenbrock(x):
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def hartmann6(x):
    alpha = [1.0, 1.2, 3.0, 3.2]
    a = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    p = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
         [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
    return -sum(alpha[i] * math.exp(-sum(a[i][j] * (x[j] - 1e-4 * p[i][j]) ** 2 for j in range(6))) for i in range(4))


def training(x):
    """A rate with an optimum, a decay that hardly matters, and three optimizers."""
    rate, decay, kind = x
    return (math.log10(rate) + 2.5 + 0.5 * kind) ** 2 + 0.05 * (math.log10(decay) + 3) ** 2 + [0.3, 0.0, 0.6][int(kind)]


FUNCTIONS = {
    "sphere 4": (sphere, [("range", -1, 1)] * 4),
    "branin": (branin, [("range", -5, 10), ("range", 0, 15)]),
    "rosenbrock 3": (rosenbrock, [("range", -2, 2)] * 3),
    "hartmann 6": (hartmann6, [("range", 0, 1)] * 6),
    "rate, decay, optimizer": (training, [("log", 1e-6, 1), ("log", 1e-6, 1), ("values", 3)]),
}


def ours(search, function, space, trials, seed):
    """Returns (values, score) of every trial."""
    command = [ROOT / "build" / "bench_search", search, str(trials), str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(";".join(" ".join(map(str, one)) for one in space) + "\n")
        process.stdin.flush()
        out = []
        for _ in range(trials):
            values = [float(value) for value in process.stdout.readline().split()]
            out.append((values, function(values)))
            process.stdin.write(f"{out[-1][1]!r}\n")
            process.stdin.flush()
    return out


def suggest(trial, space):
    out = []
    for i, (kind, *limits) in enumerate(space):
        name = f"x{i}"
        out.append(trial.suggest_categorical(name, range(limits[0])) if kind == "values" else
                   trial.suggest_float(name, *limits, log=kind == "log"))
    return out


def theirs(function, space, trials, sampler):
    import optuna

    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: function(suggest(trial, space)), n_trials=trials)
    return [(None, trial.value) for trial in study.trials]


def curve(score, steps):
    """The loss of a trial after so many steps: it falls to its score, those with a good end a little slower."""
    return score + 3 * (steps / 10) ** (-0.5 - 0.1 * min(score, 3))


def halving_ours(function, space, trials, most, seed):
    scores = [score for _, score in ours("quasi_random", function, space, trials, seed)]
    rounds = 1 + int(math.log(trials) / math.log(3) + 1e-9)
    alive, used, before = list(range(trials)), 0, 0
    for round in range(rounds):
        steps = math.ceil(most / 3 ** (rounds - 1 - round))
        used += len(alive) * (steps - before)
        alive.sort(key=lambda trial: curve(scores[trial], steps))
        left, before = alive[: max(1, len(alive) // 3)], steps
        if round + 1 < rounds:
            alive = left
    return curve(scores[alive[0]], most), used


def halving_theirs(function, space, budget, most, seed):
    import optuna

    used = 0

    def objective(trial):
        nonlocal used
        score = function(suggest(trial, space))
        for steps in range(1, most + 1):
            used += 1
            trial.report(curve(score, steps), steps)
            if trial.should_prune():
                raise optuna.TrialPruned()
            if used >= budget:
                trial.study.stop()
                if steps < most:
                    raise optuna.TrialPruned()
        return curve(score, most)

    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=max(1, most // 27), reduction_factor=3)
    study = optuna.create_study(sampler=optuna.samplers.QMCSampler(seed=seed, scramble=True), pruner=pruner)
    study.optimize(objective, n_trials=10000)
    finished = [trial.value for trial in study.trials if trial.state.name == "COMPLETE"]
    return min(finished, default=math.inf)


def row(name, mine, other):
    wins = sum(a < b for a, b in zip(mine, other))
    print(f"{name:34} {statistics.median(mine):12.4g} {statistics.median(other):12.4g} {wins:6} of {len(mine)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=60)
    arguments = parser.parse_args()
    try:
        import optuna
    except ImportError:
        sys.exit("bench/search.py needs Optuna: pip install optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds = range(arguments.seeds)
    best = lambda trials: min(score for _, score in trials)
    print(f"optuna {optuna.__version__}, {arguments.trials} trials, medians over {arguments.seeds} seeds")
    print(f"{'':34} {'dltrain':>12} {'Optuna':>12}   better in")
    for name, (function, space) in FUNCTIONS.items():
        row(f"tpe: {name}", [best(ours("tpe", function, space, arguments.trials, seed)) for seed in seeds],
            [best(theirs(function, space, arguments.trials, optuna.samplers.TPESampler(seed=seed))) for seed in seeds])
    for name, (function, space) in FUNCTIONS.items():
        row(f"quasi-random: {name}", [best(ours("quasi_random", function, space, arguments.trials, seed)) for seed in seeds],
            [best(theirs(function, space, arguments.trials, optuna.samplers.QMCSampler(seed=seed, scramble=True))) for seed in seeds])
    for name, (function, space) in FUNCTIONS.items():
        mine = [halving_ours(function, space, 27, 270, seed) for seed in seeds]
        row(f"halving: {name}", [value for value, _ in mine],
            [halving_theirs(function, space, used, 270, seed) for seed, (_, used) in zip(seeds, mine)])


if __name__ == "__main__":
    main()
