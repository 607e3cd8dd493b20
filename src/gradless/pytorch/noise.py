"""The random numbers of the chain, and those that a closure draws."""

from typing import Any

import torch
from torch import Tensor


def working_dtype(parameter: Tensor) -> torch.dtype:
    """Return the precision of noise, lambda and mu: that of the parameter, but float32 at least."""
    return torch.promote_types(parameter.dtype, torch.float32)


class Noise:
    """One generator on each device that has parameters, apart from PyTorch's global ones."""

    def __init__(self, seed: int | None) -> None:
        # Left open, the seed comes from PyTorch's own generator, so that torch.manual_seed makes a run repeatable.
        self.seed = int(torch.empty((), dtype=torch.int64).random_()) if seed is None else seed
        self.generators: dict[str, torch.Generator] = {}

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the generator of a device; two devices never share a seed, or their noise would be the same."""
        if str(device) not in self.generators:
            seed = (self.seed + len(self.generators)) % 2**63
            self.generators[str(device)] = torch.Generator(device).manual_seed(seed)
        return self.generators[str(device)]

    def normal(self, parameter: Tensor) -> Tensor:
        """Return a standard normal number for each element of a parameter."""
        device = parameter.device
        dtype = working_dtype(parameter)
        return torch.randn(parameter.shape, generator=self.generator(device), device=device, dtype=dtype)

    def xi(self, parameter: Tensor) -> float:
        """Return a number uniform on (0, 1], from the device and in the working precision of a parameter."""
        device = parameter.device
        dtype = working_dtype(parameter)
        return 1 - float(torch.rand((), generator=self.generator(device), device=device, dtype=dtype))

    def state(self) -> dict[str, Tensor]:
        """Return where each generator stands."""
        return {device: generator.get_state() for device, generator in self.generators.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Return every generator to where it stood."""
        for device, place in state.items():
            # torch.load may have carried the state to a GPU; a generator takes it from the CPU.
            self.generator(torch.device(device)).set_state(place.cpu())

    def load(self, seed: int, state: dict[str, Tensor], devices: list[torch.device]) -> None:
        """Go on with the numbers of another object, whose parameters were on devices of the same kinds."""
        saved = [torch.device(device).type for device in state]
        if state and saved != [device.type for device in devices]:
            here = ", ".join(map(str, devices))
            raise ValueError(
                f"random numbers drawn on {', '.join(saved)} cannot go on on {here}: load on the same kind"
            )
        self.seed, self.generators = seed, {}
        self.set_state(dict(zip(map(str, devices), state.values(), strict=False)))


class GlobalRandomness:
    """Where PyTorch's global generators stand, so that two calls of a closure see the same dropout."""

    def __init__(self, devices: list[torch.device]) -> None:
        self.cpu = torch.get_rng_state()
        self.others = [(d, _backend(d).get_rng_state(*_which(d))) for d in devices if d.type != "cpu"]

    def again(self) -> None:
        """Return them to where they stood."""
        torch.set_rng_state(self.cpu)
        for device, state in self.others:
            _backend(device).set_rng_state(state, *_which(device))


def _backend(device: torch.device) -> Any:
    return getattr(torch, device.type)


def _which(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)
