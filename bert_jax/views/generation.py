"""The page of `bert-jax inspect generation`: plays the rounds in which a model fills masks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError
from bert_jax.predictors.base import AskedModel, Line, OfText
from bert_jax.predictors.masked import Unmask
from bert_jax.predictors.options import Options
from bert_jax.reporting import palette
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.page import Cell, Table
from bert_jax.reporting.svg import draw_svg
from bert_jax.views import document
from bert_jax.views.document import cut_text, make_visible

TITLE = 200  # characters of a text above its tokens


def make_generation_page(reader: OfText, rows: Sequence[Line], **settings: Any) -> str:
    """Make the page for texts whose masks are filled as by `predict generate`.

    `settings` are fields of `predictors.options.Options`.
    """
    run = reader.model.run
    document.check_count(rows, palette.HUES)
    if "causal_lm" in run.config.objectives:
        raise ConfigError(
            f"{run.folder} writes from left to right", "the page shows how a masked model fills in"
        )
    reader.model.choose_head("mlm")
    options = dataclasses.replace(reader.model.options, **settings, show_steps=True)
    predictor = Unmask(AskedModel(run, options))
    results = list(predictor.encode(rows).answer(options.batch_size))
    texts = [_collect_text(row, result) for row, result in zip(rows, results, strict=True)]
    most = max(len(text["steps"]) for text in texts)
    return document.render_page(
        "generation",
        run,
        _list_facts(predictor.model.options, texts),
        {"texts": texts},
        rounds=most,
        chart=draw_svg(_make_chart(texts)) if most > 1 else "",
        tables=[_tabulate_choices(text) for text in texts],
    )


def _collect_text(row: Line, result: dict[str, Any]) -> dict[str, Any]:
    """Collect what the page shows of a text: its tokens, and the tokens that each round chose."""
    steps: list[list[dict[str, Any]]] = []
    for revealed in result["steps"]:
        steps.append([])
        for one in revealed:
            chance = round(one["probability"], 6)
            shown = {**one, "token": make_visible(one["token"]), "probability": chance}
            steps[-1].append(shown)
    return {
        "text": cut_text(make_visible(row.fields["text"]), TITLE) or "(no text)",
        "final": make_visible(result["text"]),
        "tokens": [make_visible(token) for token in result["tokens"]],
        "steps": steps,
    }


def _list_facts(options: Options, texts: Sequence[dict[str, Any]]) -> list[str]:
    """Describe the options of the generation, and the numbers of masks and rounds."""
    masks = [sum(map(len, text["steps"])) for text in texts]
    rounds = [len(text["steps"]) for text in texts]
    random = options.order == "random"
    facts = [f"{_join_numbers(masks)} masks", f"{_join_numbers(rounds)} rounds"]
    facts.append("random places" if random else "the surest places first")
    if options.temperature:
        facts.append(f"temperature {options.temperature:g}")
        if options.top_k:
            facts.append(f"top-k {options.top_k}")
        if options.top_p:
            facts.append(f"top-p {options.top_p:g}")
    else:
        facts.append("the likeliest tokens")
    if random or options.temperature:
        facts.append(f"seed {options.seed or 0}")
    return facts


def _join_numbers(numbers: Sequence[int]) -> str:
    """Write numbers in a list such as "2, 5 and 5"."""
    *before, last = map(str, numbers)
    return f"{', '.join(before)} and {last}" if before else last


def _make_chart(texts: Sequence[dict[str, Any]]) -> Chart:
    """Make the chart of the probabilities of the tokens that each round chose."""
    lines = []
    for number, text in enumerate(texts, 1):
        chances = [[one["probability"] for one in revealed] for revealed in text["steps"]]
        lines.append(
            Series(
                f"text {number}" if len(texts) > 1 else "mean of the round",
                [(step, float(np.mean(each))) for step, each in enumerate(chances, 1)],
                colour=f"c{number}",
                dots=[(step, chance) for step, each in enumerate(chances, 1) for chance in each],
            )
        )
    return Chart(
        "Probability of the tokens chosen",
        lines,
        zero=True,
        x="round",
        y="probability",
        note="Lines are means of a round, dots its tokens.",
    )


def _tabulate_choices(text: dict[str, Any]) -> Table:
    """Tabulate the tokens chosen for a text, round by round."""
    rows = []
    for step, revealed in enumerate(text["steps"], 1):
        for one in sorted(revealed, key=lambda one: one["place"]):
            chance = one["probability"]
            token = Cell(one["token"], "token")
            bar = Cell("", "level", share=chance)
            rows.append([str(step), str(one["place"] + 1), token, f"{chance:.4f}", bar])
    head = ["round", "place", "token", "probability", ""]
    return Table(head, rows, look="tall choices", title=text["text"])
