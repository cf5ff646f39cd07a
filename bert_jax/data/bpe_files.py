"""Read byte-level BPE from a tokenizer.json, or from a vocab.json and the merges.txt beside it.

A tokenizer.json says what its library does, and so it is done: any normalizer, and any
pre-tokenizer that ends in bytes. tokenizer_config.json, or special_tokens_map.json, beside it names
the special tokens; where neither does, they have BERT's names or RoBERTa's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bert_jax.data import bpe
from bert_jax.data.bpe import BYTE_LEVEL, FILES, FLAGS, ROBERTA, ROLES
from bert_jax.data.vocabulary import CUT, LARGEST, READ, SPECIALS
from bert_jax.errors import DataError
from bert_jax.system import jsons, opening
from bert_jax.system.jsons import Maybe, show

INSTEAD = {"cls": "bos", "sep": "eos"}  # names a token where nothing names one for its role
MODEL = {
    "vocab": {str: range(1 << 31)},
    "merges": [object],
    "dropout": Maybe(float),
    **dict.fromkeys(("unk_token", "continuing_subword_prefix", "end_of_word_suffix"), Maybe(str)),
    **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), Maybe(bool)),
}
ADDED = {"content": str, "id": range(1 << 31), **dict.fromkeys(FLAGS, Maybe(bool))}
STATED = {
    **{f"{role}_token": Maybe(str | dict) for role in (*ROLES, *INSTEAD.values())},
    "add_prefix_space": Maybe(bool),
    "model_input_names": Maybe([str]),
}


def holds(file: Path, state: dict[str, Any] | None) -> bool:
    """Tell whether a file is a BPE vocabulary, by its name and its JSON."""
    if state is None or file.name == "vocab.json":
        return state is not None
    model = state.get("model")
    if not isinstance(model, dict):
        return False
    return model.get("type") == "BPE" or ("type" not in model and "merges" in model)


def read(file: Path, state: dict[str, Any]) -> bpe.Bytes:
    """Read a vocabulary from its file, of which `state` is the JSON, and the files beside it."""
    stated = _stated(file.parent)
    if file.name == "vocab.json":
        prefix = bool(stated.get("add_prefix_space"))
        state = {
            "model": {"vocab": state, "merges": _lines(file.parent / "merges.txt")},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": prefix},
        }
    model = state["model"]
    if problem := jsons.wrong(model, MODEL):
        raise DataError(f"{file}: of its model, {problem}", CUT)
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            raise DataError(f"{file}: {key} = {show(model[key])}: no byte-level BPE", READ)
    pre_tokenizer = _pre_tokenizer(file, state.get("pre_tokenizer"), stated)
    added = _added(file, state.get("added_tokens") or [])
    ids = _ids(file, model["vocab"], added)
    names = _names(file, stated, ids)
    mask = stated.get("mask_token")
    lstrip = mask.get("lstrip") is not False if isinstance(mask, dict) else True
    for role, name in zip(ROLES, names, strict=True):
        if name not in (token["content"] for token in added):
            added.append(bpe.special_token(name, ids[name], lstrip=role == "mask" and lstrip))
    for token in added:
        token["special"] |= token["content"] in names
    flags = {key: bool(model.get(key)) for key in ("fuse_unk", "ignore_merges")}
    merges = _merges(file, model["merges"], ids)
    processor = state.get("post_processor")
    if not isinstance(processor, dict) or processor.get("type") == "ByteLevel":  # adds no tokens
        processor = bpe.post_processor(names, ids)
    found = bpe.Bytes(
        bpe.assemble(
            {"unk_token": model.get("unk_token"), **flags, "vocab": ids, "merges": merges},
            added,
            pre_tokenizer,
            state.get("normalizer"),
            processor,
        ),
        names,
        tuple(stated.get("model_input_names") or ()),
    )
    try:
        found.engine(markup=False)
    except Exception as error:  # the library raises Exception itself, whatever the file's fault
        raise DataError(f"{file}: the tokenizers library refuses it: {error}", CUT) from error
    return found


def _stated(folder: Path) -> dict[str, Any]:
    """Return what the files beside a vocabulary state; tokenizer_config.json comes first."""
    stated: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if os.path.lexists(folder / name):
            file = opening.inside(folder, folder / name, DataError)
            values = jsons.read(file, DataError, STATED, hint=CUT, limit=LARGEST)
            stated |= {key: values[key] for key in STATED if values.get(key) is not None}
    return stated


def _lines(file: Path) -> list[str]:
    """Read the merges of a merges.txt."""
    if not os.path.lexists(file):
        raise DataError(f"no {file.name} beside {file.parent / FILES[1]}", "BPE needs both")
    file = opening.inside(file.parent, file, DataError)
    try:
        text = opening.read(file, DataError, LARGEST, CUT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 at byte {error.start}", CUT) from error
    lines = [line.rstrip("\r") for line in text.split("\n")]
    return [line for line in lines if line and not line.startswith("#version")]


def _pre_tokenizer(file: Path, section: Any, stated: dict[str, Any]) -> dict[str, Any]:
    """Return a pre-tokenizer with all settings; tokenizer_config.json decides on a first blank."""
    if not bpe.byte_levels(section):
        name = section.get("type") if isinstance(section, dict) else section
        raise DataError(
            f"{file}: pre_tokenizer is {show(name)}, not ByteLevel: BPE over characters, such as "
            "SentencePiece's",
            READ,
        )
    section = json.loads(json.dumps(section))
    for part in bpe.byte_levels(section):
        part |= {key: value for key, value in BYTE_LEVEL.items() if part.get(key) is None}
        if stated.get("add_prefix_space") is not None:
            part["add_prefix_space"] = stated["add_prefix_space"]
    return section


def _added(file: Path, tokens: Any) -> list[dict[str, Any]]:
    """Return the added tokens with all their flags."""
    if problem := jsons.wrong(tokens, [ADDED]):
        raise DataError(f"{file}: of its added_tokens, {problem}", CUT)
    return [
        {"id": token["id"], "content": token["content"]}
        | {flag: bool(token.get(flag)) for flag in FLAGS}
        for token in tokens
    ]


def _ids(file: Path, vocab: dict[str, int], added: list[dict[str, Any]]) -> dict[str, int]:
    """Return the ids of all pieces, added ones too; they have no holes."""
    ids = dict(vocab)
    for token in added:
        if ids.setdefault(token["content"], token["id"]) != token["id"]:
            raise DataError(
                f"{file}: {show(token['content'])} has the ids {ids[token['content']]} and "
                f"{token['id']}",
                "repair the vocabulary",
            )
    if "" in ids:
        raise DataError(f"{file}: the piece of id {ids['']} is empty", "repair the vocabulary")
    if holes := {*range(len(ids))} - {*ids.values()}:
        raise DataError(
            f"{file}: no piece has the id {min(holes)}, of {len(ids):,} pieces",
            "ids are 0, 1, 2, … without holes, each once: repair the vocabulary",
        )
    return ids


def _merges(file: Path, merges: list[Any], ids: dict[str, int]) -> list[list[str]]:
    """Return merges as pairs of pieces; refuse one that names or makes what is no piece."""
    pairs = []
    for number, merge in enumerate(merges, 1):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(pair, list) and len(pair) == 2 and {*map(type, pair)} == {str}):
            raise DataError(f"{file}: merge {number}, {show(merge)}, is not two pieces", CUT)
        unknown = [piece for piece in (*pair, "".join(pair)) if piece not in ids]
        if unknown:
            raise DataError(
                f"{file}: merge {number}, {show(' '.join(pair))}, names {show(unknown[0])}, "
                "which is no piece",
                "its merges are those of another vocabulary, or its pieces are cut short",
            )
        pairs.append(pair)
    return pairs


def _names(file: Path, stated: dict[str, Any], ids: dict[str, int]) -> tuple[str, ...]:
    """Return the names of the special tokens; refuse a vocabulary that lacks one."""
    found: dict[str, str] = {}
    for role, *usual in zip(ROLES, SPECIALS, ROBERTA, strict=True):
        values = [stated.get(f"{key}_token") for key in (role, INSTEAD.get(role, role))]
        names = [v.get("content") if isinstance(v, dict) else v for v in values]
        known = [name for name in (*names, *usual) if isinstance(name, str) and name in ids]
        found |= {role: known[0]} if known else {}
    if "pad" in found:
        found.setdefault("unk", found["pad"])  # no text is unknown
    if lacking := [role for role in ROLES if role not in found]:
        raise DataError(
            f"{file} has no special token for {', '.join(lacking)}",
            "name pad, cls, sep and mask in tokenizer_config.json; GPT-2's own files have none: "
            "add them to its vocabulary, or train one with --config.tokenizer.kind=bpe",
        )
    if found["mask"] in [found[role] for role in ROLES if role != "mask"]:
        raise DataError(
            f"{file}: the mask, {show(found['mask'])}, is another special token too",
            "it needs a token of its own",
        )
    return tuple(found[role] for role in ROLES)
