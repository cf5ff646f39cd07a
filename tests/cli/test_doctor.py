"""The doctor: facts agree with another source, and each trouble is reported where it is planted."""

import copy
import json
import re
import sys
import tomllib
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import cli, doctor
from bert_jax.system import machine
from tests import texts

HEALTHY: dict[str, Any] = {
    "versions": {"jax": "0.10.2"},
    "machine": {
        "memory_bytes": 16 * 2**30,
        "cache": "/cache",
        "cache_free_bytes": 100 * 2**30,
        "workdir": "/work",
        "workdir_free_bytes": 100 * 2**30,
    },
    "devices": {"backend": "cpu", "count": 1, "matmul": {"correct": True}},
    "corpora": [],
}
GPUS = {"backend": "gpu", "count": 2, "matmul": {"correct": True}}


def test_json_is_one_object_with_the_facts(capsys, cache):
    assert cli.execute(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["python"] == sys.version.split()[0]
    assert report["versions"]["numpy"] == np.__version__
    assert report["devices"]["count"] == jax.device_count()
    assert report["devices"]["matmul"]["correct"]
    assert report["machine"]["cache"] == str(cache)
    assert not any("not installed" in warning for warning in report["warnings"])


def test_doctor_knows_every_package_of_the_project():
    project = tomllib.loads((texts.ROOT / "pyproject.toml").read_text())["project"]
    named = {re.split("[><=]", entry)[0] for entry in project["dependencies"]}
    assert {*doctor.NEEDED} == named | {"jaxlib"}


def test_doctor_answers_without_jax():
    """The machine the doctor is called to may lack what training needs."""
    source = (
        "import sys\nfor name in ('jax', 'tokenizers'): sys.modules[name] = None\n"
        "from bert_jax import cli\ncli.main(['doctor'])"
    )
    done = texts.run_python(source)
    assert done.returncode == 0, done.stderr
    assert "jax finds no device: " in done.stdout


# --- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value", "warning"),
    [
        ("versions.jax", None, "jax is not installed: run make venv"),
        ("machine.cache_free_bytes", 2**30, "/cache has only 1.0 GiB free"),
        ("machine.memory_bytes", 2**30, "only 1.0 GiB of memory"),
        ("devices", {"error": "no backend", "backend": None}, "jax finds no device: no backend"),
        ("devices", GPUS, "2 GPUs but no NCCL: they cannot work together"),
        ("devices.matmul.correct", False, "a product of small whole numbers is wrong"),
        ("environment", {"JAX_ENABLE_X64": "TRUE"}, "JAX_ENABLE_X64=TRUE: 64-bit numbers"),
        ("environment", {"XLA_FLAGS": "--xla_cpu_use_onednn=true"}, "oneDNN fails to compile"),
    ],
)
def test_trouble_is_reported(place, value, warning, monkeypatch):
    monkeypatch.setattr(doctor, "_has_nccl", lambda: False)
    report = copy.deepcopy(HEALTHY | {"environment": {}})
    *parents, leaf = place.split(".")
    node = report
    for name in parents:
        node = node[name]
    node[leaf] = value
    (found,) = doctor.list_warnings(report, report["environment"])
    assert warning in found
    variables = {"XLA_FLAGS": "--xla_cpu_use_onednn=false", "JAX_ENABLE_X64": "0"}
    assert doctor.list_warnings(HEALTHY, variables) == []


@pytest.mark.parametrize(
    ("platforms", "why"), [("", "install the extra cuda"), ("cpu", "JAX_PLATFORMS=cpu")]
)
def test_gpu_that_jax_leaves_idle_is_explained(platforms, why, monkeypatch):
    monkeypatch.setattr(doctor.Path, "is_dir", lambda _: True)
    (found,) = doctor.list_warnings(HEALTHY, {"JAX_PLATFORMS": platforms})
    assert found == f"there is an NVIDIA GPU but jax runs on the CPU: {why}"


def test_wrong_product_is_noticed(monkeypatch):
    monkeypatch.setattr(jax.numpy, "matmul", lambda x, y, precision: (x @ y).at[3, 5].add(1.0))
    assert not machine.check_matmul(size=64)["correct"]
