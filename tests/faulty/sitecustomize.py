"""Make a process fail where BERT_JAX_FAULT says, if this folder is on its PYTHONPATH."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

SUBJECTS = ("bert_jax.training.runs", "bert_jax.evaluation.inference")


class Wrapper(importlib.abc.MetaPathFinder):
    """Changes a module once it has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in SUBJECTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            file = Path(__file__).resolve().parents[1] / "fault_points.py"
            found = importlib.util.spec_from_file_location("fault_points", file)
            fault_points = importlib.util.module_from_spec(found)
            found.loader.exec_module(fault_points)
            fault_points.plant(module, fault_points.read_fault())

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("BERT_JAX_FAULT"):
    sys.meta_path.insert(0, Wrapper())
