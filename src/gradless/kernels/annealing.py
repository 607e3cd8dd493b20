"""Simulated annealing as a setting: a temperature that falls as the run goes on."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from gradless.settings import POSITIVE, Number, check_settings, setting, settings


@settings
class Anneal:
    """A temperature that falls geometrically from `start` to `end` over `steps` steps, then stays."""

    name: ClassVar[str] = "anneal"

    start: Number = setting(doc="temperature at the first step", rule=POSITIVE)
    end: Number = setting(doc="temperature from the last step on", rule=POSITIVE)
    steps: Number = setting(doc="number of steps in between", rule=POSITIVE)

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, n: jax.Array) -> jax.Array:
        """Return the temperature of step n."""
        progress = jnp.clip(n / self.steps, 0, 1)
        return self.start * (self.end / self.start) ** progress
