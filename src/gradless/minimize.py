"""`gl.minimize`: any Python function of an array, minimised by MC or aMC; and the same as a method of scipy."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradless.asktell import AskTell
from gradless.asktell.chain import MOST_ROWS
from gradless.engine.plan import A_NUMBER, check_whole
from gradless.kernels import AMC
from gradless.settings import POSITIVE, check
from gradless.types import Algorithm
from gradless.workers import Call, Evaluate, evaluating

TARGET, XTOL, FROZEN, MAXFEV, MAXITER, CALLBACK = (
    (0, "the target is reached"),
    (0, "sigma has fallen below xtol"),
    (0, "sigma has fallen below what floating point can resolve"),
    (1, "the largest number of evaluations is reached"),
    (2, "the largest number of steps is reached"),
    (99, "the callback stopped it"),
)
Ending = tuple[int, str]
MOST = 2**31 - 1  # steps and evaluations


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    algorithm: Algorithm | None = None,
    sigma: float | None = None,
    epsilon: float | None = None,
    n_s: float | None = None,
    temperature: Any = None,
    seed: int = 0,
    maxfev: int | None = None,
    maxiter: int | None = None,
    target: float | None = None,
    xtol: float | None = None,
    bounds: Any = None,
    callback: Callable[..., Any] | None = None,
    workers: Any = 1,
    ahead: int | None = None,
    reevaluate_every: int | None = None,
) -> Any:
    """Minimise fun(x, *args) over arrays of the shape of x0, and return a scipy OptimizeResult.

    fun: any function that returns one number; it may be NumPy, C, or a simulation.
    x0: where the chain starts, an array of any shape.
    args: further arguments of `fun`.
    algorithm: `gl.amc(...)` or `gl.metropolis(...)`; without it aMC with the settings that follow.
    sigma, epsilon, n_s, temperature: settings of aMC, see `gl.amc`.
    seed: of all random numbers.
    maxfev: evaluations that the chain may use, by default 1000 for each number of x0.
    maxiter: steps that it may make.
    target: stop at a loss of this or less.
    xtol: stop when sigma falls below this.
    bounds: a scipy Bounds object, a pair for each number (None where open), or (low, high); moves are reflected there.
    callback: `callback(intermediate_result)` or `callback(x)` after each step; StopIteration in it ends the run.
    workers: how many processes evaluate at once, or an executor, or a map such as `pool.map`. They evaluate the next
        proposals ahead, as if each were rejected: the chain and its result are those of one worker.
    ahead: how many at once; by default the number of workers, or of the machine's cores where that is not known. One
        worker evaluates one point after the other and wastes none.
    reevaluate_every: for noisy functions, see `gl.AskTell`.

    The result has x and fun (the best point; at zero temperature the last), nfev (all evaluations begun), wasted (those
    of proposals thrown away), nit (steps), success, status, message, acceptance, sigma and nonfinite.
    """
    given = {"sigma": sigma, "epsilon": epsilon, "n_s": n_s, "temperature": temperature}
    chain = AskTell(x0, _algorithm(algorithm, given), seed, bounds=bounds, reevaluate_every=reevaluate_every)
    maxfev = min(1000 * chain.x.size, MOST) if maxfev is None else maxfev
    for name, limit, most in (("maxfev", maxfev, MOST), ("maxiter", maxiter, MOST), ("ahead", ahead, MOST_ROWS)):
        if limit is not None:
            check_whole(name, limit, least=1, most=most)
    if target is not None:
        check("target", target, A_NUMBER)
    if xtol is not None:
        check("xtol", xtol, POSITIVE)
    if not callable(fun):
        raise ValueError(f"fun must be a function, got {fun!r}")
    search = Search(chain, maxfev, maxiter, target, xtol, _callback(callback))
    call = Call(fun, args if isinstance(args, tuple) else (args,))
    with evaluating(call, workers, ahead) as (evaluate, num):
        search.go(evaluate, num)
    return search.result()


def scipy_method(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    tol: float | None = None,
    disp: bool = False,
    **options: Any,
) -> Any:
    """`scipy.optimize.minimize(fun, x0, method=gl.scipy_method, options={"sigma": 0.1})`: gl.minimize inside scipy.

    It is called by scipy and not by you.

    fun, x0, args, bounds, callback: as scipy passes them on.
    jac, hess, hessp, constraints: refused if they are given.
    tol: the xtol of `gl.minimize`.
    disp: print how it ended; an option that all methods of scipy have.
    options: all other arguments of `gl.minimize`.
    """
    for name, value in (("jac", jac), ("hess", hess), ("hessp", hessp)):
        if value is not None and value is not False:
            raise ValueError(f"{name} must not be given: this method uses no derivatives")
    if not isinstance(constraints, list | tuple) or len(constraints):
        raise ValueError("constraints must not be given: this method has bounds only; let fun return inf outside")
    known = set(inspect.signature(minimize).parameters) - {"fun", "x0", "args", "bounds", "callback"}
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"options must be among {', '.join(sorted(known | {'disp'}))}, got {unknown[0]}")
    if tol is not None:
        check("tol", tol, POSITIVE)
        options.setdefault("xtol", tol)
    found = minimize(fun, x0, args, bounds=bounds, callback=callback, **options)
    if disp:
        print(f"{found.message}: {found.fun:.6g} after {found.nit:,} steps, {found.nfev:,} evaluations")
    return found


class Search:
    """A chain that evaluates its own proposals until something ends it."""

    def __init__(
        self,
        chain: AskTell,
        maxfev: int,
        maxiter: int | None,
        target: float | None,
        xtol: float | None,
        callback: Callable[[Any], None],
    ):
        self.chain, self.maxfev = chain, maxfev
        self.maxiter = math.inf if maxiter is None else maxiter
        self.target = -math.inf if target is None else target
        self.xtol = 0.0 if xtol is None else xtol
        self.callback = callback
        self.begun = 0  # evaluations
        self.sigma = math.nan  # when the chain was last looked at for being frozen
        self.ending: Ending | None = None

    def go(self, evaluate: Evaluate, num: int) -> None:
        """Evaluate up to `num` proposals at a time until the end."""
        while self.ending is None:
            points = self.chain.ask(min(num, self.maxfev - self.chain.evaluations))
            tickets, after = list(self.chain.tickets), self.chain.after
            self.begun += len(tickets)
            for ticket, loss in zip(tickets, evaluate(points), strict=True):
                step = self.chain.step
                self.chain.tell(loss, ticket)
                if self.chain.step > step:
                    self._call_back()
                self.ending = self.ending or self._reason_to_end()
                if self.ending or self.chain.after != after:
                    break  # the other proposals are thrown away, whatever came of them

    def result(self) -> Any:
        """Return where the chain stands, in scipy's form."""
        from scipy.optimize import OptimizeResult

        chain, (status, message) = self.chain, self.ending or (0, "")
        return OptimizeResult(
            x=chain.best.x.copy(),
            fun=chain.best.loss,
            nfev=self.begun,
            nit=chain.step,
            success=status == 0,
            status=status,
            message=message,
            acceptance=chain.accepted / max(chain.step, 1),
            sigma=chain.sigma,
            wasted=self.begun - chain.evaluations,
            nonfinite=chain.nonfinite,
        )

    def _call_back(self) -> None:
        try:
            self.callback(self.result)
        except StopIteration:
            self.ending = CALLBACK

    def _reason_to_end(self) -> Ending | None:
        chain, sigma = self.chain, self.chain.sigma
        if chain.best.loss <= self.target:
            return TARGET
        if sigma < self.xtol:
            return XTOL
        if sigma != self.sigma:
            self.sigma = sigma
            if chain.is_frozen:
                return FROZEN
        if chain.evaluations >= self.maxfev:
            return MAXFEV
        return MAXITER if chain.step >= self.maxiter else None


def _algorithm(algorithm: Algorithm | None, given: dict[str, Any]) -> Algorithm:
    given = {name: value for name, value in given.items() if value is not None}
    if algorithm is None:
        return AMC(**given)
    if given:
        name = next(iter(given))
        raise ValueError(f"{name} must be a setting of the algorithm when one is given, got {name}={given[name]!r}")
    return algorithm


def _callback(callback: Callable[..., Any] | None) -> Callable[[Callable[[], Any]], None]:
    """Return a function of `result` that calls the user's in the form that its signature asks for, as scipy does."""
    if callback is None:
        return lambda result: None
    if not callable(callback):
        raise ValueError(f"callback must be a function, got {callback!r}")
    try:
        names = set(inspect.signature(callback).parameters)
    except (TypeError, ValueError):  # some compiled functions have no signature
        names = set()
    if names == {"intermediate_result"}:
        return lambda result: callback(intermediate_result=result())
    return lambda result: callback(np.copy(result().x))
