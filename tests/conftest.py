"""One table of runs, for all tests that cut, resume or replay: every algorithm and every way of batching, tiny."""

import dataclasses
import gc
import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.problem import Problem
from gradless.records import AcceptedLog, Metrics, RunDirectory, load_newest
from gradless.runs import rebuild

# PyTorch's threads of two processes on two cores wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.set_threshold(200_000, 50, 50)  # tracing makes millions of small objects, few of them garbage
# Many tests compile the same program for another function. Each process has a cache of its own: they do not wait for,
# nor see, each other's half-written files.
COMPILED = tempfile.TemporaryDirectory(prefix="gradless-compiled-")
jax.config.update("jax_compilation_cache_dir", COMPILED.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_num_cpu_devices", 4)  # for the tests of meshes; all others use the first

STEPS = 60
X = np.linspace(-1, 1, 23, dtype=np.float32)[:, None]  # 23 samples: minibatches of 5 leave a short last one of 3
DATA = (X, np.sin(3 * X))
WIDTHS = np.linspace(-1, 1, 4, dtype=np.float32)
START = {"w": WIDTHS[None], "b": np.zeros(4, np.float32), "v": WIDTHS[::-1, None]}


def init(key):
    return jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(key, leaf.shape), START)


def loss(params, batch):
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2)


def error(params, batch):
    return loss(params, batch)


def metrics(params, test):
    return {"error": loss(params, test)}


AMC = {"sigma": 0.1, "epsilon": 0.1, "n_s": 3}
NORM = AMC | {"signal_norm": True}
TABLE: dict[str, tuple[Any, dict[str, Any]]] = {
    "mc": (gl.metropolis(sigma=0.05), {}),
    "mc annealed": (gl.metropolis(sigma=0.05, temperature=gl.anneal(0.1, 1e-4, steps=30.0)), {}),
    "amc": (gl.amc(**AMC), {}),
    "amc signal norm": (gl.amc(**NORM), {}),
    "amc float64": (gl.amc(**AMC), {"precision": "float64"}),
    "amc minibatches": (gl.amc(**NORM), {"batches": gl.minibatch(5)}),
    "amc hold": (gl.amc(**NORM), {"batches": gl.minibatch(5, hold=3)}),
    "amc progressive": (gl.amc(**NORM), {"batches": gl.progressive(6, error, threshold=0.4, factor=4)}),
    "gd": (gl.gradient_descent(learning_rate=0.1), {}),
    "adam minibatches": (gl.adam(learning_rate=1e-2, clip=1.0), {"batches": gl.minibatch(5)}),
    "amc chains": (gl.amc(**AMC | {"sigma": np.array([0.1, 0.2, 0.3])}), {"chains": 3}),
    "amc selection": (gl.amc(**AMC), {"chains": 4, "select_every": 7}),
    "amc chains with a target": (gl.amc(**AMC), {"chains": 3, "target_loss": 0.11}),
}


@dataclasses.dataclass
class Case:
    """A run to be made, cut and gone on with."""

    name: str
    folder: Path
    algorithm: Any
    settings: dict[str, Any]

    @property
    def is_replayable(self) -> bool:
        return self.algorithm.name in ("mc", "amc")

    @property
    def whole(self) -> Path:
        """The folder of the unbroken run."""
        path = self.folder / self.name.replace(" ", "-")
        if not path.exists():
            self.train(path)
        return path

    def train(self, run, **changes):
        plan = {"steps": STEPS, "seed": 3, "record_every": 4, "checkpoint_every": 30.0, **self.settings}
        return gl.train(self.algorithm, loss, init, data=DATA, test=DATA, metrics=metrics, run=run, **plan | changes)

    def resume(self, run, **changes):
        given = {"loss": loss, "params": init, "data": DATA, "test": DATA, "metrics": metrics, "error": error}
        return gl.resume(run, **given | changes)

    def rebuild(self, run, step, verify=False):
        return rebuild(run, step, Problem(init, loss, DATA, DATA, metrics, error), verify)


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Programs that JAX keeps for ever fill gigabytes, which slow down all that follows."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def whole_runs(tmp_path_factory):
    return tmp_path_factory.mktemp("whole")


# Others of the table do all that these do, and more.
SOAK = ("mc", "amc", "amc chains")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.soak if name in SOAK else ()) for name in TABLE])
def case(request, whole_runs):
    return Case(request.param, whole_runs, *TABLE[request.param])


@pytest.fixture
def case_named(whole_runs):
    return lambda name: Case(name, whole_runs, *TABLE[name])


@pytest.fixture
def edit_settings():
    """Let a function change the settings that a run has stored."""

    def edit(run, change):
        path = Path(run) / "settings.json"
        table = json.loads(path.read_text())
        change(table["settings"])
        path.write_text(json.dumps(table))

    return edit


@pytest.fixture
def record_of():
    """Everything a run leaves behind that must not depend on how it came there: all but the clock."""

    def read(path):
        with RunDirectory.open(path) as run:
            newest = load_newest(run.checkpoints_path, pytest.fail, set_aside=False)
            rows = [row | {"seconds": 0} for row in Metrics(run.metrics_path).rows()]
            log = AcceptedLog(run.accepted_path, len(newest.meta["chains"]))
            accepted = [log.read(place, newest.step).tolist() for place in range(log.num_chains)]
            settings = {**run.settings, "plan": {**run.settings["plan"], "time_budget": None, "checkpoint_every": 0}}
        meta = {name: value for name, value in newest.meta.items() if name not in ("seconds", "spent", "settings")}
        tensors = {name: (str(one.dtype), one.shape, one.tobytes()) for name, one in newest.tensors.items()}
        return {
            "step": newest.step,
            "tensors": tensors,
            "meta": meta,
            "rows": repr(rows),  # as text, in which NaN equals NaN
            "accepted": accepted,
            "settings": settings,
        }

    return read


@pytest.fixture
def one_step_rounds(monkeypatch):
    """Every step is a round of its own, so that a run can be cut at any of them."""
    monkeypatch.setattr("gradless.engine.session.ROUND_SECONDS", 0.0)


@pytest.fixture
def quick_disk(monkeypatch):
    """Without waiting for the disk: what survives a power cut is the subject of tests/records."""
    monkeypatch.setattr("gradless.records.disk.fsync", lambda fd: None)
    monkeypatch.setattr("gradless.records.disk.fsync_folder", lambda folder: None)


@pytest.fixture
def extension():
    """A part of what makes the docs, by name, as a module."""

    def load(name):
        path = Path(__file__).parent.parent / "docs" / "extension" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def contents():
    """The bytes of every file of a folder but the lock."""

    def read(path):
        files = [one for one in sorted(Path(path).rglob("*")) if one.is_file() and one.name != "run.lock"]
        return {str(one.relative_to(path)): one.read_bytes() for one in files}

    return read
