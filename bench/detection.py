"""How well faults are found, and how rarely the healthy are blamed: Heeler beside three other ways, in one run.

    python bench/detection.py [--seeds 20] [--healthy-hours 50000] [--tune]

Jobs of 8 to 4,096 GPUs with the simulator's physics (all ranks wait for the slowest); faults of known severity, the
share of its speed that the victim loses; healthy jobs that look odd. Heeler's thresholds are its defaults. `--tune`
plays the seeds on which they and the baselines' limits were chosen; without it other seeds, from wider ranges.

`recall` counts a victim that was named within 60 s, `ever` one that was named at all; F1 is that of
`ever` and precision.

An alarm is right that names the victim's GPU or its node after the fault began, in time within 60 s. Everything else
that is named is false. What is said of a job as a whole blames nobody and counts neither way. A job that is busy a
tenth of the time (offload to the host) can't be judged by peers: it is among the traps, not among the faults.

The last line is one JSON object.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

from scoreboard.contenders import Contender, FixedLimits, Heeler, MinderLike, ZScore
from scoreboard.faults import FAULTS, SEVERITIES, with_fault
from scoreboard.scenario import REPORT, TUNE, WORKLOADS, Ranges, Scenario, draw
from scoreboard.score import Outcome, Score, add_up, run, upper_bound
from scoreboard.traps import TRAPS

NAMES: dict[str, Callable[[], Contender]] = {
    "heeler": Heeler,
    "fixed limits": FixedLimits,
    "z-score 3.5": ZScore,
    "minder-like": MinderLike,
}
LEAST = 0.20  # severity from which on a fault has to be found
# Nodes and hours of healthy jobs: most GPU-hours in large ones, most windows in small ones.
LARGE = ((512, 1.0), (1, 24.0), (128, 4.0), (2, 24.0), (32, 12.0), (1, 24.0), (8, 24.0), (2, 24.0))

Outcomes = dict[str, Outcome]


def faulty(kind: str, severity: float, seed: int, ranges: Ranges) -> Scenario:
    """Return a job with a fault in it."""
    fault, busy = FAULTS[kind], [w for w in WORKLOADS if w.levels[0].util >= 0.5]
    number = seed + 1000 * list(FAULTS).index(kind)
    scenario, rng = draw(kind, number, ranges, lasts_s=480.0, workloads=busy, least_nodes=fault.least_nodes)
    return with_fault(scenario, kind, severity, rng)


def healthy(nodes: int, hours: float, seed: int, ranges: Ranges) -> Scenario:
    """Return a healthy job that just runs."""
    return draw("healthy", 900_000 + seed, ranges, lasts_s=hours * 3600, nodes=nodes)[0]


def play(make: Callable[[], Scenario]) -> Outcomes:
    """Play one scenario to everyone."""
    gc.set_threshold(100_000)  # messages are no cycles
    scenario = make()
    return run(scenario, {name: new() for name, new in NAMES.items()}, ports=scenario.name != "healthy")


def quiet_jobs(hours: float, ranges: Ranges) -> Iterator[Callable[[], Scenario]]:
    """Yield healthy jobs of all sizes until they have so many GPU-hours together."""
    seed, left = 0, hours
    while left > 0:
        for nodes, long_h in LARGE:
            long_h = min(long_h, max(0.25, left / (8 * nodes)))  # noqa: PLW2901
            yield partial(healthy, nodes, long_h, seed, ranges)
            left -= 8 * nodes * long_h
            seed += 1
            if left <= 0:
                return


def row(name: str, score: Score, quiet: Score, drains: int) -> str:
    """Return a line of the table of contenders."""
    rate = 1000 * quiet.false / quiet.gpu_hours
    bound = upper_bound(quiet.false, quiet.gpu_hours)
    median = "-" if score.median_s is None else f"{score.median_s:.0f} s"
    return (
        f"{name:13} {score.recall:7.3f} {score.found / score.faults:6.3f} {score.precision:9.3f} {score.f1:6.3f} "
        f"{median:>7} {rate:12.3f} {bound:12.3f} {drains:12d}"
    )


def report(faults: list[Outcomes], traps: list[Outcomes], quiet: list[Outcomes]) -> dict[str, Any]:
    """Print the tables and return what is in them."""
    told: dict[str, Any] = {}
    calm = [*traps, *quiet]
    hours = sum(o["heeler"].gpu_hours for o in calm)
    print(
        f"\n{len(faults)} faults, {len(traps)} traps, {hours:,.0f} healthy GPU-hours; faults of {LEAST:.0%} and more:"
    )
    print(
        f"{'':13} {'recall':>7} {'ever':>6} {'precision':>9} {'F1':>6} {'median':>7} "
        f"{'false/1000 h':>12} {'95 % below':>12} {'false drains':>12}"
    )
    for name in NAMES:
        strong = [o[name] for o in faults if o[name].truth and o[name].truth.severity >= LEAST]  # type: ignore[union-attr]
        score = add_up([*strong, *(o[name] for o in traps)])
        still = add_up([o[name] for o in calm])
        drains = sum(o[name].false_drains for o in (*faults, *calm))
        print(row(name, score, still, drains))
        told[name] = {
            "recall": round(score.recall, 4),
            "recall_ever": round(score.found / score.faults, 4),
            "precision": round(score.precision, 4),
            "f1": round(score.f1, 4),
            "median_s": score.median_s,
            "false_per_1000_gpu_hours": round(1000 * still.false / still.gpu_hours, 4),
            "false_per_1000_gpu_hours_95": round(upper_bound(still.false, still.gpu_hours), 4),
            "false_drain_advice": drains,
        }
    told["kinds"] = _by_kind(faults)
    told["traps"] = _by_trap(traps)
    told["healthy_gpu_hours"] = round(hours)
    return told


def _by_kind(faults: list[Outcomes]) -> dict[str, Any]:
    print(
        f"\nHeeler, found within 60 s by severity{'':7}"
        + " ".join(f"{s:>6.0%}" for s in SEVERITIES)
        + "   median  causes"
    )
    told = {}
    for kind, fault in FAULTS.items():
        mine = [o["heeler"] for o in faults if o["heeler"].scenario == kind]
        cells = []
        for severity in SEVERITIES:
            some = [o for o in mine if o.truth and o.truth.severity == severity]
            cells.append(sum(o.in_time for o in some) / max(1, len(some)))
        strong = add_up([o for o in mine if o.truth and o.truth.severity >= LEAST])
        causes = sorted({o.cause for o in mine if o.cause})
        print(
            f"{kind:12} {fault.about[:30]:30} "
            + " ".join(f"{c:6.2f}" for c in cells)
            + f"   {strong.median_s or 0:4.0f} s  {', '.join(causes)}"
        )
        told[kind] = {"recall": round(strong.recall, 4), "median_s": strong.median_s, "false": strong.false}
    return told


def _by_trap(traps: list[Outcomes]) -> dict[str, int]:
    print("\nfalse names on healthy traps  " + " ".join(f"{name:>13}" for name in NAMES))
    told = {}
    for trap in TRAPS:
        counts = [sum(len(o[name].false) for o in traps if o[name].scenario == trap) for name in NAMES]
        print(f"{trap:29} " + " ".join(f"{count:13,d}" for count in counts))
        told[trap] = counts[0]
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="scenarios of each kind and severity, and of each trap")
    parser.add_argument("--healthy-hours", type=float, default=50_000, help="GPU-hours of healthy jobs")
    parser.add_argument("--tune", action="store_true", help="the seeds and ranges used for tuning")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    ranges, began = TUNE if options.tune else REPORT, time.monotonic()
    seeds = range(options.seeds)
    faults = [
        partial(faulty, kind, severity, seed, ranges) for kind in FAULTS for severity in SEVERITIES for seed in seeds
    ]
    traps = [partial(trap, seed, ranges) for trap in TRAPS.values() for seed in seeds]
    quiet = list(quiet_jobs(options.healthy_hours, ranges))
    with ProcessPoolExecutor(options.processes) as pool:
        long = pool.map(play, quiet)  # first: they take longest
        outcomes = list(pool.map(play, chain(faults, traps), chunksize=8))
        told = report(outcomes[: len(faults)], outcomes[len(faults) :], list(long))
    told["seconds"] = round(time.monotonic() - began)
    told["seeds"] = "tuning" if options.tune else "reporting"
    print()
    print(json.dumps({**told["heeler"], **told}))


if __name__ == "__main__":
    main()
