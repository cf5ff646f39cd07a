"""The corpus source `hub`, against a server on this machine that speaks the hub's protocol."""

from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http, close_session

from bert_jax.config import knobs
from bert_jax.data import hub as source
from bert_jax.errors import DataError
from bert_jax.system import jsons
from tests.data import small
from tests.data.small import pack_parquet
from tests.hubs import BOOKS, NAME, NEW, OLD, Hub, serving

WIKI = ["\n".join(lines) for lines in small.make_documents(60)]
BOOK = ["\n".join(lines) for lines in small.make_documents(20, seed=1)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with two data sets, which is the hub of this process."""
    files = {
        "README.md": b"# about",
        "en/train-00000-of-00002.parquet": pack_parquet(WIKI[:30]),
        "en/train-00001-of-00002.parquet": pack_parquet(WIKI[30:]),
        "en/test-00000-of-00001.parquet": pack_parquet(["never read"] * 5),
        "de/train-00000-of-00001.parquet": pack_parquet(["nie gelesen"] * 5),
    }
    old = {**files, "en/train-00001-of-00002.parquet": pack_parquet(["old"] * 9)}
    made = Hub({NEW: files, OLD: old}, {"data/train-00000-of-00001.parquet": pack_parquet(BOOK)})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    with serving(made) as endpoint:
        connect(monkeypatch, endpoint)
        yield made
    close_session()


def connect(monkeypatch, endpoint: str) -> None:
    """Take an address for that of the hub."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    files = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)


def prepare(folder: Path, **options):
    """Prepare a data set of the hub, as a process that has not asked it for anything does."""
    source._list_files.cache_clear()
    return small.run(folder, **{"source": "hub", "path": f"{NAME}:en"} | options)


def choose(monkeypatch, path: str, split: str, *files: str) -> list[str]:
    """Return the files that are read, of a data set that holds `files`."""
    listing = NEW, dict.fromkeys(sorted(files), 1)
    monkeypatch.setattr(source, "_list_files", lambda repository, revision: listing)
    settings = knobs.Corpus(source="hub", path=path, split=split)
    items, _ = source.list_items(settings, Path("/nonexistent"))
    return [item.name.removeprefix(f"{NAME}/") for item in items]


def test_splits_are_told_by_files_or_folders(monkeypatch):
    converted = ("text/train/0000.parquet", "text/train/0001.parquet", "text/test/0000.parquet")
    assert choose(monkeypatch, NAME, "train", *converted) == list(converted[:2])
    assert choose(monkeypatch, f"{NAME}:text", "test", *converted) == [converted[2]]
    hashed = ("data/en-00000-of-00002-7cda8f63.parquet", "data/fr-00000-of-00001-5c2b3fd5.parquet")
    assert choose(monkeypatch, NAME, "en", *hashed) == [hashed[0]]
    untold = ("data/crawl/000_00000.parquet", "data/crawl/000_00001.parquet")
    assert choose(monkeypatch, NAME, "train", *untold) == list(untold)
    named = {  # the word may stand anywhere in a name, but for inside a word
        "validation": ["x/validation-00000.parquet"],
        "test": ["x/Test_sft.parquet", "x/b-test.00.parquet", "x/test/en/0-00000-of-00002.parquet"],
        "train_sft": ["x/train_sft-00000-of-00001.parquet"],
        "train": ["x/attest.parquet", "x/latest/0000.parquet", "x/training_1.parquet"],
    }
    everything = [file for listed in named.values() for file in listed]
    for split, listed in named.items():
        assert choose(monkeypatch, f"{NAME}:x", split, *everything) == listed
    languages = [f"{language}/train-00000-of-00001.parquet" for language in ("de", "en")]
    with pytest.raises(DataError, match="holds several texts, each in a folder"):
        choose(monkeypatch, NAME, "train", *languages)


@pytest.mark.parametrize("path", [f"{NAME}:en", f"{NAME}:en,{BOOKS}"], ids=["one", "several"])
def test_hub_datasets_are_the_text_of_their_files(hub, tmp_path, path):
    found = prepare(tmp_path, path=path)
    hub.refs["main"] = OLD
    pins = ",".join([NEW] * (1 + path.count(",")))
    assert prepare(tmp_path, path=path, revision=pins).folder == found.folder
    fetched = [path for method, path in hub.requests if method == "GET" and "resolve" in path]
    assert len(fetched) == 2 + path.count(",")
    assert not any("test-" in path or "/de/" in path for path in fetched)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(pack_parquet(WIKI + BOOK * path.count(",")))
    local = small.run(tmp_path)
    for split in ("train", "validation"):
        assert small.read_split(found, split) == small.read_split(local, split)


@pytest.mark.fault(27)
def test_hub_dataset_prepared_needs_no_network(hub, tmp_path, monkeypatch):
    folder = prepare(tmp_path).folder
    hub.refs["main"] = OLD  # the data set has changed since, and what was prepared stays
    assert prepare(tmp_path).folder == folder
    connect(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    for revision in ("", NEW):
        assert prepare(tmp_path, revision=revision).folder == folder
    with pytest.raises(DataError, match=f"{NAME}, revision {OLD} cannot be fetched") as caught:
        prepare(tmp_path, revision=OLD)
    assert caught.value.code == 3


def test_hub_commit_of_another_process_stays(tmp_path, monkeypatch):
    both = {f"{NAME}@": OLD, f"{BOOKS}@": OLD}

    def ask(repository: str, revision: str) -> tuple[str, dict[str, int]]:
        jsons.write(tmp_path / source.MEMORY, both)  # by the other process, meanwhile
        return NEW, {}

    monkeypatch.setattr(source, "_list_files", ask)
    assert source.identify(knobs.Corpus(source="hub", path=NAME), tmp_path)[-1] == OLD
    assert source._read_commits(tmp_path) == both


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"gated": True}, "on the hub it is behind a gate", "hf auth login"),
        ({"path": "owner/other"}, "on the hub it is not there", "hf auth login"),
        ({"path": f"{NAME}:fr"}, "holds no parquet files", "there are de, en"),
        ({"split": "trane"}, "has no split 'trane'", "one of test, train"),
        ({"text_field": "body"}, "has no column 'body'", "columns: text"),
    ],
)
def test_hub_names_what_cannot_be_read(hub, tmp_path, options, message, hint):
    hub.gated = options.pop("gated", False)
    with pytest.raises(DataError, match=message) as caught:
        prepare(tmp_path, **options)
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)
