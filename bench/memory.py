"""What chains cost in memory, each number of them in a process of its own: python -m bench.memory"""

import multiprocessing

import numpy as np

import gradless as gl
from bench.chains import started
from gradless.bench.memory import peak_of_this_process
from gradless.problems import make_problem

NUM_CHAINS = 30


def peak(num_chains: int) -> float:
    """Return the peak memory, in MB, of a process that makes a few steps of MNIST chains of different sigma."""
    sigma = np.geomspace(1e-4, 1e-1, num_chains) if num_chains > 1 else 1e-3
    session = started(make_problem("mnist", {}), gl.metropolis(sigma=sigma), num_chains, "float32")
    session.advance_to(8)
    return peak_of_this_process()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for num_chains in (1, NUM_CHAINS):
        with context.Pool(1) as pool:
            peaks[num_chains] = pool.apply(peak, (num_chains,))
        print(f"{num_chains:3d} chains: peak {peaks[num_chains]:.0f} MB")
    growth = peaks[NUM_CHAINS] - peaks[1]
    print(f"{NUM_CHAINS - 1} more chains: {growth:.0f} MB; one data set is 188 MB, {NUM_CHAINS} vectors x 1.6 MB")
