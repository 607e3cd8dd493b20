"""aMC on the parameters of a PyTorch model: Sec. III A of the paper, steps 1 to 4 in order."""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradless.pytorch.acceptance import accept, agree, is_check_due, measure
from gradless.pytorch.kept import Kept, KeptBuffers
from gradless.pytorch.noise import GlobalRandomness, Noise
from gradless.pytorch.padding import padding_rows
from gradless.pytorch.settings import AMCGroup, check_parameter, check_temperature, checked_group, checked_seed
from gradless.pytorch.signal_norm import Signals, remove
from gradless.settings import check_switch, is_off

Closure = Callable[[], Any]
Group = dict[str, Any]
COUNTS = ("n", "num_accepted", "num_nonfinite")


class Evaluation(NamedTuple):
    """What one call of the closure tells of a point."""

    loss: Tensor | float  # U, as the closure gave it
    lam: dict[Tensor, Tensor]  # lambda of the parameters that have signal norm, if it was asked for


class AMC(torch.optim.Optimizer):
    """Adaptive Monte Carlo. Paper: Sec. III A.

    model_or_params: a module; or parameters; or a list of groups, whose "params" may be a module or parameters.
    sigma: the initial move scale sigma_0.
    epsilon: the rate at which mu follows accepted moves.
    n_s: rejections in a row before sigma shrinks.
    sigma_decay: the factor by which sigma shrinks.
    temperature: T, a number or a function of the step.
    signal_norm: scale moves by the neurons' inputs; needs modules.
    fixed_batch: the closure always computes the loss on the same data, so U(x) is kept: one call a step, not two.
    seed: of the optimizer's own generators; None takes one from PyTorch's global generator.

    A group may have its own sigma, epsilon, n_s, sigma_decay and signal_norm. The move is still one move: all
    parameters are displaced at once and accepted or rejected together. A group counts the rejections in a row up to its
    own n_s, and then its own sigma shrinks and its own mu starts again from 0; an acceptance sets all counts to 0.
    A parameter with requires_grad=False stays where it is.
    """

    def __init__(
        self,
        model_or_params: nn.Module | Iterable[Any],
        sigma: float = 1e-2,
        epsilon: float = 0.0,
        n_s: float = 100,
        sigma_decay: float = 0.95,
        temperature: float | Callable[[int], Any] = 0.0,
        signal_norm: bool = False,
        fixed_batch: bool = False,
        seed: int | None = None,
    ) -> None:
        defaults = {
            "sigma": sigma,
            "epsilon": epsilon,
            "n_s": n_s,
            "sigma_decay": sigma_decay,
            "signal_norm": signal_norm,
        }
        check_temperature(temperature)
        check_switch("fixed_batch", fixed_batch)
        self.temperature, self.fixed_batch = temperature, fixed_batch
        self.noise = Noise(checked_seed(seed))
        self.n = 0  # steps made
        self.num_accepted = 0
        self.num_nonfinite = 0  # proposals whose loss was not a number
        self.loss: Tensor | float | None = None  # U(x)
        self._models: list[nn.Module] = []
        self._signals = Signals()
        # The model may live longer. Only the handles: what led to the optimizer would keep it alive.
        weakref.finalize(self, remove, self._signals.handles)
        self._kept, self._kept_buffers = Kept(), KeptBuffers()
        self._padding: dict[Tensor, int] = {}  # rows that do not move
        params = [{"params": model_or_params}] if isinstance(model_or_params, nn.Module) else model_or_params
        super().__init__(params, checked_group(defaults))

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, or of a module's parameters, with settings of its own."""
        group = AMCGroup({**param_group, **checked_group(param_group)})
        model = group["params"] if isinstance(group["params"], nn.Module) else None
        has_signal_norm = group.get("signal_norm", self.defaults["signal_norm"])
        if model is not None:
            group["params"] = list(model.parameters())
        elif has_signal_norm:
            raise ValueError("signal_norm=True needs the model itself, AMC(model, ...), got bare parameters")
        self._add_checked(group)
        if model is not None:
            self._models.append(model)
            self._padding |= padding_rows(model)
            if has_signal_norm:
                self._signals.attach(model)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Tensor | float:  # type: ignore[override]
        """Make one move, accepted or not, and return U at the place where the chain now is."""
        if not callable(closure):
            raise TypeError(f"step needs a function that returns the loss, opt.step(closure), got {closure!r}")
        # Step 1. Current state: U(x) and lambda on the data, known from the previous step if the batch is fixed.
        randomness = self._note_randomness()
        loss = self._look(closure)
        temperature = float(self.temperature(self.n) if callable(self.temperature) else self.temperature)

        # Step 2. Proposed move: eps_i ~ N(mu_i, (lambda_i sigma)^2) for all parameters at once.
        noise_before = self.noise.state()
        with self._returning_on_error():
            for group, parameter in self._parameters():
                parameter.add_(self._draw_eps(group, parameter))
            xi = None if is_off(self.temperature) else self.noise.xi(self._x()[0])
            randomness.again()
            proposal = self._evaluate(closure, with_lam=self.fixed_batch)
        is_accepted = accept(float(loss), float(proposal.loss), temperature, xi)

        # Step 3. Accept move: x' becomes x, and mu moves towards the displacement that succeeded, Eq. (10).
        if is_accepted:
            self._move_mu(noise_before)
            self._know(proposal)
            for group in self.param_groups:
                group["n_cr"] = 0

        # Step 4. Reject move: x is retained; after n_s rejections in a row sigma shrinks and mu starts again from 0.
        else:
            self._return()
            for group in self.param_groups:
                group["n_cr"] += 1
                if group["n_cr"] >= group["n_s"]:
                    group["n_cr"] = 0
                    group["sigma"] *= group["sigma_decay"]
                    self._clear_mu(group)

        self.n += 1
        self.num_accepted += is_accepted
        self.num_nonfinite += not math.isfinite(float(proposal.loss))
        return proposal.loss if is_accepted else loss

    @torch.no_grad()
    def reset(self) -> None:
        """Return to sigma_0 and mu = 0 with x where it is, and forget U(x): a new fixed batch may follow.

        Paper: Sec. II F, progressive batching.
        """
        self.loss = None
        for group in self.param_groups:
            group |= {"sigma": group["sigma_0"], "n_cr": 0}
            self._clear_mu(group)

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next step needs; temperature, fixed_batch and seed are given again to the new object."""
        own = {name: getattr(self, name) for name in COUNTS}
        own |= {"loss": self.loss, "seed": self.noise.seed, "noise": self.noise.state()}
        return {**super().state_dict(), "amc": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on, to the last bit, where the state was taken. Load the model's parameters too."""
        if "amc" not in state_dict:
            raise ValueError(f"state_dict must be one of gradless.pytorch.AMC, got the keys {', '.join(state_dict)}")
        heard = self._signals.names.keys()
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):
            if saved["signal_norm"] and not heard >= set(group["params"]):
                raise ValueError("signal_norm must be True here too: the state has it, and it needs the model's layers")
        super().load_state_dict(state_dict)
        self.param_groups = [AMCGroup(group) for group in self.param_groups]
        # PyTorch has cast mu and lambda to the precision of the parameters, which may be bfloat16.
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for number, parameter in zip(numbers, self._all(), strict=True):
            own = state_dict["state"].get(number, {})
            self.state[parameter] = {name: value.to(parameter.device, copy=True) for name, value in own.items()}
        for name in (*COUNTS, "loss"):
            setattr(self, name, state_dict["amc"][name])
        self.noise.load(state_dict["amc"]["seed"], state_dict["amc"]["noise"], self._devices())
        self._kept = Kept()

    def __getstate__(self) -> dict[str, Any]:
        """Refuse copies: they would share, or lose, the noise and the layers that are listened to."""
        raise TypeError("an optimizer is not copied or pickled whole: take its state_dict() and load it into a new one")

    def _add_checked(self, group: Group) -> None:
        """Add a group whose parameters PyTorch and we can take, or none."""
        super().add_param_group(group)  # lists parameters that may be given by names or by a generator
        group = self.param_groups[-1]
        try:
            for parameter in group["params"]:
                check_parameter(parameter)
        except ValueError:
            self.param_groups.pop()
            raise
        group |= {"sigma_0": group["sigma"], "n_cr": 0}

    def _all(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _parameters(self) -> Iterator[tuple[Group, Tensor]]:
        for group in self.param_groups:
            yield from ((group, parameter) for parameter in group["params"] if parameter.requires_grad)

    def _x(self) -> list[Tensor]:
        return [parameter for _, parameter in self._parameters()]

    def _devices(self) -> list[torch.device]:
        return list(dict.fromkeys(parameter.device for parameter in self._all()))

    def _buffers(self) -> dict[str, Tensor]:
        named = ((place, model.named_buffers()) for place, model in enumerate(self._models))
        return {f"{place}.{name}": buffer for place, buffers in named for name, buffer in buffers}

    def _note_randomness(self) -> GlobalRandomness:
        """Note where PyTorch's generators stand: U(x) and U(x') are compared under the same dropout."""
        if not self._x():
            raise ValueError("there is no parameter to move: requires_grad=False keeps a parameter where it is")
        for device in self._devices():
            self.noise.generator(device)
        return GlobalRandomness(self._devices())

    def _look(self, closure: Closure) -> Tensor | float:
        """Return U(x), and keep x to return to."""
        if self.fixed_batch and self.loss is not None:
            is_same = self._kept.is_like(self._x())  # not after a change of x from outside, nor in a resumed run
            if is_same and not is_check_due(self.n):
                return self.loss
            evaluation = self._measure_again(closure, self.loss, is_same)
        else:
            evaluation = self._evaluate(closure, with_lam=True)
        if not math.isfinite(float(evaluation.loss)) and (self.n == 0 or self.fixed_batch):
            raise ValueError(f"the loss at the start must be finite, got {float(evaluation.loss)}")
        return self._know(evaluation)

    def _measure_again(self, closure: Closure, known: Tensor | float, is_same: bool) -> Evaluation:
        """Return U(x) on a fixed batch, where it was `known`: the same if x is, within rounding.

        After a change from outside it is the new one, however near: a move is compared with the U(x) of this x.
        """
        is_resumed = not self._kept.copies  # nothing to compare x with: it is taken for the same if U(x) is
        self._kept_buffers.keep(self._buffers())
        evaluation = self._evaluate(closure, with_lam=True)
        is_near = agree(known, evaluation.loss, self._x())
        if is_near and (is_same or is_resumed):  # then this look leaves no trace, but for what may move only now
            self._kept_buffers.put_back(self._buffers())
            return Evaluation(known, {one: lam for one, lam in evaluation.lam.items() if "lam" not in self.state[one]})
        if is_same:
            change = f"U(x) went from {float(known):g} to {float(evaluation.loss):g} with x at rest"
            raise ValueError(f"fixed_batch=True needs the same data and no dropout in every call, but {change}")
        return evaluation

    def _evaluate(self, closure: Closure, with_lam: bool) -> Evaluation:
        """Call the closure, and listen to the layers while it runs."""
        torch.clear_autocast_cache()  # autocast around the step may hold another x in half precision
        sought = [parameter for group, parameter in self._parameters() if group["signal_norm"]] if with_lam else []
        if not sought:
            return Evaluation(measure(closure), {})
        with self._signals.listening():
            loss = measure(closure)
        return Evaluation(loss, self._signals.lam(sought))

    def _know(self, evaluation: Evaluation) -> Tensor | float:
        """Take the present parameters as x, with what is known of them."""
        self.loss = evaluation.loss
        for parameter, lam in evaluation.lam.items():
            self.state[parameter]["lam"] = lam
        for parameter in self._all():
            if not parameter.requires_grad:  # its lambda grows old while x moves
                self.state.get(parameter, {}).pop("lam", None)
        self._kept.keep(self._x())
        self._kept_buffers.keep(self._buffers())
        return evaluation.loss

    def _draw_eps(self, group: Group, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        eps = self.noise.normal(parameter).mul_(state.get("lam", 1.0) * group["sigma"])
        eps = eps.add_(state["mu"]) if "mu" in state else eps
        if parameter in self._padding:
            eps[self._padding[parameter]] = 0
        return eps

    def _move_mu(self, noise_before: Any) -> None:
        """Move mu towards eps where epsilon is not 0. Paper: Sec. III A, step 3, Eq. (10).

        eps is not held while the loss is computed, which would take the memory of another net: the generators go back
        to where they stood and draw it again.
        """
        if all(group["epsilon"] == 0 for group in self.param_groups):
            return
        noise_after = self.noise.state()
        self.noise.set_state(noise_before)
        for group, parameter in self._parameters():
            eps = self._draw_eps(group, parameter)
            if group["epsilon"] != 0:
                state = self.state[parameter]
                state["mu"] = state["mu"] if "mu" in state else torch.zeros_like(eps)
                state["mu"].add_(eps.sub_(state["mu"]).mul_(group["epsilon"]))
        self.noise.set_state(noise_after)

    def _clear_mu(self, group: Group) -> None:
        for parameter in group["params"]:
            if "mu" in self.state[parameter]:
                self.state[parameter]["mu"].zero_()

    def _return(self) -> None:
        """Go back to x, and to the buffers, such as running statistics, that the pass at x' may have changed."""
        self._kept.put_back(self._x())
        self._kept_buffers.put_back(self._buffers())
        torch.clear_autocast_cache()

    @contextmanager
    def _returning_on_error(self) -> Iterator[None]:
        """Leave the net at x if the closure fails or is interrupted at x'."""
        try:
            yield
        except BaseException:
            self._return()
            raise
