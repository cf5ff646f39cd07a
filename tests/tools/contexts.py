"""A plugin of pytest that tells `mutants.py` which test is at work, its seconds and its end.

Each event is a line of JSON in the file that MUTANTS_LOG names. Where coverage is measured, each
test is a context, and so is the setup of each fixture that several tests share. Processes that a
test starts find its name in MUTANTS_CONTEXT.
"""

import contextlib
import json
import os
import time
from collections.abc import Generator
from typing import Any

import pytest

try:
    from coverage import Coverage
except ImportError:  # it is needed only to make a map
    Coverage = None

LOG, CONTEXT = "MUTANTS_LOG", "MUTANTS_CONTEXT"


def pytest_configure(config: pytest.Config) -> None:
    """Watch the process that runs tests, where a log is asked for."""
    works = hasattr(config, "workerinput") or not config.getoption("numprocesses", 0)
    if works and LOG in os.environ:
        config.pluginmanager.register(Watcher())


def write(**event: Any) -> None:
    """Add a line to the log, in one write, as processes share it."""
    with open(os.environ[LOG], "a") as file:
        file.write(json.dumps(event) + "\n")


@contextlib.contextmanager
def context(name: str) -> Generator[None]:
    """Count lines as those of `name`."""
    before = os.environ.get(CONTEXT, "")
    switch(name)
    try:
        yield
    finally:
        switch(before)


def switch(name: str) -> None:
    """Name what runs from here on, and in processes that begin from here on."""
    os.environ[CONTEXT] = name
    if Coverage and Coverage.current():
        Coverage.current().switch_context(name)


def shared(fixtures: Any) -> list[str]:
    """Return names for the fixtures that more than one test may use; no test has such a name."""
    return [f"fixture {f.baseid}::{f.argname}" for f in fixtures if f.scope != "function"]


class Watcher:
    """The hooks, and what they know of the test at work."""

    test, apart = "", 0.0  # `apart`: seconds of shared fixtures that the test had to set up

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        """Run tests that are named one by one in that order."""
        rank = {name: number for number, name in enumerate(config.args)}
        items.sort(key=lambda item: rank.get(item.nodeid, len(rank)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator:
        self.test, self.apart = item.nodeid, 0.0
        found = item._fixtureinfo.name2fixturedefs.values()
        names = [name for fixtures in found for name in shared(fixtures)]
        write(event="begin", test=self.test, fixtures=names)
        with context(self.test):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator:
        if fixturedef.scope == "function":
            return (yield)
        [name], before, started = shared([fixturedef]), self.apart, time.perf_counter()
        try:
            with context(name):
                return (yield)
        finally:
            taken = time.perf_counter() - started
            own = taken - (self.apart - before)  # without the fixtures that it asked for
            self.apart = before + taken
            write(event="fixture", test=self.test, fixtures=[name], seconds=own)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = report.duration - (self.apart if report.when == "setup" else 0)
        write(event="end", test=report.nodeid, outcome=report.outcome, seconds=seconds)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            write(event="end", test=report.nodeid, outcome="failed", seconds=0)

    def pytest_sessionfinish(self) -> None:
        measured = Coverage and Coverage.current()
        if measured:
            measured.save()  # a process of xdist may end without
