"""Check whether a run may be resumed, although its config or its data has changed."""

from pathlib import Path
from typing import Any

from bert_jax.config import differences, free_on_resume, read_recorded, to_dict
from bert_jax.config.conditions import list_unit_knobs
from bert_jax.config.table import write_flag
from bert_jax.errors import ConfigError

# The knobs that may change each fingerprint of the data; a tokenizer has none.
CAUSES = {
    "corpus": ("corpus.", "task."),
    "tokenizer": (),
    "batches": (
        *("corpus.", "task.", "examples.", "masking."),
        *("pairs", "packing", "data_seed", "batch_size", "sequence_length"),
    ),
}
RANKING = (  # what says how good a step is
    "checkpoints.best",
    *(f"evals.validation.{name}" for name in ("split", "rate", "replace", "unit", "seed")),
)
# What else says what validation measures, if --allow-change lets it change; a corpus is compared.
MEASURE = (
    *("sequence_length", "pairs", "examples.", "task.long", "task.stride", "task.answer_tokens"),
    "task.no_answer",
)
FOLLOW = {  # knob -> the knobs whose values are derived from it
    "epochs": ("steps", "optim.warmup_steps"),
    "steps": ("optim.warmup_steps",),
    "optim.warmup_fraction": ("optim.warmup_steps",),
    "batch_size": ("steps", "optim.warmup_steps"),
    "task.rows": ("steps", "optim.warmup_steps"),
}


def check_same(
    checkpoint: dict[str, Any], current: dict[str, Any], allowed: tuple[str, ...], workdir: Path
) -> dict[str, Any]:
    """Refuse to resume if the config or the data changed in a way that is not allowed.

    Return a copy of the checkpoint's record. Its ledger is None if a change alters the masks. If a
    change alters what validation measures, `best` is None, and `unranked` says why.

    Args:
      checkpoint: the record in the latest checkpoint.
      current: the config and the fingerprints of this attempt.
      allowed: paths of knobs that may have changed.
      workdir: the folder of the run, for messages.
    """
    saved = dict(checkpoint)
    before = read_recorded(saved["config"])  # with the knobs that were added since
    changed = differences(to_dict(before), current["config"])
    if saved["tokenizer"] == current["tokenizer"]:
        changed.pop("tokenizer.path", None)  # it moved, as in the hub's cache after a commit
    ranking = {knob: changed[knob] for knob in RANKING if knob in changed}
    if ranking and saved.get("best") is not None:
        flags = " ".join(write_flag(knob, old) for knob, (old, _) in ranking.items())
        raise ConfigError(
            f"{list_changes(ranking)}, and the steps kept so far are ranked by the first values",
            f"{flags}; or another --workdir, with --config.init_from if the "
            "parameters are to be kept",
        )
    followers = [to for knob in allowed for to in FOLLOW.get(knob, ())]
    refused = {
        knob: values
        for knob, values in changed.items()
        if not free_on_resume(knob) and knob not in (*allowed, *followers)
    }
    if refused:
        hint = "another --workdir"
        is_cut_anew = any(saved[key] != current[key] for key in ("corpus", "tokenizer"))
        # Text in other tokens is other data, which no flag allows.
        if not (is_cut_anew and any(key.startswith("tokenizer.") for key in refused)):
            hint += f", or {' '.join(f'--allow-change={key}' for key in refused)}"
        raise ConfigError(
            f"{workdir} was trained with another config: {list_changes(refused)}", hint
        )
    for key, prefixes in CAUSES.items():
        explained = any(knob in allowed and knob.startswith(prefixes) for knob in changed)
        if key == "corpus" and current["config"]["task"]["source"]:
            # It has the examples of this split too, which may change until a step is ranked.
            explained = explained or "evals.validation.split" in changed
        if saved[key] != current[key] and not explained:
            raise ConfigError(
                f"{workdir} was trained on another {key}: {saved[key][:12]} -> {current[key][:12]}",
                "the files behind corpus.path, task.source or tokenizer.path changed, or Python, "
                "tokenizers or sentencex was upgraded: undo that, or use another --workdir",
            )
    if any(key.startswith(("masking.", "objectives.hybrid.share")) for key in changed):
        saved["ledger"] = None  # other masks have other counts
    units = (f"masking.{name}" for name in list_unit_knobs())
    measured = {
        key: values for key, values in changed.items() if key.startswith((*MEASURE, *units))
    }
    if saved["corpus"] != current["corpus"]:
        measured["corpus"] = (saved["corpus"][:12], current["corpus"][:12])
    if measured and saved.get("best") is not None:
        saved |= {"best": None, "misses": 0, "unranked": list_changes(measured)}
    return saved


def list_changes(changed: dict[str, tuple[Any, Any]]) -> str:
    """Write the old and new values of knobs as text, such as "steps: 10 -> 20"."""
    return "; ".join(f"{knob}: {old!r} -> {new!r}" for knob, (old, new) in changed.items())
