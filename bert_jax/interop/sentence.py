"""The files of sentence-transformers beside a model: how one vector is made of a text.

    {"pooling": "mean" | "cls", "normalize": bool, "length": int | None, "lowercase": bool}

A setting that would change the vector and is not supported here is refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bert_jax.errors import CheckpointError
from bert_jax.system import disk, jsons, opening

FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")


def read(folder: Path) -> dict[str, Any]:
    """Read how a folder makes one vector of a text; empty if it is not of sentence-transformers."""
    file = folder / "modules.json"
    if not os.path.lexists(file):
        return {}
    modules = _json(folder, file.name, [{"type": str, "path": str}])
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    subfolder = modules[1]["path"] if len(kinds) > 1 else ""
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise CheckpointError(
            f"{file} chains {kinds}", "Transformer, Pooling and Normalize are known"
        )
    pooling = _json(folder, f"{subfolder}/config.json")
    modes = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    chosen = [key for key, on in pooling.items() if key.startswith("pooling_mode_") and on is True]
    mode = modes.get(chosen[0]) if len(chosen) == 1 else pooling.get("pooling_mode")
    if mode not in modes.values():
        raise CheckpointError(f"{folder}: pooling {chosen or mode}", "mean and cls are known")
    text, model = (_json(folder, n) if os.path.lexists(folder / n) else {} for n in FILES)
    prompt, prompts = model.get("default_prompt_name"), model.get("prompts")
    empty = isinstance(prompts, dict) and prompts.get(str(prompt)) == ""
    other = "last_hidden_state" not in json.dumps(text.get("modality_config", "last_hidden_state"))
    width = model.get("truncate_dim")
    for refused, problem in (
        (prompt and not empty, f"prepends the prompt {prompt!r}"),
        (width is not None, f"cuts vectors to {width} numbers"),
        (other, "pools another output than the last hidden state"),
    ):
        if refused:
            raise CheckpointError(
                f"{folder} {problem}", "only plain texts and whole vectors are embedded"
            )
    return {
        "pooling": mode,
        "normalize": "Normalize" in kinds,
        "length": length(folder, FILES[0], "max_seq_length") or length(folder),
        "lowercase": text.get("do_lower_case") is True,
    }


def length(
    folder: Path, name: str = "tokenizer_config.json", key: str = "model_max_length"
) -> int | None:
    """Return the longest text a folder states; None if it states none, or one beyond all models."""
    stated = _json(folder, name).get(key) if os.path.lexists(folder / name) else None
    return stated if type(stated) is int and 8 <= stated < 2**16 else None


def _json(folder: Path, name: str, schema: Any = dict) -> Any:
    """Read a JSON file of a folder from elsewhere; it must lie in that folder."""
    return jsons.read(
        opening.inside(folder, folder / name, CheckpointError), CheckpointError, schema, strict=True
    )


def write(folder: Path, stated: dict[str, Any], length: int, width: int | None) -> None:
    """Write the files that make a folder a SentenceTransformer: encoder, pooling, normalization."""
    pooling = stated.get("pooling") or "mean"
    parts = ["Transformer", "Pooling", *(["Normalize"] if stated.get("normalize") else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{part}"}
        for i, (part, path) in enumerate(zip(parts, paths, strict=False))
    ]
    modes = {f"pooling_mode_{mode}": False for mode in ("max_tokens", "mean_sqrt_len_tokens")}
    modes |= {
        f"pooling_mode_{mode}_token{end}": pooling == mode
        for mode, end in (("cls", ""), ("mean", "s"))
    }
    for part, path in zip(parts[1:], paths[1:], strict=False):
        (folder / path).mkdir()
        if part == "Pooling":
            _dump(folder / path / "config.json", {"word_embedding_dimension": width} | modes)
    _dump(folder / "modules.json", modules)
    limit = min(stated.get("length") or length, length)
    _dump(folder / "sentence_bert_config.json", {"max_seq_length": limit, "do_lower_case": False})


def _dump(file: Path, value: Any) -> None:
    disk.write(file, json.dumps(value, indent=2) + "\n")
