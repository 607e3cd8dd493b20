"""How to make a stored run again, and how to go on with it, as commands to copy."""

import shlex
from typing import Any

from gradless.engine.plan import LARGEST
from gradless.records import in_shell

NUMBERS = ("sigma", "epsilon", "n_s", "temperature", "sigma_decay", "learning_rate", "clip")  # settings of algorithms
GRIDS = ("sigma", "epsilon", "n_s", "temperature", "learning_rate")  # which a sweep takes grids of, and nothing else
PLAN_FLAGS = ("seed", "precision", "record_every", "target_loss", "target_metric", "select_every")


def commands(path: str, settings: dict[str, Any]) -> list[dict[str, str]]:
    """Return what to type, each with the words that say what for; without a command where only Python can do it."""
    if "optimize" in settings:
        words = "Go on with it (--trust runs the program that is stored with the run)"
        return [{"words": words, "command": f"gradless optimize --resume --trust --run {in_shell(path)}"}]
    problem = settings.get("problem")
    if not isinstance(problem, str):
        words = "The run was made by gl.train from a Python loss: run that script again, or go on with it in Python by"
        return [{"words": words, "command": f"gl.resume({path!r}, loss=..., params=..., data=...)"}]
    try:
        again = _again(problem, settings)
    except (TypeError, ValueError):  # settings.json can hold anything
        again = None
    trust = " --trust" if ":" in problem else ""
    warned = f" (--trust runs the code of the module {problem.partition(':')[0]})" if trust else ""
    resume = f"gradless resume {in_shell(path)}{trust}"
    return [
        {"words": "Make it again", "command": again}
        if again
        else {"words": "It cannot be made again by one command: its settings are not all flags", "command": ""},
        {"words": "Go on with it from its last checkpoint" + warned, "command": resume},
        _further(resume, _table(settings.get("plan"))),
    ]


def _further(resume: str, plan: dict[str, Any]) -> dict[str, str]:
    """Return how to go on beyond what the run was meant for: steps, or where only its time is limited as much again."""
    steps, budget = plan.get("steps"), plan.get("time_budget")
    if steps == LARGEST:
        seconds = budget if isinstance(budget, float) and 0 < budget < float("inf") else 3600.0
        return {"words": "Go on for more time", "command": f"{resume} --time {_word(seconds)}"}
    more = min(2 * steps, LARGEST) if isinstance(steps, int) and steps > 0 else 20_000
    return {"words": "Go on to more steps", "command": f"{resume} --steps {more}"}


def _again(problem: str, settings: dict[str, Any]) -> str | None:
    """Return the command that made the run, or None where a setting is a function or differs from chain to chain.

    None, too, where the temperature has fallen over fewer steps than the run, which was resumed, then made.
    """
    algorithm, plan = _table(settings.get("algorithm")), _table(settings.get("plan"))
    steps = plan.get("steps")
    swept = settings.get("sweep") or []
    words = ["gradless", "sweep" if swept else "train", problem]
    words += _flags(_table(settings.get("options")))
    flags: dict[str, Any] = {"algorithm": algorithm.get("name")}
    num_points = 1  # of the grid of a sweep
    for name in NUMBERS:
        if swept and name in GRIDS and name not in swept:
            continue
        value = algorithm.get(name)
        if isinstance(value, str) and value != "inf":
            return None
        if isinstance(value, list):
            if name not in swept:
                return None
            points = list(dict.fromkeys(value))
            num_points *= len(points)
            value = ",".join(map(_word, points))
        if isinstance(value, dict):
            if value.get("steps") != steps:
                return None
            value = f"{_word(value.get('start'))}:{_word(value.get('end'))}"
        flags[name] = value
    if isinstance(algorithm.get("signal_norm"), bool):
        flags["signal_norm"] = algorithm["signal_norm"]
    flags |= {"steps": None if steps == LARGEST else steps, "time": plan.get("time_budget")}
    flags |= {name: plan.get(name) for name in PLAN_FLAGS} | _batches(_table(plan.get("batches")))
    flags["select_fraction"] = plan.get("select_fraction") if plan.get("select_every") else None
    flags["stop_when_frozen"] = plan.get("stop_when_frozen") or None
    shards, chains = plan.get("shards", 1), plan.get("chains")
    flags["mesh"] = None if shards == 1 else f"data={shards}"
    if isinstance(chains, list) and len(chains) > num_points:
        flags |= {"seeds": len(chains) // num_points} if swept else {"chains": len(chains)}
    return shlex.join([*words, *_flags(flags)])


def _batches(table: dict[str, Any]) -> dict[str, Any]:
    kind = table.get("name")
    if kind == "minibatch":
        return {"batch": table.get("size"), "hold": table.get("hold") if table.get("hold") != 1 else None}
    return {"batch": f"progressive:{table.get('start')}" if kind == "progressive" else "full"}


def _flags(values: dict[str, Any]) -> list[str]:
    words = []
    for name, value in values.items():
        flag = str(name).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", _word(value)]
    return words


def _word(value: Any) -> str:
    """Return a value as one types it, to its last digit."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
