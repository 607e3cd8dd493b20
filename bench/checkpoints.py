"""What checkpoints cost at one every 30 seconds: python -m bench.checkpoints"""

import statistics
import tempfile
import time
from pathlib import Path

import gradless as gl
from gradless.engine.batches import Batches
from gradless.engine.disk.recording import begin_recording
from gradless.engine.plan import Plan
from gradless.engine.train import prepare
from gradless.problems import make_problem
from gradless.types import Algorithm

EVERY = 30.0


def measure(title: str, problem: str, algorithm: Algorithm, batch: Batches) -> None:
    """Time the whole checkpoint of a session, fsyncs included."""
    made = make_problem(problem, {})
    plan = Plan(steps=10**6, batches=batch, precision="float32", record_every=10**5)
    session = prepare(algorithm, made.loss, made.init, plan, data=made.data)
    session.begin()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        recording = begin_recording(session, Path(folder) / "run", algorithm, plan, about={})
        seconds = []
        for step in range(1, 8):
            session.t = step  # so that each is taken for new
            began = time.perf_counter()
            recording.checkpoint(session)
            seconds.append(time.perf_counter() - began)
        size = max(file.stat().st_size for file in (Path(folder) / "run" / "checkpoints").iterdir())
        recording.recorder.close()
    middle = statistics.median(seconds)
    words = f"{middle * 1e3:8.1f} ms ({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f})"
    print(f"{title:44s} {size / 1e6:7.2f} MB {words}   {middle / EVERY:.2%} of the time at one every {EVERY:.0f} s")


if __name__ == "__main__":
    mnist = gl.amc(sigma=1e-2, n_s=20, signal_norm=True)
    resnet = gl.amc(sigma=1e-3, epsilon=1e-3, n_s=100)
    measure("MNIST 784-16-16-10, aMC with signal norm", "mnist", mnist, gl.full_batch())
    measure("ResNet-18, aMC with mu", "mnist-resnet", resnet, gl.minibatch(8))
