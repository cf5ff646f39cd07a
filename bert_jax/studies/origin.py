"""The origin of a study's results: when and where cells were made, by which command and commits."""

import datetime
import platform
from collections.abc import Sequence
from typing import Any

from bert_jax.studies import files
from bert_jax.studies.engines import local
from bert_jax.studies.spec import StudyRecord
from bert_jax.system import machine

FIELDS = ("begun", "versions", "git_commit", "commits", "command", "machine")


def describe_origin(
    command: Sequence[str],
    before: StudyRecord | None,
    sources: Sequence[StudyRecord],
    *,
    trains: bool,
) -> dict[str, Any]:
    """List the fields of a study's record that say when, by what and where it was run.

    Args:
      command: the command line of this launch.
      before: the record of an earlier launch.
      sources: the records of the studies from which finished cells are taken. Their commits, and
        their earliest beginning, are those of this study too.
      trains: whether this launch trains or evaluates a cell. Otherwise the other fields stay as
        they are in the first record.
    """
    records = [*([before] if before else []), *sources]
    commits = [name for record in records for name in record.commits or [record.git_commit]]
    if trains:
        commits.append(machine.git_commit())
    times = [record.begun for record in records if record.begun]
    begun = min(times or [files.tell_time()], key=datetime.datetime.fromisoformat)
    merged = {"begun": begun, "commits": tuple(dict.fromkeys(filter(None, commits)))}
    if records and not trains:
        return {name: getattr(records[0], name) for name in FIELDS} | merged
    return merged | {
        "versions": {"python": platform.python_version()} | machine.list_versions(machine.RECORDED),
        "git_commit": machine.git_commit(),
        "command": tuple(command),
        "machine": {
            "platform": platform.platform(),
            "cores": machine.count_cores(),
            "memory_bytes": machine.count_memory(),
            "devices": len(local.find_accelerators()),
        },
    }
