"""Run solvers one after the other until a tolerance reaches the gap asked for.

Each runs in a process of its own.
"""

import multiprocessing
import os
import queue
import statistics
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

#: Seconds that there are for compilation, beside the limit.
COMPILING = 30


def _work(solve, tolerance, measure, repeats, limit, results):
    solve(tolerance, True)  # compile on a toy
    spent = []

    def solve_in_time():
        start = time.process_time()
        solution = solve(tolerance, False)
        spent.append(time.process_time() - start)
        return solution

    solution = solve_in_time()  # compiles what the toy does not need
    if spent[0] < limit + COMPILING:
        spent.clear()
        while len(spent) < repeats and sum(spent) < limit:
            solution = solve_in_time()
    results.put((statistics.median(spent), measure(solution)))


def race(solve, measure, wanted, tolerances, limit, repeats=5):
    """Return (CPU seconds, gap, tolerance) of the loosest tolerance that reaches the gap.

    Seconds are inf at the limit.

    `solve(tolerance, toy)` returns a solution, `measure(solution)` its relative gap.  Seconds are
    medians, without the first, for which there is half a minute more.
    """
    context = multiprocessing.get_context("fork")
    gap = float("inf")
    for tolerance in tolerances:
        results = context.Queue()
        process = context.Process(
            target=_work, args=(solve, tolerance, measure, repeats, limit, results)
        )
        process.start()
        try:
            seconds, gap = results.get(timeout=2 * limit + COMPILING)
        except queue.Empty:
            process.kill()
            return float("inf"), gap, tolerance
        finally:
            process.join()
        if gap <= wanted and seconds <= limit:
            return seconds, gap, tolerance
        if seconds > limit:
            break
    return float("inf"), gap, tolerance


def report(case, rows):
    """Print a line per solver, with the ratio to ours, which comes first."""
    ours = rows[0][1][0]
    for name, (seconds, gap, tolerance) in rows:
        ratio = seconds / ours if seconds < float("inf") else float("inf")
        print(
            f"{case:28s} {name:10s} {seconds:9.4f} s  gap {gap:.1e}  tol {tolerance:.0e}  "
            f"x{ratio:.2f}",
            flush=True,
        )
