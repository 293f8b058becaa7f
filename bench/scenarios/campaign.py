# SPDX-License-Identifier: Apache-2.0
"""Runs many cases in processes; each result is on disk before the next one counts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.scenarios.cases import Case
from bench.scenarios.results import FILE_NAME, Result, ResultFile

_LONGEST_CASE_S = 900
_AHEAD_PER_JOB = 2
_PARENT_LOOKED_FOR_S = 2.0

Runner = Callable[[Case], Result]


def attempt(case: Case) -> Result:
    """Run one case; whatever goes wrong becomes its result, since other cases go on."""
    # Loads the whole analysis, which only the processes that run cases need.
    from bench.scenarios.work import run_case

    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(_LONGEST_CASE_S)
    try:
        return Result(case.id, run_case(case))
    except Exception as error:  # noqa: BLE001  a crash is a finding of the benchmark
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return Result(case.id, None, f"{type(error).__name__} at {place}: {error}")
    finally:
        signal.alarm(0)


def run_campaign(
    cases: Sequence[Case], folder: Path, jobs: int, *, resume: bool = True, runner: Runner = attempt
) -> list[Result]:
    """Run what has not been run yet; results in the order of the cases. Ctrl-C leaves what has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    file = ResultFile(folder / FILE_NAME, resume=resume)
    results = {result.case: result for result in file.of(case.id for case in cases)}
    left = [case for case in cases if case.id not in results]
    try:
        with _progress(len(cases), len(results)) as advance:
            for result in _run(left, jobs, runner):
                file.append(result)
                results[result.case] = result
                advance()
    finally:
        file.close()
    return [results[case.id] for case in cases]


def _run(cases: Sequence[Case], jobs: int, runner: Runner) -> Iterator[Result]:
    """Results as they come. A process that dies takes the pool with it: who was under way runs alone."""
    waiting = iter(cases)
    exhausted = False
    while not exhausted:
        suspects: list[Case] = []
        with _pool(jobs) as pool:
            running: dict[Future[Result], Case] = {}
            try:
                yield from _fill(pool, waiting, running, jobs, runner)
                exhausted = True
            except BrokenProcessPool:
                suspects = list(running.values())
            except (KeyboardInterrupt, GeneratorExit):
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():  # what is under way would take long to end
                    process.terminate()
                raise
        for case in suspects:
            yield _alone(case, runner)


def _fill(
    pool: ProcessPoolExecutor,
    waiting: Iterator[Case],
    running: dict[Future[Result], Case],
    jobs: int,
    runner: Runner,
) -> Iterator[Result]:
    """Keep the pool busy; a case leaves ``running`` once its result is there."""
    while True:
        for case in islice(waiting, max(0, jobs * _AHEAD_PER_JOB - len(running))):
            # Noted first: a pool that is broken already refuses it.
            running[Future()] = case
            future = pool.submit(runner, case)
            running.popitem()
            running[future] = case
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            result = future.result()
            del running[future]
            yield result


def _alone(case: Case, runner: Runner) -> Result:
    with _pool(1) as pool:
        try:
            return pool.submit(runner, case).result()
        except BrokenProcessPool:
            return Result(case.id, None, "the process that ran it died")


def _pool(jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_depend_on, initargs=(os.getpid(),))


def _depend_on(parent: int) -> None:
    """In a worker: leave interrupts to the parent, and end when it has gone, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_LOOKED_FOR_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"it took longer than {_LONGEST_CASE_S} s")


@contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, nothing otherwise; on stderr, so that stdout holds the result only."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=total, completed=done)
        yield lambda: progress.advance(task)
