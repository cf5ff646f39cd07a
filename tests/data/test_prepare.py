"""From text to arrays: the same bytes whatever the workers, the kills and the order of arrival."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax import cli
from bert_jax import prepare as command
from bert_jax.config import knobs
from bert_jax.data import audit, corpus, encode, prepare, spool
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, DataError
from tests import reactions
from tests.data import small

CONFIGS = Path(__file__).parents[2] / "configs"


def read_audit(prepared: corpus.Prepared) -> dict:
    return json.loads((prepared.folder / "audit.json").read_text())


# --- what comes out -------------------------------------------------------------------------------


@pytest.mark.fault(13, 14)
def test_every_sentence_is_there_once_in_its_order(tmp_path):
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


def test_counts_agree_with_the_arrays(tmp_path):
    odd = [[], ["\u200b"], ["x" * 300, "y"], ["x" * 300, "y"]]
    small.write_text(tmp_path / "in", [*small.make_documents(100), *odd])
    found = small.run(tmp_path)
    facts = read_audit(found)
    train = found.splits["train"]
    assert (
        found.unigrams.tolist()
        == np.bincount(train.tokens, minlength=found.tokenizer.size).tolist()
    )
    for name, split in found.splits.items():
        counts = {
            "documents": len(split.document_ends),
            "sentences": len(split.sentence_ends),
            "tokens": len(split.tokens),
        }
        assert found.manifest["splits"][name] == counts
        assert counts.items() <= facts[name].items()
    assert facts["duplicates"] == 1
    assert facts["empty"] == 1  # the zero-width space, which is a sentence without a token
    unknown = int((train.tokens == found.tokenizer.special.unk).sum())
    assert facts["train"]["unknown_share"] == pytest.approx(unknown / len(train.tokens))
    assert found.folder.name == found.fingerprint[:16]
    assert not list((tmp_path / "cache").glob("*.work"))


@pytest.mark.parametrize("size", [100, 70_000])
def test_ids_take_the_smallest_type_that_holds_them(tmp_path, size):
    vocab = [*tokenizers.SPECIALS, "a", "b", *(f"z{i}" for i in range(size))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    given = [["a b", f"z{size - 1}"], ["b a"]]
    small.write_text(tmp_path / "in", given)
    found = small.run(tmp_path, vocabulary=str(tmp_path / "vocab.txt"))
    kinds = {split.tokens.dtype for split in found.splits.values()}
    assert kinds == {np.dtype(np.uint16 if size == 100 else np.uint32)}
    texts = [text for name in corpus.SPLITS for text in small.read_split(found, name)]
    assert sorted(texts) == given


def test_a_document_longer_than_a_part_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "DOCUMENT", 1000)
    monkeypatch.setattr("bert_jax.data.files.PART", 400)
    lines = [f"{small.WORDS[i % 60]} {small.WORDS[i // 60]}." for i in range(300)]
    small.write_text(tmp_path / "in", [lines, ["the end."]])
    found = small.run(tmp_path, validation_fraction=0.0)
    texts = small.read_split(found, "train")
    assert [line for text in texts[:-1] for line in text] == lines
    assert 3 < len(texts) < 6
    assert texts[-1] == ["the end."]


def test_a_vocabulary_is_trained_on_a_share_of_train(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "STRIPE", 1000)
    seen: list[str] = []
    train = prepare.train_vocabulary

    def watch(texts, *rest):
        seen.extend(texts)
        return train(seen, *rest)

    monkeypatch.setattr(prepare, "train_vocabulary", watch)
    small.write_text(tmp_path / "in", small.make_documents(500))
    monkeypatch.setattr(corpus, "TRAINED_ON", 5000)
    found = prepare.prepare_corpus(small.configure(tmp_path), lambda message: None)
    assert 3000 < sum(map(len, seen)) <= 5000
    every = [line for lines in small.make_documents(500) for line in lines]
    places = [every.index(line) for line in seen]
    assert min(places) < len(every) / 10
    assert max(places) > len(every) * 0.9
    held_out = {line for text in small.read_split(found, "validation") for line in text}
    assert not {line.lower() for line in seen} & held_out


def test_lines_of_a_vocabulary_without_words_stay_whole(tmp_path):
    """A dot of a reaction stands between molecules."""
    pieces = [*tokenizers.SPECIALS, "C", "c", "O", "N", "=", "(", ")", ".", "1", ">>"]
    reactions.build_tokenizer(pieces).save(tmp_path / "vocab")
    formulas = ["CC(=O)O.OCC>>CC(=O)OCC.O", "C.CO>>CCO", "Nc1ccccc1.CO>>CNc1ccccc1.O"]
    small.write_text(tmp_path / "in", [formulas, formulas[::-1]])
    found = small.run(tmp_path, vocabulary=str(tmp_path / "vocab"), sentences="auto")
    assert read_audit(found)["one_sentence_lines"]
    assert sum(len(split.sentence_ends) for split in found.splits.values()) == 6


@pytest.mark.parametrize(
    ("line", "expected"), [("It rains. It pours again.", False), ("It rains again.", True)]
)
def test_auto_finds_whether_a_line_is_a_sentence(tmp_path, line, expected):
    small.write_text(tmp_path / "in", [[line] * 20])
    chosen = small.configure(tmp_path, sentences="auto")
    items, _ = corpus.SOURCES["files"].list_items(chosen.corpus, tmp_path)
    assert prepare.has_sentence_lines(items, chosen) == (expected, float(not expected))
    for forced in ("lines", "split"):
        given = small.configure(tmp_path, sentences=forced)
        assert prepare.has_sentence_lines(items, given)[0] == (forced == "lines")


def test_the_command_prints_the_folder_alone(tmp_path, capsys):
    small.write_text(tmp_path / "in", small.make_documents(30))
    command.run(small.configure(tmp_path))
    out, err = capsys.readouterr()
    assert Path(out.strip()).is_dir()
    assert "exact duplicates" in err


# --- the same again -------------------------------------------------------------------------------

RUN = """
import json, sys
from bert_jax.config import knobs
from bert_jax.data import prepare, spool
spool.TASK, spool.PART = 4000, 3000
corpus, tokenizer = json.loads(sys.argv[1])
config = knobs.Config(corpus=knobs.Corpus(**corpus), tokenizer=knobs.Tokenizer(**tokenizer))
print(prepare.prepare_corpus(config, lambda message: None).folder)
assert "jax" not in sys.modules
"""


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder with text for several tasks and parts."""
    monkeypatch.setattr(spool, "TASK", 4000)
    monkeypatch.setattr(spool, "PART", 3000)
    for i in range(4):
        small.write_text(tmp_path / "in", small.make_documents(60, seed=i), f"{i}.txt")
    return tmp_path


def start(chosen: knobs.Config) -> subprocess.Popen:
    settings = [dataclasses.asdict(chosen.corpus), dataclasses.asdict(chosen.tokenizer)]
    command = [sys.executable, "-c", RUN, json.dumps(settings)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_workers_change_no_byte(many):
    one = small.run(many)
    several = small.run(many, workers=3, cache=str(many / "other"))
    assert small.digest_files(one.folder) == small.digest_files(several.folder)


def test_a_finished_corpus_is_only_opened(many, monkeypatch):
    first = small.run(many)
    monkeypatch.setattr(prepare, "_prepare", lambda *_: pytest.fail("made again"))
    assert small.run(many).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("step", "done"), [("read_task", "spool/*.json"), ("encode_part", "encoded/*.npz")]
)
def test_a_start_goes_on_after_a_kill(many, monkeypatch, step, done):
    """After an exception at a third call, those that were finished are not made again."""
    whole = small.digest_files(small.run(many, cache=str(many / "whole")).folder)
    module = spool if step == "read_task" else encode
    real = getattr(module, step)
    calls = []

    def third(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(module, step, third)
    with pytest.raises(KeyboardInterrupt):
        small.run(many)
    (work,) = (many / "cache").glob("*.work")
    finished = {file: file.stat().st_ino for file in work.glob(done)}
    assert len(finished) == 2
    (work / "encoded" / ".draft.tmp").write_text("half")
    removed = {}
    rmtree = prepare.shutil.rmtree

    def look(folder):  # at what is there when the work is done
        removed.update({file: file.stat().st_ino for file in finished})
        rmtree(folder)

    monkeypatch.setattr(prepare.shutil, "rmtree", look)
    found = small.run(many)
    assert removed == finished
    assert small.digest_files(found.folder) == whole


def test_a_killed_process_leaves_no_worker_and_goes_on(many):
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
    again = start(chosen)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert small.digest_files(Path(out.strip())) == whole


def is_running(process: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_two_processes_prepare_a_corpus_once(many):
    both = [start(small.configure(many, workers=2)) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    corpus.open_corpus(Path(outputs[0][0].strip()))


def test_a_process_that_waits_says_so(many):
    chosen = small.configure(many)
    name = corpus.fingerprint_corpus(chosen, many / "cache")[:16]
    said: list[str] = []
    with (many / "cache" / f"{name}.lock").open("a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        thread = threading.Thread(target=prepare.prepare_corpus, args=(chosen, said.append))
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()
        assert "waiting for another process" in said[0]
    thread.join(timeout=30)
    assert (many / "cache" / name / "manifest.json").is_file()


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.fault(10)
@pytest.mark.parametrize(
    ("data", "hint"), [(b"", "check"), (b" \n\n", "check"), (b"\x1c\n", "1 empty documents")]
)
def test_text_without_documents_is_refused(tmp_path, data, hint):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(data)
    with pytest.raises(DataError, match="no documents") as caught:
        small.run(tmp_path)
    assert caught.value.code == 3
    assert hint in caught.value.hint


@pytest.mark.fault(11)
@pytest.mark.parametrize("bad", ["Für Élise hört.\n".encode("latin-1") * 40, b"a\0\n" * 40])
def test_text_that_is_mostly_no_text_is_refused(tmp_path, bad):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"One sentence here.\n\n" + bad)
    with pytest.raises(
        DataError, match=r"40 of 41 lines are not UTF-8, first .*a\.txt:3"
    ) as caught:
        small.run(tmp_path)
    assert "iconv" in caught.value.hint
    (tmp_path / "in" / "a.txt").write_bytes(b"One sentence here.\n\n" * 60 + bad)
    facts = read_audit(small.run(tmp_path, deduplicate=False))
    assert facts["bad_lines"] == 40
    assert any("first" in text and "a.txt:121" in text for text in facts["warnings"])


@pytest.mark.fault(10)
def test_empty_documents_are_left_out_and_counted(tmp_path):
    rows = ["", " \n\t\u2028\n", "\u200b", *map(" ".join, small.make_documents(20)), ""]
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
    (tmp_path / "in" / "a.jsonl").write_text(lines)
    found = small.run(tmp_path)
    facts = read_audit(found)
    assert (facts["documents"], facts["empty"]) == (24, 4)
    assert sum(len(split.document_ends) for split in found.splits.values()) == 20
    assert re.search(r"empty +4\n", audit.format_audit(facts))


@pytest.mark.fault(10)
@pytest.mark.parametrize("content", [None, "", '{"text": " "}\n'])
def test_no_documents_end_training_before_it_compiles(tmp_path, monkeypatch, capsys, content):
    import bert_jax.training.runs  # noqa: F401  # what it imports uses jax.jit when imported

    monkeypatch.setattr("jax.jit", lambda *_, **__: pytest.fail("compiled before data was read"))
    (tmp_path / "in").mkdir()
    if content is not None:
        (tmp_path / "in" / "a.jsonl").write_text(content)
    source = ["--config.corpus.source=files", f"--config.corpus.path={tmp_path / 'in'}"]
    words = ["train", f"--config={CONFIGS / 'tiny.py'}", f"--workdir={tmp_path / 'run'}"]
    assert cli.execute([*words, *source]) == 3
    assert str(tmp_path / "in") in capsys.readouterr().err.splitlines()[-2]


@pytest.mark.fault(4)
def test_a_full_disk_stops_it_and_it_goes_on(tmp_path, monkeypatch):
    small.write_text(tmp_path / "in", small.make_documents(20))

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "write_array", fail)
        with pytest.raises(CheckpointError, match=r"preparing [\d,]+ bytes of text") as caught:
            small.run(tmp_path)
    assert f"are free in {tmp_path / 'cache'}" in str(caught.value)
    assert small.run(tmp_path).manifest["splits"]["train"]["documents"] > 10


@pytest.mark.parametrize("place", ["text", "cache"])
def test_an_error_of_the_system_names_its_place(tmp_path, monkeypatch, place):
    small.write_text(tmp_path / "in", small.make_documents(20))
    file = tmp_path / ("in" if place == "text" else "cache") / "a.txt"

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))

    monkeypatch.setattr(spool, "read_task", fail)
    with pytest.raises(DataError, match=rf"^{file}: Input/output error") as caught:
        small.run(tmp_path)
    assert ("corpus.path" if place == "text" else "corpus.cache") in caught.value.hint


# --- at scale -------------------------------------------------------------------------------------

MEASURED = """
import json, resource, sys
from bert_jax.config import knobs
from bert_jax.data import prepare
corpus, tokenizer = json.loads(sys.argv[1])
config = knobs.Config(corpus=knobs.Corpus(**corpus), tokenizer=knobs.Tokenizer(**tokenizer))
folder = prepare.prepare_corpus(config, lambda message: None).folder
people = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
print(json.dumps([str(folder), [resource.getrusage(who).ru_maxrss >> 10 for who in people]]))
"""


@pytest.mark.fault(10)
@pytest.mark.slow
@pytest.mark.parametrize("line", [True, False])
def test_a_large_text_is_prepared_in_bounded_memory(tmp_path, line):
    """In one line of 16 MB, or 200 MB in documents of one sentence a line."""
    sentence = " ".join(small.WORDS[:12]) + "."
    count = (16 if line else 200) * 1_000_000 // len(sentence)
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "a.txt").open("w") as file:
        for number in range(count):
            end = " " if line else "\n\n"[: 1 + (number % 30 == 0)]
            file.write(f"{sentence if line else f'{number} {sentence}'}{end}")
        file.write("\n\nAnother document.\n")
    pieces = [*tokenizers.SPECIALS, *small.WORDS, ".", *map(str, range(10)), "##1"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    chosen = small.configure(
        tmp_path, vocabulary=str(tmp_path / "vocab.txt"), sentences="auto", workers=2
    )
    settings = [dataclasses.asdict(chosen.corpus), dataclasses.asdict(chosen.tokenizer)]
    arguments = [sys.executable, "-c", MEASURED, json.dumps(settings)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    folder, peaks = json.loads(done.stdout)
    counts = corpus.read_manifest(Path(folder))["splits"]
    assert sum(split["sentences"] for split in counts.values()) == count + 1
    assert max(peaks) < 500, peaks
