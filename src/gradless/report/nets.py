"""What the nets of a run say: outputs against the target in one dimension, the confusion matrix for images."""

import base64
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.data import mnist
from gradless.data.store import DataUnavailable
from gradless.engine.flat import Flattening
from gradless.engine.placing import as_device
from gradless.engine.precision import precision_of
from gradless.engine.train import starting_point
from gradless.problem import Problem
from gradless.problems import PROBLEMS
from gradless.records import Checkpoint, RunError
from gradless.report.curves import MAX_LINES, plain
from gradless.runs import stored_problem

MAX_POINTS = 400  # of an output curve
MAX_WRONG = 28  # pictures: whole rows on a wide screen and on a phone
MAX_CLASSES = 20
MAX_WORK = 2e9  # parameters times images: a page should not take minutes


class CannotShow(Exception):
    """Why the nets cannot be asked, in a sentence."""


def net_facts(
    path: Path, settings: dict[str, Any], checkpoint: Checkpoint | None, trust: bool
) -> dict[str, dict[str, Any]]:
    """Return `outputs` or `images`, whichever the problem has; or `no_nets` with the reason why there is neither."""
    try:
        if settings.get("problem") is None:
            return {}
        if checkpoint is None:
            raise CannotShow("there is no checkpoint that can be read")
        problem = _problem(path, settings, trust)
        if problem.outputs is None:
            return {}
        return _ask(problem, checkpoint)
    except CannotShow as error:
        return {"no_nets": {"reason": f"What the net says cannot be shown: {error}."}}
    except Exception as error:  # code of a user may raise anything, and the rest of the page is worth having
        line = (str(error).splitlines() or [""])[0][:200]
        return {"no_nets": {"reason": f"What the net says cannot be shown: {type(error).__name__}: {line}"}}


def _problem(path: Path, settings: dict[str, Any], trust: bool) -> Problem:
    name, options = str(settings["problem"]), settings.get("options")
    if ":" in name and not trust:
        raise CannotShow(f"that would run the code of {name}; if you know it, give --trust")
    folder = options.get("data_dir") if isinstance(options, dict) else None
    if (
        name in PROBLEMS
        and name.startswith("mnist")
        and not mnist.is_here(folder if isinstance(folder, str) and folder else None)
    ):
        raise CannotShow("its data set MNIST is not on this machine; gradless data mnist fetches it")
    try:
        return stored_problem(path, settings, trust)
    except (RunError, ValueError, DataUnavailable) as error:
        raise CannotShow((str(error).splitlines() or [""])[0]) from None


def _ask(problem: Problem, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
    """Return what the nets of a checkpoint say to the problem's own data."""
    points = checkpoint.tensors.get("state.x")
    if points is None or points.ndim != 2:
        raise CannotShow("the checkpoint holds no parameters")
    order = np.argsort(np.nan_to_num(checkpoint.tensors.get("state.loss", np.zeros(len(points))), nan=np.inf))
    kind, inputs, target = _kind(problem)
    if kind == "neither":
        return {}
    with precision_of(points.dtype):
        nets = [_net(problem, points[place]) for place in (order[:MAX_LINES] if kind == "outputs" else order[:1])]
        if kind == "outputs":
            chosen = np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), MAX_POINTS)).astype(int))
            said = [_say(problem, net, inputs[chosen], points.dtype).ravel() for net in nets]
            return {"outputs": _outputs(checkpoint.step, inputs[chosen].ravel(), target[chosen].ravel(), said)}
        number = int(min(len(inputs), max(200, MAX_WORK // points.shape[1])))
        scores = _say(problem, nets[0], inputs[:number], points.dtype)
    if scores.ndim != 2 or scores.shape[1] > MAX_CLASSES or int(target[:number].max()) >= scores.shape[1]:
        return {}
    return {"images": _images(checkpoint.step, inputs[:number], target[:number], scores, len(inputs))}


def _kind(problem: Problem) -> tuple[str, np.ndarray, np.ndarray]:
    """Return whether a problem is one of a function of one variable, of labelled images, or of neither."""
    for name, data in (("outputs", problem.data), ("images", problem.test)):
        if not (isinstance(data, tuple) and len(data) == 2 and all(hasattr(one, "shape") for one in data)):
            continue
        x, y = (np.asarray(one) for one in data)
        if name == "outputs" and x.ndim == 2 and x.shape == y.shape and x.shape[1] == 1 and y.dtype.kind == "f":
            return name, x, y
        if name == "images" and len(x) == len(y) > 0 and y.ndim == 1 and y.dtype.kind in "iu" and y.min() >= 0:
            return name, x, y
    return "neither", np.zeros(0), np.zeros(0)


def _net(problem: Problem, x: np.ndarray) -> Any:
    layout = Flattening.of(starting_point(problem.init, jax.random.key(0), sigma=1.0), str(x.dtype))
    if layout.num_parameters != len(x):
        words = f"the problem has {layout.num_parameters:,} parameters, the checkpoint {len(x):,}"
        raise CannotShow(f"{words}: the problem is not the one that was trained")
    return layout.unflatten(jnp.asarray(x))


def _say(problem: Problem, net: Any, inputs: np.ndarray, dtype: Any) -> np.ndarray:
    outputs: Any = problem.outputs
    return np.asarray(outputs(net, as_device(inputs, dtype)))


def _outputs(step: int, theta: np.ndarray, target: np.ndarray, said: list[np.ndarray]) -> dict[str, Any]:
    order = np.argsort(theta, kind="stable")
    lines = [plain(line[order]) for line in said]
    return {"step": step, "x": plain(theta[order]), "target": plain(target[order]), "nets": lines}


def _images(step: int, inputs: np.ndarray, labels: np.ndarray, said: np.ndarray, total: int) -> dict[str, Any]:
    num_classes = said.shape[1]
    taken = np.argmax(said, axis=1)
    matrix = np.bincount(labels * num_classes + taken, minlength=num_classes**2).reshape(num_classes, num_classes)
    wrong = np.flatnonzero(taken != labels)
    pictures, side = _pictures(inputs[wrong[:MAX_WRONG]])
    shown = [
        {"place": int(place), "label": int(labels[place]), "taken": int(taken[place]), "pixels": pixels}
        for place, pixels in zip(wrong, pictures, strict=False)
    ]
    counts = {"number": len(labels), "total": total, "num_wrong": len(wrong)}
    return {"step": step, "matrix": matrix.tolist(), "wrong": shown, "side": side, **counts}


def _pictures(inputs: np.ndarray) -> tuple[list[str], int]:
    """Return square pictures as bytes in base64, one byte a pixel; none where the inputs are no square pictures.

    Inputs are rows of pixels, images with one channel, or sequences of black (1, 0) and white (0, 1) pixels.
    """
    if inputs.ndim == 4 and inputs.shape[-1] == 1:
        inputs = inputs[..., 0].reshape(len(inputs), -1)
    if inputs.ndim == 3 and inputs.shape[-1] == 2:
        inputs = inputs[..., 1]
    side = math.isqrt(inputs.shape[1]) if inputs.ndim == 2 and len(inputs) else 0
    if side < 4 or side**2 != inputs.shape[1] or side > 64:
        return [], 0
    low, high = float(inputs.min()), float(inputs.max())
    scaled = (255 * (inputs - low) / (high - low or 1.0)).astype(np.uint8)
    return [base64.b64encode(row.tobytes()).decode() for row in scaled], side
