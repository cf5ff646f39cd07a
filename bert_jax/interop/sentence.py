"""The files of sentence-transformers next to a model, which say how a text gets one vector.

    {"pooling": "mean" | "cls", "normalize": bool, "length": int | None, "lowercase": bool}

A setting that would change the vector and is not supported here is refused.
"""

from pathlib import Path
from typing import Any

import msgspec

from bert_jax.errors import CheckpointError
from bert_jax.system import jsons

TEXT, MODEL = FILES = ("sentence_bert_config.json", "config_sentence_transformers.json")
MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
OTHER_MODES = ("pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
FOLDERS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
OWN = "only plain texts and whole vectors are embedded"


class Module(msgspec.Struct):
    """A row of modules.json: the class of a step, and the folder with its settings."""

    type: str
    path: str


class Whole(msgspec.Struct):
    """The settings of config_sentence_transformers.json that would change a vector."""

    default_prompt_name: str | None = None
    prompts: dict[str, str] | None = None
    truncate_dim: Any = None


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings by which a folder makes one vector of a text; {} if it states none.

    The settings have the form that the module shows.
    """
    file = folder / "modules.json"
    if not file.exists():
        return {}
    modules = jsons.read(file, CheckpointError, list[Module])
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in ([*FOLDERS][:2], [*FOLDERS]):
        raise CheckpointError(
            f"{file} chains {kinds}", "Transformer, Pooling and Normalize are known"
        )
    subfolder = modules[1].path
    if Path(subfolder).name != subfolder or subfolder == "..":
        problem = f"{file} names the folder {jsons.show(subfolder)}"
        raise CheckpointError(problem, "a folder next to the file is read")
    text = _read_if_there(folder / TEXT)
    _check_whole(folder, text)
    return {
        "pooling": _read_pooling(folder / subfolder / "config.json"),
        "normalize": "Normalize" in kinds,
        "length": read_length(folder, TEXT, "max_seq_length") or read_length(folder),
        "lowercase": text.get("do_lower_case") is True,
    }


def read_length(
    folder: Path, name: str = "tokenizer_config.json", key: str = "model_max_length"
) -> int | None:
    """Read the most tokens of a text; None unless a limit of 8 to 65,535 tokens is stated."""
    stated = _read_if_there(folder / name).get(key)
    return stated if type(stated) is int and 8 <= stated < 2**16 else None


def write_settings(folder: Path, stated: dict[str, Any], length: int, width: int | None) -> None:
    """Write the files with which sentence-transformers loads a folder.

    `stated` has the form that the module shows, and `width` is the length of a vector.
    """
    kinds = [kind for kind in FOLDERS if kind != "Normalize" or stated.get("normalize")]
    modules = []
    for number, kind in enumerate(kinds):
        path = FOLDERS[kind]
        (folder / path).mkdir(exist_ok=True)
        full = f"sentence_transformers.models.{kind}"
        modules.append({"idx": number, "name": str(number), "path": path, "type": full})
    pooling = stated.get("pooling") or "mean"
    modes = dict.fromkeys(OTHER_MODES, False)
    modes |= {key: pooling == mode for key, mode in MODES.items()}
    file = folder / FOLDERS["Pooling"] / "config.json"
    jsons.write(file, {"word_embedding_dimension": width} | modes)
    jsons.write(folder / "modules.json", modules)
    limit = min(stated.get("length") or length, length)
    jsons.write(folder / TEXT, {"max_seq_length": limit, "do_lower_case": False})


def _read_pooling(file: Path) -> str:
    """Read the pooling, mean or cls, from the config.json of the pooling step."""
    stated = jsons.read(file, CheckpointError, dict)
    chosen = [key for key, on in stated.items() if key.startswith("pooling_mode_") and on is True]
    mode = MODES.get(chosen[0]) if len(chosen) == 1 else stated.get("pooling_mode")
    if mode not in ("mean", "cls"):
        raise CheckpointError(f"{file}: pooling {chosen or mode}", "mean and cls are known")
    return str(mode)


def _check_whole(folder: Path, text: dict[str, Any]) -> None:
    """Refuse a model whose vectors depend on more than the text, or are truncated.

    The settings are a default prompt, `truncate_dim`, and an output other than the last hidden
    state.
    """
    model = Whole()
    if (folder / MODEL).exists():
        model = jsons.read(folder / MODEL, CheckpointError, Whole)
    prompt = model.default_prompt_name
    if prompt and (model.prompts or {}).get(prompt) != "":
        raise CheckpointError(f"{folder} prepends the prompt {jsons.show(prompt)}", OWN)
    if model.truncate_dim is not None:
        size = jsons.show(model.truncate_dim)
        raise CheckpointError(f"{folder} cuts vectors to {size} numbers", OWN)
    if "last_hidden_state" not in str(text.get("modality_config", "last_hidden_state")):
        raise CheckpointError(f"{folder} pools another output than the last hidden state", OWN)


def _read_if_there(file: Path) -> dict[str, Any]:
    return jsons.read(file, CheckpointError, dict) if file.exists() else {}
