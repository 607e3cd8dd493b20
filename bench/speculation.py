"""How much sooner the same chain is there: proposals side by side, and data shared among processes.

python -m bench.speculation            # the ratios, each part in processes of its own
python -m bench.speculation --rounds 5

Compared in one run as ratios of steps per second: machines are noisy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

WAIT_SECONDS = 0.01  # of a simulator
ACCEPTANCE = 0.05


def main() -> None:
    """Run all parts and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=[*PARTS, "worker"], help="one part, in this process")
    parser.add_argument("--own", default="", help="settings of a worker")
    given = parser.parse_args()
    if given.part == "worker":
        print(json.dumps(worker(**json.loads(given.own))))
        return
    if given.part:
        PARTS[given.part](given.rounds)
        return
    for part in PARTS:
        subprocess.run(
            [sys.executable, "-m", "bench.speculation", "--part", part, "--rounds", str(given.rounds)], check=True
        )


def waiting(rounds: int) -> None:
    """A loss that is a pure wait, at an acceptance of 5%: eight workers against one."""
    make_devices(8)
    import jax
    import jax.numpy as jnp

    import gradless as gl

    def look(x: Any) -> np.float32:
        time.sleep(WAIT_SECONDS)
        return np.float32(np.sin(float(np.asarray(x)[0]) * 1e4) * 1e4 % 1 >= ACCEPTANCE)  # 0 by chance, else 1

    def loss(x: Any) -> Any:
        return jax.pure_callback(look, jax.ShapeDtypeStruct((), jnp.float32), x)

    start = next(x for x in np.arange(1000, dtype=np.float32) if np.sin(float(x) * 1e4) * 1e4 % 1 < ACCEPTANCE)

    def train(steps: int, **how: Any) -> Any:
        start_at = np.full(1, start, np.float32)
        return gl.train(gl.metropolis(sigma=1.0), loss, start_at, steps=steps, record_every=100, **how)

    ways: dict[str, Callable[[], Any]] = {
        "1": lambda: train(300),
        "8": lambda: train(3000, mesh=gl.mesh(proposals=8)),
    }
    speeds, found = interleaved(ways, rounds)
    rate, gain = found["8"].acceptance, speeds["8"] / speeds["1"]
    print(f"10 ms wait, acceptance {rate:.3f}: 8 workers {gain:.2f} x (limit 5.5)")
    model(speeds, found["8"].acceptance)


def deep(rounds: int) -> None:
    """A net of 64 layers at low acceptance: two devices on two cores against one."""
    make_devices(2)
    import gradless as gl
    from gradless.problems import make_problem

    problem = make_problem("step", {"depth": 64})

    def train(steps: int, **how: Any) -> Any:
        algorithm = gl.amc(sigma=0.3, epsilon=0.0, n_s=float("inf"), signal_norm=True)
        return gl.train(
            algorithm, problem.loss, problem.init, data=problem.data, steps=steps, precision="float64", **how
        )

    ways: dict[str, Callable[[], Any]] = {"1": lambda: train(4000)}
    for ahead in (1, 4, 16):
        ways[f"2 x {ahead}"] = partial(train, 4000, mesh=gl.mesh(proposals=2), speculate=2 * ahead)
    ways["auto"] = lambda: train(4000, mesh=gl.mesh(proposals=2), speculate="auto")
    speeds, found = interleaved(ways, rounds)
    for name, speed in speeds.items():
        same = found[name].loss == found["1"].loss
        print(
            f"depth 64, {name}: {speed:.0f} steps/s, {speed / speeds['1']:.2f} x (limit 1.5), "
            f"acceptance {found[name].acceptance:.3f}, {same=}"
        )


def shared_data(rounds: int) -> None:
    """MNIST on the full batch: two processes with half of the data each, against one process with one thread."""
    speeds: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(rounds):
        speeds["1"].append(run_workers(1)[0])
        speeds["2"].append(min(run_workers(2)))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"MNIST, data in 2 processes: {medians['2'] / medians['1']:.2f} x one thread (limit 1.4), {medians} steps/s")


def run_workers(processes: int) -> list[float]:
    """Return the steps per second that each of the processes saw; each has one core."""
    from gradless.cli.launch import free_port

    port, cores = free_port(), sorted(os.sched_getaffinity(0))
    children = []
    for place in range(processes):
        own = json.dumps({"place": place, "processes": processes, "port": port, "core": cores[place % len(cores)]})
        words = [sys.executable, "-m", "bench.speculation", "--part", "worker", "--own", own]
        children.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    return [float(json.loads(child.communicate()[0].splitlines()[-1])) for child in children]


def worker(place: int, processes: int, port: int, core: int) -> float:
    """Train MNIST for a while as one of the processes; return steps per second."""
    os.sched_setaffinity(0, [core])
    import jax

    import gradless as gl
    from gradless.cli.devices import connect
    from gradless.problems import make_problem

    how: dict[str, Any] = {}
    if processes > 1:
        connect(
            {"coordinator_address": f"127.0.0.1:{port}", "num_processes": processes, "process_id": place}, processes
        )
        how["mesh"] = gl.mesh(data=processes)
    problem = make_problem("mnist", {})
    algorithm = gl.amc(sigma=1e-2, n_s=20, signal_norm=True)
    result = gl.train(algorithm, problem.loss, problem.init, data=problem.data, steps=300, record_every=300, **how)
    if processes > 1:
        jax.distributed.shutdown()
    return result.steps / result.seconds


def model(speeds: dict[str, float], acceptance: float) -> None:
    """Print what more devices would give, from the measured times: a model, not a measurement."""
    round_seconds = (1 - (1 - acceptance) ** 8) / acceptance / speeds["8"]
    overhead = max(round_seconds - WAIT_SECONDS, 0.0)
    print(f"a model, not measured: rounds cost {1e3 * overhead:.2f} ms beside the loss, twice that per tenfold devices")
    for rate in (0.05, 0.01, 0.001):
        for devices in (10, 100, 1000):
            cost = WAIT_SECONDS + overhead * 2 ** np.log10(devices / 8)
            steps = (1 - (1 - rate) ** devices) / rate
            print(f"  acceptance {rate}: {devices} devices {steps / cost * WAIT_SECONDS:.1f} x")


def make_devices(number: int) -> None:
    """Divide the CPU into devices."""
    import jax

    jax.config.update("jax_num_cpu_devices", number)
    jax.config.update("jax_enable_x64", True)


def interleaved(ways: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median steps per second of each way, and its last result."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    found = {}
    for _ in range(rounds):
        for name, train in ways.items():
            found[name] = train()
            speeds[name].append(found[name].steps / found[name].seconds)
    return {name: statistics.median(values) for name, values in speeds.items()}, found


PARTS: dict[str, Callable[[int], None]] = {"waiting": waiting, "deep": deep, "shared-data": shared_data}

if __name__ == "__main__":
    main()
