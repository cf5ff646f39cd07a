"""From text to arrays: the same bytes whatever the workers, the kills and the order of arrival."""

import dataclasses
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import corpus, encode, engines, files, prepare
from bert_jax.data.prepare import DROPPED, TRAIN, VALIDATION, choose_sides
from bert_jax.errors import DataError
from tests.data import small


@pytest.mark.fault(13, 14)
def test_prepare_holds_every_sentence_once(tmp_path):
    given = small.make_documents(200)
    given[7] = given[3]
    small.write_text(tmp_path / "in", [*given, ["Only.", "[MASK] it."]])
    found = small.run(tmp_path)
    expected = [[line.lower() for line in lines] for lines in given]
    del expected[7]
    expected.append(["only.", "[ mask ] it."])
    places = []
    for split in corpus.SPLITS:
        numbers = [expected.index(lines) for lines in small.read_split(found, split)]
        assert numbers == sorted(numbers)
        places.append(set(numbers))
    train, validation = places
    assert train | validation == set(range(200))
    assert not train & validation
    assert len(validation) > 5


@pytest.mark.parametrize("size", [100, 70_000])
def test_prepare_stores_ids_in_the_smallest_type(tmp_path, size):
    vocab = [*engines.SPECIALS, "a", "b", *(f"z{i}" for i in range(size))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    given = [["a b", f"z{size - 1}"], ["b a"]]
    small.write_text(tmp_path / "in", given)
    found = small.run(tmp_path, vocabulary=str(tmp_path / "vocab.txt"))
    kinds = {split.tokens.dtype for split in found.splits.values()}
    assert kinds == {np.dtype(np.uint16 if size == 100 else np.uint32)}
    texts = [text for name in corpus.SPLITS for text in small.read_split(found, name)]
    assert sorted(texts) == given


def test_prepare_cuts_a_document_longer_than_a_part(tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "DOCUMENT", 1000)
    monkeypatch.setattr(files, "PART", 400)
    lines = [f"{small.WORDS[i % 60]} {small.WORDS[i // 60]}." for i in range(300)]
    small.write_text(tmp_path / "in", [lines, ["the end."]])
    found = small.run(tmp_path, validation_fraction=0.0)
    texts = small.read_split(found, "train")
    assert [line for text in texts[:-1] for line in text] == lines
    assert 3 < len(texts) < 6
    assert texts[-1] == ["the end."]


def choose(texts: list[int], share: float, starts: list[bool] | None = None, **options):
    """Choose the sides of texts with these digests, each with a sentence."""
    records = np.zeros(len(texts), encode.RECORD)
    records["digest"] = texts
    records["sentences"] = 1
    records["starts"] = 1 if starts is None else starts
    return choose_sides(records, knobs.Corpus(validation_fraction=share, **options))


@pytest.mark.fault(14)
def test_sides_drop_copies_and_follow_the_text_alone():
    digests = np.random.default_rng(0).integers(0, 2**64, 2000, np.uint64).tolist()
    sides, _, counts = choose(digests + digests[:50], 0.1)
    assert counts == {"documents": 2050, "empty": 0, "duplicates": 50}
    assert (sides[2000:] == DROPPED).all()
    assert abs((sides == VALIDATION).mean() - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 2000)
    backwards, _, _ = choose(digests[::-1], 0.1)
    assert (backwards[::-1] == sides[:2000]).all()
    kept, _, _ = choose(digests + digests[:50], 0.1, deduplicate=False)
    assert (kept == np.concatenate([sides[:2000], sides[:50]])).all()


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(1, 0.5, 0), (2, 1e-6, 1), (9, 1e-6, 1), (9, 0.0, 0)]
)
def test_sides_of_few_documents_are_never_empty(count, share, expected):
    sides, _, _ = choose([2**60 * (i + 1) for i in range(count)], share)
    assert (sides == VALIDATION).sum() == expected


def test_sides_of_a_document_follow_its_first_text():
    """Also if the first text of a document is dropped."""
    digests = [2**63, 1, 2**63, 1, 2**62, 9]
    sides, starts, counts = choose(digests, 0.3, [True, False] * 3)
    assert sides.tolist() == [TRAIN, TRAIN, DROPPED, DROPPED, VALIDATION, VALIDATION]
    assert starts.tolist() == [True, False, False, False, True, False]
    assert counts["duplicates"] == 2


RUN = """
import json, resource, sys
from bert_jax.config import knobs
from bert_jax.data import encode, prepare
corpus, tokenizer, small = json.loads(sys.argv[1])
if small:
    prepare.TASK, encode.PART = 4000, 3000
config = knobs.Config(corpus=knobs.Corpus(**corpus), tokenizer=knobs.Tokenizer(**tokenizer))
folder = prepare.prepare_corpus(config, lambda message: None).folder
own = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])  # ru_maxrss is inherited
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([str(folder), own >> 10, workers >> 10]))
assert "jax" not in sys.modules
"""


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder with text for several tasks and parts."""
    monkeypatch.setattr(prepare, "TASK", 4000)
    monkeypatch.setattr(encode, "PART", 3000)
    for i in range(4):
        small.write_text(tmp_path / "in", small.make_documents(60, seed=i), f"{i}.txt")
    return tmp_path


def start(chosen: knobs.Config, small_tasks: bool = True) -> subprocess.Popen:
    """Start to prepare in a process that prints the folder, and its and its workers' MiB."""
    settings = [dataclasses.asdict(chosen.corpus), dataclasses.asdict(chosen.tokenizer)]
    settings.append(small_tasks)
    words = [sys.executable, "-c", RUN, json.dumps(settings)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_workers_change_no_byte_and_work_is_done_once(many, monkeypatch):
    one = small.run(many)
    several = small.run(many, workers=3, cache=str(many / "other"))
    assert small.digest_files(one.folder) == small.digest_files(several.folder)
    monkeypatch.setattr(prepare, "_prepare", lambda *_: pytest.fail("made again"))
    (work := one.folder.with_suffix(".work")).mkdir()  # a kill left it after the result was there
    assert small.run(many).fingerprint == one.fingerprint
    assert not work.exists()


@pytest.mark.parametrize(
    ("step", "done"), [("read_into_parts", "spool/*.json"), ("encode_part", "encoded/*.npz")]
)
def test_prepare_goes_on_after_an_interruption(many, monkeypatch, step, done):
    """After an exception at a third call, those that were finished are not made again."""
    counted = mock.Mock(wraps=getattr(encode, step), __name__=step)
    monkeypatch.setattr(encode, step, counted)
    whole = small.digest_files(small.run(many, cache=str(many / "whole")).folder)
    needed = counted.call_count
    counted.side_effect = [mock.DEFAULT, mock.DEFAULT, KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        small.run(many)
    counted.side_effect = None
    (work,) = (many / "cache").glob("*.work")
    assert len(list(work.glob(done))) == 2
    (work / "encoded" / ".draft.tmp").write_text("half")
    assert small.digest_files(small.run(many).folder) == whole
    assert counted.call_count == needed + 3 + needed - 2


def test_prepare_refuses_text_that_changes_meanwhile(tmp_path, monkeypatch):
    """Else arrays of the old text would stand under the name of the new."""
    folder = small.write_text(tmp_path / "in", small.make_documents(20))
    changed = small.make_documents(20, seed=1)
    learn = prepare.train_vocabulary

    def change_text(*given):
        small.write_text(folder, changed)
        return learn(*given)

    monkeypatch.setattr(prepare, "train_vocabulary", change_text)
    with pytest.raises(DataError, match="changed while it was prepared"):
        small.run(tmp_path)
    assert not list((tmp_path / "cache").glob("*.work"))
    found = small.run(tmp_path)
    texts = [text for name in corpus.SPLITS for text in small.read_split(found, name)]
    assert sorted(texts) == sorted(changed)


def test_a_killed_prepare_leaves_no_worker_and_goes_on(many):
    whole = small.digest_files(small.run(many, cache=str(many / "whole")).folder)
    chosen = small.configure(many, workers=2)
    process = start(chosen)
    deadline = time.monotonic() + 60
    while not list((many / "cache").glob("*.work/spool/*.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    while any(map(is_running, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, children))
    both = [start(chosen), start(chosen)]  # one of them waits
    outputs = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], outputs
    assert small.digest_files(Path(json.loads(outputs[0][0])[0])) == whole


def is_running(process: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.fault(10)
@pytest.mark.slow
def test_prepare_bounds_memory_for_a_large_line(tmp_path):
    sentence = " ".join(small.WORDS[:12]) + "."
    count = 16_000_000 // len(sentence)
    small.write_text(tmp_path / "in", [[" ".join([sentence] * count)], ["Another document."]])
    pieces = [*engines.SPECIALS, *small.WORDS, "."]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    chosen = small.configure(
        tmp_path, vocabulary=str(tmp_path / "vocab.txt"), sentences="auto", workers=2
    )
    folder, *peaks = json.loads(start(chosen, small_tasks=False).communicate()[0])
    counts = corpus.read_manifest(Path(folder)).splits
    assert counts["train"].sentences + counts["validation"].sentences == count + 1
    assert max(peaks) < 500, peaks
