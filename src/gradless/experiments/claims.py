"""A claim of the paper and what became of it: one row, one line of PASS, FAIL or NOT DECIDED AT THIS SCALE."""

from collections.abc import Sequence
from typing import NamedTuple

PASS, FAIL, NOT_DECIDED = "PASS", "FAIL", "NOT DECIDED AT THIS SCALE"


class Verdict(NamedTuple):
    """What one claim says, what was measured, the rule, and the outcome."""

    claim: str  # its id in the table of claims, for instance "F3a"
    says: str  # the claim in a few words
    measured: str
    rule: str
    outcome: str  # PASS, FAIL or NOT_DECIDED
    differs: str = ""  # where we deviate from the paper's text, and why


def judge(
    claim: str, says: str, measured: str, rule: str, holds: bool, is_decided: bool = True, differs: str = ""
) -> Verdict:
    """Return the verdict; a scale too small to decide never passes."""
    outcome = (PASS if holds else FAIL) if is_decided else NOT_DECIDED
    return Verdict(claim, says, measured, rule, outcome, differs)


def not_run(claim: str, says: str, missing: Sequence[str], rule: str) -> Verdict:
    """Return the verdict on a claim whose runs are not all there."""
    return judge(claim, says, f"not run yet: {', '.join(missing)}", rule, holds=False, is_decided=False)
