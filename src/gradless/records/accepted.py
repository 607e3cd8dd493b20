"""accepted.log: which steps of which chain were accepted; with the seed it is the whole history of a run.

Steps are counted from 0, so a log of N steps done holds the flags of steps 0 ... N - 1. All chains share one file: its
blocks (see accepted_blocks.py) each name their chain.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import durable
from .accepted_blocks import FILE_HEADER, MAX_BLOCK_STEPS, MAX_CHAINS, MAX_STEP, Block, Flags, encode, read_blocks
from .append_file import AppendFile
from .errors import DamagedError

BLOCK_STEPS = 1 << 13  # flags are gathered into blocks of this many steps, or fewer at a sync
_GATHER_BYTES = 1 << 22  # with very many chains, blocks are shorter: this bounds the gathered flags
_PIECE = 1 << 16
_NO_FLAGS = np.empty(0, dtype=np.bool_)


class Cover(NamedTuple):
    """What a log holds: for each chain the steps known without a gap from 0, and the step after its last block."""

    complete: dict[int, int]
    ends: dict[int, int]
    good_bytes: int
    is_damaged: bool  # something torn or damaged follows the good bytes


class AcceptedLog:
    """The log of accepted steps of a run: append, read, cut back to any step."""

    def __init__(self, path: Path, num_chains: int = 1) -> None:
        if not 1 <= num_chains <= MAX_CHAINS:
            raise ValueError(f"num_chains must be from 1 to {MAX_CHAINS}, got {num_chains}")
        self.path = path
        self.num_chains = num_chains
        self._file: AppendFile | None = None
        self._next_step: dict[int, int] = {}
        self._gathered: dict[int, list[Flags]] = {}
        self._gathered_steps: dict[int, int] = {}

    @staticmethod
    def create(path: Path) -> None:
        """Write a log without steps."""
        durable.write_atomic(path, FILE_HEADER)

    def add(self, chain: int, first_step: int, flags: Flags) -> None:
        """Take the flags of consecutive steps into memory, to be written by `flush` (whole blocks) or `sync` (all).

        They must follow the chain's last step.
        """
        file = self._open()
        flags = np.array(flags)
        if flags.dtype != np.bool_ or flags.ndim != 1:
            raise ValueError(f"flags must be one row of bool, got {flags.dtype} of shape {flags.shape}")
        if not 0 <= chain < self.num_chains:
            raise ValueError(f"chain must be from 0 to {self.num_chains - 1}, got {chain}")
        expected = self._next_step.get(chain, 0)
        if first_step != expected or first_step > MAX_STEP:
            raise ValueError(f"first_step of chain {chain} must be {expected}, got {first_step}")
        self._gathered.setdefault(chain, []).append(flags)
        self._gathered_steps[chain] = self._gathered_steps.get(chain, 0) + len(flags)
        self._next_step[chain] = first_step + len(flags)
        if self._gathered_steps[chain] >= min(BLOCK_STEPS, max(1, _GATHER_BYTES // self.num_chains)):
            self._encode_gathered(chain, file)

    def flush(self) -> None:
        """Write the whole blocks that wait in memory; on OSError they wait for the next call."""
        self._open().flush()

    def sync(self) -> None:
        """Write all that waits in memory and return once it would survive a power cut."""
        file = self._open()
        for chain in sorted(self._gathered):
            self._encode_gathered(chain, file)
        file.sync()

    @property
    def waiting_bytes(self) -> int:
        """The memory taken by what is not yet known to be on the disk."""
        return sum(self._gathered_steps.values()) + (self._file.waiting_bytes if self._file else 0)

    def drop_waiting(self) -> int:
        """Forget all that waits, when memory runs out: the log has a gap there, and replay ends before it.

        Returns how many bytes of memory that freed.
        """
        before = self.waiting_bytes
        self._gathered.clear()
        self._gathered_steps.clear()
        self._open().replace_waiting([])
        for chain, step in self._next_step.items():
            self._open().add(encode(chain, step, _NO_FLAGS))
        return before - self.waiting_bytes

    def read(self, chain: int, steps: int | None = None) -> NDArray[np.int64]:
        """The accepted steps of a chain, sorted; with `steps`, those below it, and a RunError unless all are known."""
        return self._read([chain], steps)[0]

    def read_all(self, steps: int) -> list[NDArray[np.int64]]:
        """The accepted steps of every chain below `steps`, in one pass through the file."""
        return self._read(range(self.num_chains), steps)

    def _read(self, chains: Iterable[int], steps: int | None) -> list[NDArray[np.int64]]:
        parts = {chain: [np.empty(0, dtype=np.int64)] for chain in chains}
        complete = dict.fromkeys(parts, 0)
        for block in read_blocks(self.path):
            if block.chain in parts:
                parts[block.chain].append(block.first_step + np.flatnonzero(block.flags))
                if block.first_step == complete[block.chain]:
                    complete[block.chain] = block.end_step
        found = []
        for chain, of_chain in parts.items():
            if steps is not None and complete[chain] < steps:
                raise self._too_short(chain, steps, complete[chain])
            accepted = np.concatenate(of_chain)
            found.append(accepted if steps is None else accepted[accepted < steps])
        return found

    def cover(self) -> Cover:
        """Read the whole file and say which steps it holds and where its good bytes end."""
        complete: dict[int, int] = {}
        ends: dict[int, int] = {}
        good_bytes = len(FILE_HEADER)
        for block in read_blocks(self.path):
            if block.first_step == complete.get(block.chain, 0):
                complete[block.chain] = block.end_step
            ends[block.chain] = block.end_step
            good_bytes = block.end
        return Cover(complete, ends, good_bytes, self.path.stat().st_size > good_bytes)

    def truncate(self, steps_done: int) -> None:
        """Cut back to a checkpoint: exactly the steps below `steps_done` remain, of every chain.

        A RunError, and nothing changed, if the readable part of the log does not reach that far.
        """
        self._file = None
        self._gathered.clear()
        self._gathered_steps.clear()
        cover = self.cover()
        for chain in range(self.num_chains):
            if cover.ends.get(chain, 0) < steps_done:
                raise self._too_short(chain, steps_done, cover.ends.get(chain, 0))
        beyond = (block.start for block in read_blocks(self.path) if block.end_step > steps_done)
        prefix = next(beyond, cover.good_bytes)  # the blocks up to here stay as they are
        if any(block.start >= prefix and _begins_by(block, steps_done) for block in read_blocks(self.path)):
            durable.write_atomic(self.path, self._cut_bytes(prefix, steps_done))
        elif prefix < self.path.stat().st_size:
            durable.cut(self.path, prefix)

    def _cut_bytes(self, prefix: int, steps_done: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while left := prefix - file.tell():
                yield file.read(min(_PIECE, left))
        for block in read_blocks(self.path):
            if block.start >= prefix and _begins_by(block, steps_done):
                yield encode(block.chain, block.first_step, block.flags[: steps_done - block.first_step])

    def _encode_gathered(self, chain: int, file: AppendFile) -> None:
        num_steps = self._gathered_steps.pop(chain, 0)
        parts = self._gathered.pop(chain, [])
        if num_steps:
            flags = np.concatenate(parts)
            first_step = self._next_step[chain] - num_steps
            for start in range(0, num_steps, MAX_BLOCK_STEPS):
                file.add(encode(chain, first_step + start, flags[start : start + MAX_BLOCK_STEPS]))

    def _open(self) -> AppendFile:
        if self._file is None:
            cover = self.cover()
            if cover.is_damaged:
                words = f"{self.path} has a torn end at byte {cover.good_bytes}: resume the run, which cuts it"
                raise DamagedError(words)
            self._next_step = dict(cover.ends)
            self._file = AppendFile(self.path, cover.good_bytes)
        return self._file

    def _too_short(self, chain: int, wanted: int, found: int) -> DamagedError:
        words = f"{self.path} is whole only up to step {found} of chain {chain}, not {wanted}"
        return DamagedError(f"{words}: restore it from a copy")


def _begins_by(block: Block, steps_done: int) -> bool:
    """Whether something of the block stays when the log is cut back: steps, or the end of a gap."""
    return block.first_step < steps_done + (len(block.flags) == 0)
