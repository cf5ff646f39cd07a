"""The doctor: facts agree with another source, and each known trouble is reported where it is
planted.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import cli, config, doctor
from bert_jax.config import knobs
from bert_jax.config.presets import ABOUT, PRESETS
from bert_jax.data import corpus
from bert_jax.system import machine

HEALTHY = {
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
    "optional": {"torch": None},
    "machine": {
        "system": "Linux",
        "cores": 2,
        "memory_bytes": 16 * 2**30,
        "allocator": "keeps its memory while training",
        "cache": "/cache",
        "cache_free_bytes": 100 * 2**30,
        "workdir": "/work",
        "workdir_free_bytes": 100 * 2**30,
    },
    "devices": {
        "backend": "cpu",
        "count": 1,
        "kinds": ["cpu"],
        "matmul": {"size": 512, "correct": True, "gigaflops": 100.0},
    },
    "corpora": [],
}


SPLITS = {
    "train": {"documents": 3, "sentences": 5, "tokens": 12},
    "validation": {"documents": 1, "sentences": 2, "tokens": 4},
}


def _write_corpus(folder, fingerprint):
    """The manifest and audit of a prepared corpus."""
    folder.mkdir()
    manifest = {
        "format": corpus.FORMAT,
        "fingerprint": fingerprint,
        "splits": SPLITS,
        "tokenizer": {"hash": "h", "size": 99},
    }
    audit = {
        "fingerprint": fingerprint,
        "source": "files",
        "vocab_size": 99,
        "unigram_entropy": 3.5,
        "warnings": ["w"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "audit.json").write_text(json.dumps(audit | {"more": 1}))


def test_the_json_is_one_object_with_the_facts(capsys, cache):
    assert cli.execute(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["python"] == sys.version.split()[0]
    assert report["versions"]["jax"] == jax.__version__
    assert report["versions"]["numpy"] == np.__version__
    assert report["devices"]["count"] == jax.device_count()
    assert report["devices"]["backend"] == "cpu"
    assert report["devices"]["matmul"]["correct"]
    assert report["devices"]["matmul"]["gigaflops"] > 0
    assert report["machine"]["cache"] == str(cache)
    assert not any("not installed" in warning for warning in report["warnings"])


def test_the_text_has_every_fact_of_the_json(capsys):
    report = copy.deepcopy(HEALTHY) | {"warnings": ["one", "two"]}
    counts = {"documents": 3, "sentences": 5, "tokens": 1200}
    facts = {
        "folder": "/cache/abc",
        "source": "files",
        "vocab_size": 8000,
        "unigram_entropy": 6.314,
    }
    report["corpora"] = [
        facts | {"splits": {"train": counts}},
        {"folder": "/cache/bad", "error": "DataError: bad"},
    ]
    lines = doctor.as_text(report).splitlines()
    for fact in (
        "3.11.7",
        "0.10.2",
        "absent (optional)",
        "2 cores, 16.0 GiB",
        "/cache, 100.0 GiB free",
        "1 x cpu",
    ):
        assert sum(fact in line for line in lines) == 1, fact
    assert any(
        "/cache/abc (files): 8,000 tokens of vocabulary, 6.31 nats" in line for line in lines
    )
    assert any("train: 3 documents, 5 sentences, 1,200 tokens" in line for line in lines)
    assert [line.split()[-1] for line in lines if line.startswith("warning")] == ["one", "two"]
    report["devices"] = {"error": "RuntimeError: none", "backend": None, "count": 0, "kinds": []}
    assert "0 x" in doctor.as_text(report)


def test_prepared_corpora_are_found_with_their_counts(tmp_path):
    _write_corpus(tmp_path / "one", "f1")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "manifest.json").write_text(
        json.dumps(
            {
                "format": corpus.FORMAT,
                "fingerprint": "f",
                "splits": {"train": 3},
                "tokenizer": {"hash": "h", "size": 99},
            }
        )
    )
    (tmp_path / "odd" / "audit.json").write_text((tmp_path / "one" / "audit.json").read_text())
    (tmp_path / "unfinished" / "train").mkdir(parents=True)
    broken, odd, one = doctor.corpora(
        tmp_path
    )  # in the order of their names; an unfinished one has no manifest
    assert "not JSON" in broken["error"]
    assert "splits.train is 3, not an object" in odd["error"]
    assert doctor.warnings(HEALTHY | {"corpora": [one]}, {}) == [f"{tmp_path / 'one'}: w"]
    assert one == {
        "folder": str(tmp_path / "one"),
        "fingerprint": "f1",
        "source": "files",
        "vocab_size": 99,
        "unigram_entropy": 3.5,
        "warnings": ["w"],
        "splits": SPLITS,
    }


@pytest.mark.parametrize("value", ["", "~/somewhere", "/tmp/elsewhere"])
def test_the_cache_is_where_prepare_puts_things(monkeypatch, value):
    monkeypatch.setenv("BERT_JAX_DATA", value)
    assert machine.cache_folder() == corpus.find_cache(knobs.Corpus())


def test_no_cache_means_no_corpora(tmp_path):
    assert doctor.corpora(tmp_path / "absent") == []


def test_absent_package_has_no_version():
    assert machine.versions(("numpy", "no-such-package")) == {
        "numpy": np.__version__,
        "no-such-package": None,
    }


def test_every_needed_package_is_a_requirement_of_ours():
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())[
        "project"
    ]
    ours = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert set(doctor.NEEDED) <= ours | {"jaxlib"}  # which jax requires


# --- presets --------------------------------------------------------------------------------------

NAMES = ("google_2018", "mosaic")


def test_two_presets_differ_where_their_values_do(capsys):
    assert cli.execute(["doctor", "--preset-diff", "google_2018", "mosaic"]) == 0
    head, *rest = capsys.readouterr().out.splitlines()
    table = {line.split()[0]: line for line in rest[: rest.index("")]}
    one, other = (config.flat(config.to_dict(config.resolve(config.default(n)))) for n in NAMES)
    shared = one.keys() & other.keys()  # only the first has the objective nsp, by its pairs
    assert {path for path in shared if one[path] != other[path]} <= table.keys()
    first, second = head.index("google_2018"), head.index("mosaic")
    cells = {
        path: (line[first:second].strip(), line[second:].strip()) for path, line in table.items()
    }
    assert cells["model.position"] == ("[learned]", "alibi")  # in brackets: the default
    assert cells["pairs"] == ("[nsp]", "none")
    assert cells["masking.overflow"] == ("skip", "[fair]")
    assert cells["optim.no_decay"] == ("[norm/|bias$]", '""')
    assert cells["model.gated"] == ("[false]", "true")
    assert "optim.b1" not in cells
    abouts = " ".join(" ".join(rest[rest.index("") :]).split())
    for name in NAMES:
        assert f"{name}: {' '.join(ABOUT[name].split())}" in abouts
    assert all(len(line) <= 100 for line in rest[rest.index("") :])


def test_the_comparison_as_json_and_with_the_defaults(capsys):
    assert cli.execute(["doctor", "--json", "--preset-diff", "defaults", "wettig"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["presets"] == ["defaults", "wettig"]
    assert found["knobs"]["masking.rate"] == {"values": [0.15, 0.4], "named": [False, True]}
    assert found["knobs"]["masking.replace"]["values"] == [[0.8, 0.1, 0.1], [1.0, 0.0, 0.0]]
    assert found["knobs"].keys() == PRESETS["wettig"].keys()
    assert len(found["about"]) == 2
    for same in ("wettig", "defaults"):
        assert doctor.compare(same, same)["knobs"] == {}


@pytest.mark.parametrize(
    ("names", "meant"),
    [(("google2018", "roberta"), "google_2018"), (("roberta", "default"), "defaults")],
)
def test_a_misspelt_preset_ends_in_one_line(capsys, names, meant):
    assert cli.execute(["doctor", "--preset-diff", *names]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: no preset ")
    assert f"hint: did you mean {meant!r}? one of: google_2018, " in said.err
    assert cli.execute(["doctor", "--preset-diff", "roberta"]) == 2


# --- trouble --------------------------------------------------------------------------------------


def test_a_healthy_machine_has_no_warnings():
    assert doctor.warnings(HEALTHY, {"XLA_FLAGS": "--xla_something=1", "JAX_ENABLE_X64": "0"}) == []


@pytest.mark.parametrize(
    ("place", "value", "warning"),
    [
        (
            "versions.importlib_resources",
            None,
            "importlib_resources is not installed: run make venv",
        ),
        ("machine.cache_free_bytes", 2**30, "/cache has only 1.0 GiB free"),
        ("machine.workdir_free_bytes", 2**30, "/work has only 1.0 GiB free"),
        ("machine.memory_bytes", 2**30, "only 1.0 GiB of memory"),
        (
            "devices",
            {"error": "RuntimeError: no backend", "backend": None},
            "jax finds no device: RuntimeError",
        ),
        ("devices.matmul.correct", False, "a product of small whole numbers is wrong"),
        (
            "corpora",
            [{"folder": "/cache/x", "error": "DataError: bad"}],
            "/cache/x: DataError: bad",
        ),
    ],
)
def test_trouble_is_reported(place, value, warning):
    report = copy.deepcopy(HEALTHY)
    *parents, leaf = place.split(".")
    node = report
    for name in parents:
        node = node[name]
    node[leaf] = value
    (found,) = doctor.warnings(report, {})
    assert warning in found


def test_several_gpus_need_nccl(monkeypatch):
    report = copy.deepcopy(HEALTHY)
    report["devices"] |= {"backend": "gpu", "count": 2}
    monkeypatch.setattr(doctor, "_has_nccl", lambda: False)
    (found,) = doctor.warnings(report, {})
    assert "2 GPUs but no NCCL" in found
    monkeypatch.setattr(doctor, "_has_nccl", lambda: True)
    assert doctor.warnings(report, {}) == []


@pytest.mark.parametrize("rule", sorted(doctor.ENVIRONMENT))
def test_bad_variable_is_reported_with_its_reason(rule):
    variable, *parts = rule.split()
    for part in parts:
        (found,) = doctor.warnings(HEALTHY, {variable: part.upper()})
        assert variable in found
        assert doctor.ENVIRONMENT[rule] in found


def test_a_wrong_product_is_noticed(monkeypatch):
    monkeypatch.setattr(jax.numpy, "matmul", lambda x, y, precision: (x @ y).at[3, 5].add(1.0))
    assert not machine.matmul(size=64)["correct"]


def test_it_answers_without_jax():
    """The machine the doctor is called to may lack what training needs."""
    source = (
        "import sys\nfor name in ('jax', 'tokenizers'): sys.modules[name] = None\n"
        "from bert_jax import cli\ncli.main(['doctor'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "jax finds no device: " in done.stdout
