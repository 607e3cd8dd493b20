"""Any traced loss in forms that a CPU computes faster: the same numbers up to rounding."""

from gradless.faster.rewrite import faster, multiplies_bytes

__all__ = ["faster", "multiplies_bytes"]
