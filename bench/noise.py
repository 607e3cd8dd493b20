"""What a normal random number costs: generators and ways to make their bits normal, and whether the numbers will do.

python -m bench.noise

Each draws a vector of 65,536 float32, over and over, with a key of its own each time. The checks are of 2^24 numbers:
how many standard errors off the worst of four moments and of six lags is (neighbours, partners of a pair, and the same
place in the next vector; of the numbers and of their squares), and the Kolmogorov-Smirnov distance times sqrt(n), which
is below 1.95 in all but one of a thousand cases.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtr

from gradless.apart import apart
from gradless.bench.timing import interleaved, tell
from gradless.threefry import PARITY, ROTATIONS, normal

SIZE, DRAWS, CHECKED = 1 << 16, 50, 256
Words = tuple[jax.Array, jax.Array]


def threefry(key: Words, counter: jax.Array, rounds: int) -> Words:
    """Return Threefry-2x32 of so many rounds."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    x, y = jnp.zeros_like(counter) + keys[0], counter + keys[1]
    for number in range(rounds):
        distance = ROTATIONS[number // 4 % 2][number % 4]
        x = x + y
        y = x ^ (lax.shift_left(y, np.uint32(distance)) | lax.shift_right_logical(y, np.uint32(32 - distance)))
        if number % 4 == 3:
            group = number // 4
            x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox(key: Words, counter: jax.Array, rounds: int) -> Words:
    """Return Philox-2x32 of so many rounds (Salmon et al., 2011), which multiplies where Threefry rotates."""
    x, y, k = counter, jnp.zeros_like(counter) + key[1], key[0]
    for _ in range(rounds):
        product = x.astype(np.uint64) * np.uint64(0xD256D193)
        high, low = (product >> np.uint64(32)).astype(np.uint32), product.astype(np.uint32)
        x, y, k = high ^ k ^ y, low, k + np.uint32(0x9E3779B9)
    return x, y


def between_one_and_two(word: jax.Array) -> jax.Array:
    """Return a float32 from the upper bits of a word; all mantissas are equally likely."""
    return lax.bitcast_convert_type((word >> np.uint32(9)) | np.uint32(0x3F800000), np.float32)


def inverse_error_function(word: jax.Array) -> jax.Array:
    """Return one normal number from each word."""
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    uniform = jnp.maximum(lowest, (between_one_and_two(word) - 1) * 2 + lowest)
    return np.float32(math.sqrt(2)) * lax.erf_inv(uniform)


def box_muller(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return two normal numbers from every two words."""
    radius = jnp.sqrt(-2 * jnp.log(2 - between_one_and_two(first)))
    angle = np.float32(2 * math.pi) * (between_one_and_two(second) - 1)
    return jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)])


def drawn(generator: Callable[..., Words], rounds: int, transform: str, key: jax.Array) -> jax.Array:
    """Return SIZE normal numbers by one of the ways."""
    words = tuple(jax.random.key_data(key))
    num = SIZE if transform == "inverse" else SIZE // 2
    first, second = generator(words, lax.iota(np.uint32, num), rounds)
    if transform == "inverse":
        return inverse_error_function(first ^ second)
    if transform == "inverse, both words":
        return jnp.concatenate([inverse_error_function(first), inverse_error_function(second)])
    return box_muller(first, second)


WAYS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gradless: threefry-20, inverse": lambda key: normal(key, (SIZE,), np.float32),
    "jax.random.normal": lambda key: jax.random.normal(key, (SIZE,), np.float32),
    "threefry-20, inverse, both words": partial(drawn, threefry, 20, "inverse, both words"),
    "threefry-20, Box-Muller": partial(drawn, threefry, 20, "Box-Muller"),
    "threefry-13, inverse": partial(drawn, threefry, 13, "inverse"),
    "threefry-13, Box-Muller": partial(drawn, threefry, 13, "Box-Muller"),
    "philox-10, inverse": partial(drawn, philox, 10, "inverse"),
    "philox-7, inverse, both words": partial(drawn, philox, 7, "inverse, both words"),
    "philox-7, Box-Muller": partial(drawn, philox, 7, "Box-Muller"),
}


def many(way: Callable[[jax.Array], jax.Array]) -> Callable[[], None]:
    """Return what draws DRAWS vectors, each with a key of its own."""

    @jax.jit
    def draw(key: jax.Array) -> jax.Array:
        def once(i: jax.Array, x: jax.Array) -> jax.Array:
            words = jax.random.key_data(jax.random.fold_in(key, i))
            return 0.5 * x + apart(lambda words: way(jax.random.wrap_key_data(words)), words)

        return lax.fori_loop(0, DRAWS, once, jnp.zeros(SIZE, np.float32))

    return lambda: jax.block_until_ready(draw(jax.random.key(0)))


def check(way: Callable[[jax.Array], jax.Array]) -> str:
    """Return how far moments, lags and distribution of many numbers are off."""
    keys = [jax.random.fold_in(jax.random.key(1), i) for i in range(CHECKED)]
    z = np.concatenate([np.asarray(jax.jit(way)(key), np.float64) for key in keys])
    n = len(z)
    moments = [(z**power).mean() for power in (1, 2, 3, 4)]
    known = zip(moments, (0, 1, 0, 3), (1, 2, 15, 96), strict=True)  # with their expectation and variance
    errors = [abs(moment - exact) / math.sqrt(variance / n) for moment, exact, variance in known]
    squares = (z**2 - 1) / math.sqrt(2)
    lags = [abs((y[lag:] * y[:-lag]).mean()) * math.sqrt(n) for y in (z, squares) for lag in (1, SIZE // 2, SIZE)]
    z.sort()
    places = np.arange(n + 1) / n
    cumulated = ndtr(z)
    distance = max((places[1:] - cumulated).max(), (cumulated - places[:-1]).max()) * math.sqrt(n)
    largest = abs(z[[0, -1]]).max()
    return f"moments {max(errors):.1f}, lags {max(lags):.1f}, KS {distance:.2f}, largest number {largest:.2f}"


def main() -> None:
    """Time all ways in turns, then check them."""
    with jax.enable_x64(True):
        turns = {name: many(way) for name, way in WAYS.items()}
        tell(
            "65,536 normal numbers",
            interleaved(turns, rounds=5),
            DRAWS,
            "us",
            "gradless: threefry-20, inverse",
            one="draw",
        )
        for name, way in WAYS.items():
            print(f"{name:34s} {check(way)}")


if __name__ == "__main__":
    main()
