"""Signal norm: a step size for each parameter that keeps the change of every neuron's input about equal.

Paper: Sec. III B.
"""

from gradless.signal_norm.trace import Squares, TracedSignal, leaf_names, signal_norm, trace_signal

__all__ = ["Squares", "TracedSignal", "leaf_names", "signal_norm", "trace_signal"]
