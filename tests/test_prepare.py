"""From raw text to shards: the same bytes whatever the workers, the interruptions and the order of
arrival.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import cli
from bert_jax import prepare as prepare_command
from bert_jax.config import knobs
from bert_jax.data import corpus, engines
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.text import audit, encode, files, pool, prepare, shards
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.errors import CheckpointError, DataError, Stopped
from tests import reactions

WORDS = [a + b for a in "bcdfgklmnprst" for b in ("a", "en", "ir", "ost", "u")]


def documents(count: int, seed: int = 0) -> list[list[str]]:
    draw = random.Random(seed)
    return [
        [
            " ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "."
            for _ in range(draw.randint(2, 6))
        ]
        for _ in range(count)
    ]


def write(folder: Path, found: list[list[str]], name: str = "a.txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n\n".join("\n".join(d) for d in found) + "\n", encoding="utf-8")
    return folder


def config(
    path, cache, vocab_size: int = 150, tokenizer: str = "", lowercase: bool = True, **options
) -> knobs.Config:
    options = {"sentences": "lines", "workers": 1, "validation_fraction": 0.1, **options}
    return knobs.Config(
        corpus=knobs.Corpus(
            **{"source": "files", "path": str(path), "cache": str(cache), **options}
        ),
        tokenizer=knobs.Tokenizer(path=tokenizer, vocab_size=vocab_size, lowercase=lowercase),
    )


def silent(message: str) -> None:
    """A log that is not looked at."""


def contents(folder: Path) -> dict[str, str]:
    """Digest of every file of a prepared folder, the stamp of verification aside."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != shards.VERIFIED
    }


def texts(prepared: shards.Prepared, side: str) -> list[list[str]]:
    """Documents of one side as lists of sentences."""
    found = []
    for shard in prepared.splits[side]:
        sentences = np.split(np.asarray(shard.tokens), shard.sentence_ends[:-1])
        for document in np.split(np.arange(len(sentences)), shard.document_ends[:-1]):
            found.append([prepared.tokenizer.decode(sentences[i]) for i in document])
    return found


# --- what comes out -------------------------------------------------------------------------------


@pytest.mark.fault(21, 22)
def test_every_sentence_of_every_document_is_there_once_and_in_order(tmp_path):
    given = documents(200)
    given[7] = given[3]
    write(tmp_path / "in", [*given, ["Only.", "[MASK] it."]])
    found = prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    train, validation = (texts(found, side) for side in shards.SPLITS)
    expected = [
        [s.lower().replace("[mask]", "[ mask ]") for s in d] for i, d in enumerate(given) if i != 7
    ]
    expected.append(["only.", "[ mask ] it."])
    assert sorted(train + validation) == sorted(expected)
    order = {tuple(d): i for i, d in enumerate(expected)}
    for side in (train, validation):
        places = [order[tuple(d)] for d in side]
        assert places == sorted(places)
    assert len(validation) > 5
    assert not {tuple(d) for d in train} & {tuple(d) for d in validation}


def test_manifest_unigrams_and_audit_agree_with_the_arrays(tmp_path):
    write(tmp_path / "in", [*documents(100), [], ["\u200b"], ["x" * 300, "y"], ["x" * 300, "y"]])
    found = prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    facts = json.loads((found.folder / "audit.json").read_text())
    ids = np.concatenate([np.asarray(s.tokens) for s in found.splits["train"]])
    assert found.unigrams.dtype == np.int64
    assert found.unigrams.tolist() == np.bincount(ids, minlength=found.tokenizer.size).tolist()
    for side in shards.SPLITS:
        split = found.splits[side]
        assert facts[side]["tokens"] == sum(len(s.tokens) for s in split)
        assert facts[side]["sentences"] == sum(len(s.sentence_ends) for s in split)
        assert facts[side]["documents"] == sum(len(s.document_ends) for s in split)
        assert sum(facts[side]["document_tokens"]) == facts[side]["documents"]
        assert sum(facts[side]["sentence_tokens"]) == facts[side]["sentences"]
    assert facts["duplicates"] == 1
    assert facts["empty"] == 1  # the zero-width space, which has a sentence but no token
    unknown = sum(int((np.asarray(s.tokens) == 1).sum()) for s in found.splits["train"])
    assert facts["train"]["unknown_share"] == pytest.approx(unknown / facts["train"]["tokens"])
    assert found.manifest["corpus"]["validation_fraction"] == 0.1
    assert found.folder.name == found.fingerprint[:16]
    assert (
        json.loads((found.folder / "manifest.json").read_text())["fingerprint"] == found.fingerprint
    )
    assert not list((tmp_path / "cache").glob("*.work"))
    shown = audit.table(facts)
    assert "exact duplicates" in shown
    assert f"{facts['train']['tokens']:,}" in shown


def test_length_bins_are_powers_of_two():
    lengths = [1, 2, 3, 4, 7, 8, 1023, 1024]
    shard = shards.Shard(
        np.zeros(sum(lengths)), np.cumsum(lengths).astype(np.uint32), np.array([3, 8], np.uint32)
    )
    found = audit.lengths([shard])
    expected = [0] * audit.BINS
    for length in lengths:
        expected[length.bit_length() - 1] += 1
    assert found["sentence_tokens"] == expected
    assert found["document_tokens"][2] == found["document_tokens"][11] == 1
    assert found["one_sentence_documents"] == 0


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=40))
def test_tokens_of_repeated_sentences_are_counted(sentences):
    tokens = np.array([token for sentence in sentences for token in sentence], np.uint16)
    ends = np.cumsum([len(sentence) for sentence in sentences]).astype(np.uint32)
    shard = shards.Shard(tokens, ends, np.array([len(ends)] if len(ends) else [], np.uint32))
    seen: set[tuple[int, ...]] = set()
    again = 0
    for sentence in sentences:
        again += len(sentence) * (tuple(sentence) in seen)
        seen.add(tuple(sentence))
    assert audit.lengths([shard])["repeated_tokens"] == again


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([["One.", "Two."]], "one training document"),
        (
            [["One."], ["Two."], ["Three."], ["Four."]],
            "100% of training documents have one sentence",
        ),
        (
            [[f"It is {n}.", "So it goes.", "So it goes.", "So it goes."] for n in range(9)],
            "sentences that came before",
        ),
    ],
)
def test_what_spoils_training_is_warned_of(tmp_path, given, says):
    write(tmp_path / "in", given)
    found = prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    facts = json.loads((found.folder / "audit.json").read_text())
    assert any(says in warning for warning in facts["warnings"])
    assert f"warning: {next(w for w in facts['warnings'] if says in w)}" in audit.table(facts)


def test_text_without_words_is_not_cut_into_sentences_of_prose(tmp_path):
    """A dot of a reaction stands between molecules."""
    pieces = [*tokenizers.SPECIALS, "C", "c", "O", "N", "=", "(", ")", ".", "1", ">>"]
    reactions.build_tokenizer(pieces).save(tmp_path / "vocab")
    formulas = ["CC(=O)O.OCC>>CC(=O)OCC.O", "C.CO>>CCO", "Nc1ccccc1.CO>>CNc1ccccc1.O"]
    write(tmp_path / "in", [formulas, formulas[::-1]])
    given = config(
        tmp_path / "in", tmp_path / "cache", tokenizer=str(tmp_path / "vocab"), sentences="auto"
    )
    found = prepare.prepare(given, silent)
    facts = json.loads((found.folder / "audit.json").read_text())
    assert facts["one_sentence_lines"]
    assert sum(facts[side]["sentences"] for side in ("train", "validation")) == 6


def test_the_command_prints_the_folder_alone_on_standard_output(tmp_path, capsys):
    write(tmp_path / "in", documents(30))
    prepare_command.run(config(tmp_path / "in", tmp_path / "cache"))
    out, err = capsys.readouterr()
    assert Path(out.strip()).is_dir()
    assert "exact duplicates" in err
    assert "sentence tokens (train)" in err


# --- documents and shards of bounded size ---------------------------------------------------------


def test_long_documents_are_cut_at_sentences_and_long_sentences_hard(tmp_path):
    long = [
        f"{WORDS[i % len(WORDS)]} {WORDS[i // len(WORDS)]} {WORDS[i % 7]}." for i in range(1500)
    ]
    endless = " ".join(random.Random(1).choices(WORDS, k=2000))
    write(tmp_path / "in", [*documents(40), long, [endless, "The end."]])
    found = prepare.prepare(
        config(tmp_path / "in", tmp_path / "c", max_document_tokens=512, validation_fraction=0.0),
        silent,
    )
    (shard,) = found.splits["train"]
    ends = shard.sentence_ends[shard.document_ends - 1].astype(int)
    assert np.diff(ends, prepend=0).max() <= 512
    everything = " ".join(s for d in texts(found, "train") for s in d)
    assert " ".join(s.lower() for s in long) in everything
    facts = json.loads((found.folder / "audit.json").read_text())
    assert facts["cut_sentences"] == 1
    assert facts["cut_documents"] >= 10


@pytest.mark.parametrize("limit", [1000, 1777, 10_000_000])
def test_shards_are_even_and_within_the_limit(tmp_path, limit):
    write(tmp_path / "in", documents(400))
    found = prepare.prepare(config(tmp_path / "in", tmp_path / "cache", shard_tokens=limit), silent)
    sizes = [len(s.tokens) for s in found.splits["train"]]
    whole = prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    assert max(sizes) <= limit
    assert len(sizes) <= -(-sum(sizes) // limit) + 1 + len(sizes) // 10
    assert (
        max(sizes[:-1], default=0) - min(sizes[:-1], default=0) <= 100
    )  # one document has at most 60 tokens
    assert texts(found, "train") == texts(whole, "train")


@pytest.mark.parametrize("size", [100, 70_000])
def test_ids_take_the_smallest_type_that_holds_them(tmp_path, size):
    vocab = [*tokenizers.SPECIALS, "a", "b", *(f"z{i}" for i in range(size))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    write(tmp_path / "in", [["a b", f"z{size - 1}"], ["b a"]])
    found = prepare.prepare(
        config(tmp_path / "in", tmp_path / "c", tokenizer=str(tmp_path / "vocab.txt")), silent
    )
    kinds = {s.tokens.dtype for side in shards.SPLITS for s in found.splits[side]}
    assert kinds == {np.dtype(np.uint16 if size == 100 else np.uint32)}
    assert found.tokenizer.vocab == vocab
    assert sorted(texts(found, "train") + texts(found, "validation")) == [
        ["a b", f"z{size - 1}"],
        ["b a"],
    ]


def test_the_vocabulary_is_trained_on_a_bounded_sample_of_train(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "STRIPE", 1000)
    seen = []
    monkeypatch.setattr(
        prepare,
        "train_vocabulary",
        lambda texts, *rest, real=train_vocabulary: real(seen.extend(texts) or seen, *rest),
    )
    write(tmp_path / "in", documents(500))
    chosen = config(tmp_path / "in", tmp_path / "cache")
    bounded = dataclasses.replace(
        chosen, tokenizer=dataclasses.replace(chosen.tokenizer, train_characters=5000)
    )
    found = prepare.prepare(bounded, silent)
    validation = {s for d in texts(found, "validation") for s in d}
    assert 3000 < sum(map(len, seen)) <= 5000
    everything = [s for d in documents(500) for s in d]
    places = [everything.index(s) for s in seen]
    assert min(places) < len(everything) / 10
    assert max(places) > 0.9 * len(everything)
    assert not {s.lower() for s in seen} & validation


SPACED = st.lists(
    st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(WORDS), max_size=8
)


BUILDERS = {
    "uncased": lambda pieces: tokenizers.Tokenizer(engines.build_wordpiece(pieces)),
    "cased": lambda pieces: tokenizers.Tokenizer(engines.build_wordpiece(pieces, lowercase=False)),
    "reactions": reactions.build_tokenizer,
}


def each(words: encode.Words, sentences: list[str]) -> list[list[int]]:
    """What is given out flat, sentence by sentence."""
    ids, lengths = words.encode(sentences)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


@given(st.lists(SPACED, max_size=4), st.sampled_from([*BUILDERS]))
@settings(max_examples=300)
def test_word_by_word_gives_the_ids_of_whole_sentences(found, name):
    sentences = [" ".join(" ".join(words).split()) for words in found]
    pieces = [*tokenizers.SPECIALS, *WORDS, *(f"##{w}" for w in WORDS), *"aeé字.[]"]
    tokenizer = BUILDERS[name](pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "WORDS", 5)
        words = encode.Words(tokenizer)
        for sentence in sentences:
            assert each(words, [sentence]) == tokenizer.encode_batch([sentence])
        assert each(words, sentences or [""]) == tokenizer.encode_batch(sentences or [""])


@pytest.mark.parametrize("name", ["uncased", "cased", "chinese", "multilingual_cased"])
def test_word_by_word_gives_the_ids_of_google(copies, name):
    words = encode.Words(tokenizers.load(copies / "vocab" / f"bert_base_{name}_vocab.txt"))
    lines = (
        (copies / "golden_tokenization" / "bert_tokenization.jsonl")
        .read_text(encoding="utf-8")
        .split("\n")
    )
    for row in (json.loads(line) for line in lines if line):
        if not set("\x1c\x1d\x1e\x1f\x85\x0b\x0c") & set(
            row["text"]
        ):  # spaces here, nothing to google
            assert each(words, [" ".join(row["text"].split())]) == [row[name]]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6), max_size=4),
    st.sampled_from([4, 9, 1000]),
)
@settings(max_examples=100)
def test_documents_end_where_they_do_sentence_by_sentence(batches, limit):
    """Sentences that come in batches, against the same ones by themselves."""
    with tempfile.TemporaryDirectory() as folder:
        together, alone = (encode._Part(Path(folder) / name, limit) for name in "ab")
        for batch in batches:
            lengths = np.array([size for size, _ in batch], np.int64)
            starts = np.array([start for _, start in batch], bool)
            ids = np.arange(lengths.sum(), dtype=np.uint32)
            together.add(ids, lengths, starts)
            alone.files["tokens"].write(ids.tobytes())
            alone._add_cut(lengths.tolist(), starts.tolist())
        assert together.close() == alone.close()
        for name in encode.KEPT:
            a, b = ((Path(folder) / side / name).read_bytes() for side in "ab")
            assert a == b


# --- the same again -------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder of enough text for several tasks, volumes and shards."""
    monkeypatch.setattr(corpus, "TASK", 4000)
    monkeypatch.setattr(files, "RANGE", 3000)
    for i in range(4):
        write(tmp_path / "in", documents(60, seed=i), f"{i}.txt")
    return tmp_path


def test_workers_do_not_change_a_byte(many):
    results = [
        contents(
            prepare.prepare(
                config(many / "in", many / f"c{n}", workers=n, shard_tokens=2000), silent
            ).folder
        )
        for n in (1, 3)
    ]
    assert results[0] == results[1]
    assert sum(name.endswith("shard.json") for name in results[0]) > 3


def test_a_finished_corpus_is_returned_at_once(tmp_path, monkeypatch):
    write(tmp_path / "in", documents(30))
    chosen = config(tmp_path / "in", tmp_path / "cache")
    first = prepare.prepare(chosen, silent)
    before = {f: f.stat().st_mtime_ns for f in first.folder.rglob("*.npy")}
    monkeypatch.setattr(prepare, "_make", lambda *_: pytest.fail("made again"))
    again = prepare.prepare(chosen, silent)
    assert again.fingerprint == first.fingerprint
    assert {f: f.stat().st_mtime_ns for f in again.folder.rglob("*.npy")} == before


RUN = """
import json, sys
from bert_jax.config import knobs
from bert_jax.data.text import prepare
from bert_jax.data import corpus
from bert_jax.data.text import files
corpus.TASK, files.RANGE = 4000, 3000
c, t = json.loads(sys.argv[1])
config = knobs.Config(corpus=knobs.Corpus(**c), tokenizer=knobs.Tokenizer(**t))
print(prepare.prepare(config, lambda m: None).folder)
assert "jax" not in sys.modules
"""


def start(chosen: knobs.Config, fault: str = "") -> subprocess.Popen:
    arguments = json.dumps(
        [dataclasses.asdict(chosen.corpus), dataclasses.asdict(chosen.tokenizer)]
    )
    env = {**os.environ, "BERT_JAX_FAULT": fault}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("step", "done"),
    [
        ("prepare_read:3", "spool/*.json"),
        ("prepare_encode:3", "parts/*/part.json"),
        ("prepare_pack:2", "result/*/*"),
    ],
)
def test_kill_and_go_on_keeps_what_was_finished(many, step, done):
    whole = contents(
        prepare.prepare(config(many / "in", many / "whole", shard_tokens=2000), silent).folder
    )
    chosen = config(many / "in", many / "cache", shard_tokens=2000, workers=2)
    killed = start(chosen, f"{step}:kill")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (work,) = (many / "cache").glob("*.work")
    time.sleep(0.5)  # workers notice that their parent is gone
    (work / "result" / ".train-00099.1").mkdir()  # what is half written must not be taken along
    finished = {
        f.relative_to(work): (f.stat().st_mtime_ns, f.stat().st_ino)
        for f in work.glob(done)
        if f.is_file()
    }
    assert len(finished) >= 2
    kept = {}
    with pytest.MonkeyPatch.context() as patch:
        # Just before the work folder goes, look at what was there when it was killed.
        patch.setattr(
            prepare.shutil, "rmtree", lambda path, **_: kept.update(_stats(path, finished))
        )
        found = prepare.prepare(chosen, silent)
    shards_now = {
        f: ((found.folder.parent / found.folder.name / f).stat()) for f in _moved(finished)
    }
    kept |= {Path("result") / f: (s.st_mtime_ns, s.st_ino) for f, s in shards_now.items()}
    assert kept == finished
    assert contents(found.folder) == whole


def _stats(work, names):
    return {
        n: ((work / n).stat().st_mtime_ns, (work / n).stat().st_ino)
        for n in names
        if (work / n).is_file()
    }


def _moved(names):
    return [n.relative_to("result") for n in names if n.parts[0] == "result"]


def test_two_processes_prepare_the_same_corpus_once(many):
    chosen = config(many / "in", many / "cache", workers=2)
    both = [start(chosen) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    shards.open(Path(outputs[0][0].strip()))


def test_a_process_that_waits_says_so(many):
    chosen = config(many / "in", many / "cache")
    mark = prepare.fingerprint(chosen, many / "cache")[:16]
    said = []
    with (many / "cache" / f"{mark}.lock").open("a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        thread = threading.Thread(target=prepare.prepare, args=(chosen, said.append))
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()
        assert "waiting for another process" in said[0]
    thread.join(timeout=30)
    assert (many / "cache" / mark / "manifest.json").is_file()


def test_a_dead_worker_is_a_resumable_stop():
    with (
        pool.Pool(2) as workers,
        pytest.raises(Stopped, match="a worker ended with code -9") as caught,
    ):
        list(workers.map("signal:raise_signal", [(9,), (9,)]))
    assert caught.value.code == 75


def test_worker_errors_keep_their_kind_and_place():
    with pool.Pool(2) as workers:
        assert sorted(workers.map("operator:add", [(i, 1) for i in range(7)])) == [
            (i, i + 1) for i in range(7)
        ]
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            list(workers.map("operator:truediv", [(1, 0), (1, 0)]))
        missing = Path("/nonexistent")
        with pytest.raises(DataError, match="no tokenizer at"):
            list(workers.map("bert_jax.data.tokenizer:load", [(missing,), (missing,)]))


def test_workers_import_no_jax():
    code = (
        "[name for name in __import__('sys').modules if name in ('jax', 'flax', 'optax', "
        "'pyarrow')]"
    )
    with pool.Pool(2) as workers:
        list(workers.map("bert_jax.data.text.encode:plan", [([], 0, 1)] * 2))
        assert [found for _, found in workers.map("builtins:eval", [(code,)] * 2)] == [[], []]


# --- the fingerprint ------------------------------------------------------------------------------


def test_what_shapes_the_corpus_shapes_its_name_and_nothing_else_does(tmp_path):
    write(tmp_path / "in", documents(3))
    base = config(tmp_path / "in", tmp_path / "cache")
    cache = tmp_path / "cache"
    name = prepare.fingerprint(base, cache)
    same = {"cache": "elsewhere", "workers": 7, "tfds_dir": "x", "revision": "x"}
    other = {
        "text_field": "body",
        "split": "test",
        "sentences": "split",
        "language": "de",
        "deduplicate": False,
        "validation_fraction": 0.2,
        "on_bad_text": "skip",
        "on_bad_row": "skip",
        "max_document_tokens": 1024,
        "shard_tokens": 2000,
    }
    assert set(same) | set(other) | {"source", "path"} == {
        f.name for f in dataclasses.fields(knobs.Corpus)
    }
    for options, equal in ((same, True), (other, False)):
        for key, value in options.items():
            changed = dataclasses.replace(
                base, corpus=dataclasses.replace(base.corpus, **{key: value})
            )
            assert (prepare.fingerprint(changed, cache) == name) == equal, key
    for key, value in {
        "vocab_size": 20,
        "lowercase": False,
        "max_word_length": 9,
        "train_characters": 2000,
    }.items():
        changed = dataclasses.replace(
            base, tokenizer=dataclasses.replace(base.tokenizer, **{key: value})
        )
        assert prepare.fingerprint(changed, cache) != name, key
    for key, value in {
        "max_word_length": 200,
        "kind": "wordpiece",
    }.items():  # what a trained one has and is
        changed = dataclasses.replace(
            base, tokenizer=dataclasses.replace(base.tokenizer, **{key: value})
        )
        assert prepare.fingerprint(changed, cache) == name, key
    assert (
        prepare.fingerprint(dataclasses.replace(base, seed=5, steps=3, batch_size=1), cache) == name
    )
    (tmp_path / "in").rename(tmp_path / "moved")
    moved = dataclasses.replace(
        base, corpus=dataclasses.replace(base.corpus, path=str(tmp_path / "moved"))
    )
    assert prepare.fingerprint(moved, cache) == name
    write(tmp_path / "moved", documents(4))
    assert prepare.fingerprint(moved, cache) != name


def test_a_given_tokenizer_is_named_by_its_hash(tmp_path):
    write(tmp_path / "in", documents(5))
    BUILDERS["uncased"]([*tokenizers.SPECIALS, "a", "b"]).save(tmp_path / "t")
    chosen = config(tmp_path / "in", tmp_path / "cache", tokenizer=str(tmp_path / "t"))
    resized = dataclasses.replace(
        chosen, tokenizer=dataclasses.replace(chosen.tokenizer, vocab_size=99)
    )
    first = prepare.fingerprint(chosen, tmp_path)
    assert prepare.fingerprint(resized, tmp_path) == first
    BUILDERS["uncased"]([*tokenizers.SPECIALS, "b", "a"]).save(tmp_path / "t")
    assert prepare.fingerprint(chosen, tmp_path) != first


def test_the_cache_is_the_knob_the_variable_or_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("BERT_JAX_DATA", str(tmp_path / "variable"))
    assert prepare.cache_folder(knobs.Corpus(cache="/knob")) == Path("/knob")
    assert prepare.cache_folder(knobs.Corpus()) == tmp_path / "variable"
    monkeypatch.delenv("BERT_JAX_DATA")
    assert prepare.cache_folder(knobs.Corpus()) == Path.home() / ".cache" / "bert_jax"


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.fault(23)
@pytest.mark.parametrize(
    ("data", "says", "hint"),
    [
        (b"", "no documents", "check"),
        (b" \n\n", "no documents", "check"),
        (b"\n\0\n", "no documents", "1 bad documents"),
    ],
)
def test_no_documents(tmp_path, data, says, hint):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(DataError, match=says) as caught:
        prepare.prepare(config(tmp_path / "a.txt", tmp_path / "cache", on_bad_text="skip"), silent)
    assert caught.value.code == 3
    assert hint in caught.value.hint


LATIN = "Für Élise hört täglich Bäche.\n".encode("latin-1")


@pytest.mark.fault(19)
@pytest.mark.parametrize("policy", ["replace", "skip"])
@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (LATIN * 40, "invalid UTF-8"),
        (random.Random(0).randbytes(20_000), "byte "),
        (b"a\0\n" * 40, "NUL"),
    ],
)
def test_a_corpus_that_is_mostly_no_text_is_refused(tmp_path, policy, bad, what):
    (tmp_path / "a.txt").write_bytes(b"One sentence here.\n\n" + bad)
    with pytest.raises(
        DataError, match=rf"\d+ of \d+ lines are not UTF-8, first .*a\.txt, .*{what}"
    ) as caught:
        prepare.prepare(config(tmp_path / "a.txt", tmp_path / "cache", on_bad_text=policy), silent)
    assert caught.value.code == 3
    assert "iconv" in caught.value.hint


def test_some_bad_lines_are_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"One sentence here.\n\n" * 60 + LATIN * 40)
    found = prepare.prepare(
        config(tmp_path / "a.txt", tmp_path / "cache", deduplicate=False), silent
    )
    facts = json.loads((found.folder / "audit.json").read_text())
    assert facts["bad_lines"] == 40
    assert "lines with bad text" in audit.table(facts)


@pytest.mark.fault(23)
@pytest.mark.parametrize("content", [None, "", "\n \n\t\n", '{"text": " "}\n'])
def test_training_without_documents_ends_before_anything_is_compiled(
    tmp_path, monkeypatch, capsys, content
):
    import bert_jax.training.runs  # noqa: F401  # what it imports uses jax.jit when imported

    def compiled(*_, **__):
        raise AssertionError("compiled before the data was read")

    monkeypatch.setattr("jax.jit", compiled)
    (tmp_path / "in").mkdir()
    if content is not None:
        (tmp_path / "in" / ("a.jsonl" if content.startswith("{") else "a.txt")).write_text(content)
    words = [
        "train",
        f"--config={Path(__file__).parents[1] / 'configs' / 'tiny.py'}",
        f"--workdir={tmp_path / 'run'}",
    ]
    assert (
        cli.execute(
            [*words, "--config.corpus.source=files", f"--config.corpus.path={tmp_path / 'in'}"]
        )
        == 3
    )
    *_, error, hint = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "in") in error
    assert re.match("error: (no documents in files|config.corpus.path = .* holds no files)", error)
    assert hint.startswith("hint: ")


@pytest.mark.fault(17)
def test_empty_and_blank_documents_are_left_out_and_counted(tmp_path):
    rows = ["", " \n\t\u2028\n", "\u200b", *(" ".join(d) for d in documents(20)), ""]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    found = prepare.prepare(config(tmp_path / "a.jsonl", tmp_path / "cache"), silent)
    facts = json.loads((found.folder / "audit.json").read_text())
    assert (facts["documents"], facts["empty"]) == (24, 4)
    assert sum(facts[side]["documents"] for side in shards.SPLITS) == 20
    assert re.search(r"empty +4\n", audit.table(facts))
    assert all(
        text for side in shards.SPLITS for document in texts(found, side) for text in document
    )


@pytest.mark.fault(27)
def test_too_many_malformed_rows_stop_it(tmp_path):
    good = b'{"text": "One. Two."}\n{"text": "Three. Four."}\n' * 100
    (tmp_path / "a.jsonl").write_bytes(good + b"{\n{\n")
    chosen = config(tmp_path / "a.jsonl", tmp_path / "cache", on_bad_row="skip")
    found = prepare.prepare(chosen, silent)
    facts = json.loads((found.folder / "audit.json").read_text())
    assert facts["bad_rows"] == 2
    assert any("a.jsonl:201" in warning for warning in facts["warnings"])
    (tmp_path / "a.jsonl").write_bytes(good + b"{\n{\n{\n")
    with pytest.raises(DataError, match=r"3 of 203 rows are malformed, first .*a.jsonl:201"):
        prepare.prepare(chosen, silent)


def test_a_cache_that_cannot_be_written_is_a_data_error(tmp_path):
    write(tmp_path / "in", documents(3))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file") as caught:
        prepare.prepare(config(tmp_path / "in", tmp_path / "file" / "cache"), silent)
    assert "corpus.cache" in caught.value.hint


@pytest.mark.fault(42)
def test_a_full_disk_stops_it_and_it_goes_on(tmp_path, monkeypatch):
    write(tmp_path / "in", documents(20))
    chosen = config(tmp_path / "in", tmp_path / "cache")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(encode, "pack", full)
        with pytest.raises(
            CheckpointError, match=r"preparing [\d,]+ bytes of text needs"
        ) as caught:
            prepare.prepare(chosen, silent)
        assert f"are free in {tmp_path / 'cache'}" in str(caught.value)
        assert "free some space" in caught.value.hint
    assert prepare.prepare(chosen, silent).splits["train"]


# --- TensorFlow Datasets --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("name", ["wikipedia/20230601.en", "wiki40b/en", "lm1b"])
def test_published_datasets_construct_and_are_read(tmp_path, name):
    import tensorflow_datasets as tfds  # seconds: only where it is used

    with tfds.testing.mock_data(num_examples=12):
        chosen = config(
            name,
            tmp_path / "cache",
            source="tfds",
            tfds_dir=str(tmp_path / "tfds"),
            sentences="auto",
        )
        found = prepare.prepare(chosen, silent)
    assert found.manifest["corpus"]["path"] == name
    assert sum(len(s.document_ends) for side in shards.SPLITS for s in found.splits[side]) == 12


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A dataset prepared from local text by the library itself."""
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("built")
    given = documents(60)

    class LocalText(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict({"text": tfds.features.Text()})
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield from ((i, {"text": "\n".join(d)}) for i, d in enumerate(given))

    LocalText(data_dir=str(folder / "tfds"), file_format="array_record").download_and_prepare()
    return folder, given


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_a_dataset_built_from_local_text_is_read_in_ranges(built, monkeypatch):
    from bert_jax.data.text import tfds_text

    folder, given = built
    monkeypatch.setattr(tfds_text, "RANGE", 1)
    monkeypatch.setattr(corpus, "TASK", 1)
    options = {"source": "tfds", "tfds_dir": str(folder / "tfds"), "shard_tokens": 1000}
    found = prepare.prepare(config("local_text", folder / "cache", **options), silent)
    both = texts(found, "train") + texts(found, "validation")
    assert sorted(both) == sorted([s.lower() for s in d] for d in given)
    assert (
        len(corpus.SOURCES["tfds"].items(config("local_text", folder, **options).corpus)[0]) == 60
    )
    again = prepare.prepare(config("local_text", folder / "other", workers=2, **options), silent)
    assert contents(again.folder) == contents(found.folder)


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_datasets_that_are_not_there(tmp_path):
    options = {"source": "tfds", "tfds_dir": str(tmp_path / "tfds")}
    with pytest.raises(DataError, match="no_such_thing") as caught:
        prepare.prepare(config("no_such_thing", tmp_path / "cache", **options), silent)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="lm1b is not prepared: there is no folder") as caught:
        prepare.prepare(config("lm1b", tmp_path / "cache", **options), silent)
    assert "download_and_prepare" in caught.value.hint
    assert "\n" not in str(caught.value) + caught.value.hint
    for name, there in (
        ("wikipedia/20230601.de", "wikimedia/wikipedia:20231101.de"),
        ("wiki40b/en", "wikimedia/wikipedia:20231101.en"),
        ("c4/en", "OWNER/NAME:FOLDER"),
    ):
        with pytest.raises(DataError, match="with Apache Beam only") as caught:
            prepare.prepare(config(name, tmp_path / "cache", **options), silent)
        assert f"--config.corpus.source=hub --config.corpus.path={there}" in caught.value.hint
        assert "download_and_prepare" not in caught.value.hint
    with pytest.raises(DataError, match="is empty"):
        prepare.prepare(config("", tmp_path / "cache", **options), silent)


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_dataset_fields_and_splits_are_checked(built):
    folder, _ = built
    options = {"source": "tfds", "tfds_dir": str(folder / "tfds")}
    with pytest.raises(DataError, match="no 'body'") as caught:
        prepare.prepare(
            config("local_text", folder / "cache", text_field="body", **options), silent
        )
    assert "text" in caught.value.hint
    with pytest.raises(DataError, match="split 'none' cannot be read"):
        prepare.prepare(config("local_text", folder / "cache", split="none", **options), silent)


# --- at scale -------------------------------------------------------------------------------------

LIMITED = """
import json, re, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from bert_jax.config import knobs
from bert_jax.data.text import prepare
c, t = json.loads(sys.argv[1])
config = knobs.Config(corpus=knobs.Corpus(**c), tokenizer=knobs.Tokenizer(**t))
done = prepare.prepare(config, lambda m: None)
# ru_maxrss of this process would begin with what its parent held; VmHWM begins anew.
mine = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
peaks = [int(mine.group(1)) >> 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10]
print(json.dumps([str(done.folder), peaks]))
"""


def limited(chosen: knobs.Config, limit: int) -> tuple[shards.Prepared, list[int]]:
    """Prepares in a process, and workers, whose address space is limited; also their peaks of
    memory in MiB.
    """
    arguments = json.dumps(
        [dataclasses.asdict(chosen.corpus), dataclasses.asdict(chosen.tokenizer)]
    )
    command = [sys.executable, "-c", LIMITED, arguments, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    folder, peaks = json.loads(done.stdout)
    return shards.open(Path(folder)), peaks


def fill(file: Path, size: int, seed: int = 0) -> int:
    """Writes about `size` bytes of unique documents of one sentence a line; returns how many."""
    draw = random.Random(seed)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(8, 24))) + ".\n" for _ in range(20_000)]
    count = written = 0
    with file.open("w", encoding="ascii") as stream:
        while written < size:
            first = draw.randrange(len(lines) - 40)
            block = f"Document number {count}.\n" + "".join(lines[first : first + 40]) + "\n"
            stream.write(block)
            written += len(block)
            count += 1
    return count


def given_vocabulary(folder: Path) -> str:
    pieces = [*tokenizers.SPECIALS, *WORDS, ".", "document"]
    BUILDERS["uncased"](pieces).save(folder)
    return str(folder)


@pytest.mark.fault(18)
@pytest.mark.slow
def test_a_huge_line_is_read_in_bounded_memory(tmp_path):
    sentence = " ".join(WORDS[:12])
    with (tmp_path / "a.txt").open("w") as stream:
        stream.writelines(f"{sentence}. " for _ in range((50 << 20) // (len(sentence) + 2)))
        stream.write("\n\nAnother document. It is short.\n")
    chosen = config(
        tmp_path / "a.txt",
        tmp_path / "c",
        tokenizer=given_vocabulary(tmp_path / "t"),
        sentences="auto",
    )
    found, peaks = limited(chosen, 700 << 20)
    facts = json.loads((found.folder / "audit.json").read_text())
    assert max(peaks) < 300
    assert facts["documents"] == 2
    assert (
        facts["train"]["sentences"] + facts["validation"]["sentences"]
        == (50 << 20) // (len(sentence) + 2) + 2
    )
    assert (
        facts["cut_documents"] == facts["train"]["documents"] + facts["validation"]["documents"] - 2
    )
    assert (
        max(i for i, n in enumerate(facts["train"]["document_tokens"]) if n) <= 19
    )  # at most 1,000,000 tokens


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("size", "limit"),
    [(24 << 20, 700 << 20), (2 << 30, 1536 << 20)],
)
@pytest.mark.slow
def test_a_corpus_larger_than_memory_is_prepared(tmp_path, size, limit):
    count = fill(tmp_path / "a.txt", size)
    chosen = config(
        tmp_path / "a.txt", tmp_path / "c", vocab_size=400, workers=2, shard_tokens=4_000_000
    )
    chosen = dataclasses.replace(
        chosen, tokenizer=dataclasses.replace(chosen.tokenizer, train_characters=50_000_000)
    )
    began = time.monotonic()
    found, peaks = limited(chosen, limit)
    facts = json.loads((found.folder / "audit.json").read_text())
    kept = sum(facts[side]["documents"] for side in shards.SPLITS)
    tokens = sum(facts[side]["tokens"] for side in shards.SPLITS)
    print(
        f"\n{size >> 20} MiB, {tokens:,} tokens, {time.monotonic() - began:.0f} s, "
        f"peaks {peaks} MiB"
    )
    assert kept == facts["documents"] - facts["empty"] - facts["duplicates"] == count
    assert sum(facts[side]["sentences"] for side in shards.SPLITS) == 41 * count
    assert abs(facts["validation"]["documents"] / kept - 0.1) < 4 * (0.09 / kept) ** 0.5


# --- whose fault it is ----------------------------------------------------------------------------


def test_prepare_blames_the_parquet_file_for_its_damaged_page(tmp_path):
    """Arrow says it by an OSError, and nothing is wrong with the disk."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "text.parquet"
    lines = [" ".join(sentences) for sentences in documents(200)]
    parquet.write_table(pa.table({"text": lines}), file, compression="snappy", use_dictionary=False)
    data = bytearray(file.read_bytes())
    data[200 : len(data) // 2] = bytes(len(data) // 2 - 200)
    file.write_bytes(data)
    with pytest.raises(DataError, match=rf"{file} is a damaged parquet file: ") as caught:
        prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    assert "fetch it again" in caught.value.hint


def test_prepare_blames_a_dangling_link_in_the_corpus(tmp_path):
    write(tmp_path / "in", documents(20))
    (tmp_path / "in" / "more.txt").symlink_to("gone.txt")
    with pytest.raises(DataError, match=r"more\.txt") as caught:
        prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    assert "space" not in str(caught.value) + caught.value.hint


def test_prepare_blames_text_that_fails_to_be_read_and_not_the_cache(tmp_path, monkeypatch):
    write(tmp_path / "in", documents(20))
    file = next((tmp_path / "in").iterdir())

    def unreadable(*_: object) -> None:
        raise OSError(5, "Input/output error", str(file))

    monkeypatch.setattr(encode, "pack", unreadable)
    with pytest.raises(DataError, match=rf"^{file}: Input/output error") as caught:
        prepare.prepare(config(tmp_path / "in", tmp_path / "cache"), silent)
    assert "corpus.path" in caught.value.hint
