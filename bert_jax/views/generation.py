"""Page of `bert-jax inspect generation`: plays the rounds in which a masked model writes a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from bert_jax.errors import ConfigError, DataError
from bert_jax.predictors.base import Model, OfText, Row
from bert_jax.predictors.masked import Unmask
from bert_jax.reporting import page as pages
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.svg import draw
from bert_jax.views import common
from bert_jax.views.texts import model_facts, shorten, visible

SEVERAL = 5  # texts side by side, as many as there are colours
TITLE = 200  # characters of a text above its tokens


def page(reader: OfText, rows: Sequence[Row], **settings: Any) -> str:
    """Build the document for texts that are filled as `predict generate` fills them.

    `settings` are fields of `predictors.options.Options`.
    """
    run = reader.model.run
    if not rows or len(rows) > SEVERAL:
        raise DataError(f"{len(rows)} texts", f"a page shows 1 to {SEVERAL} side by side")
    options = dataclasses.replace(reader.model.options, **settings)
    if "causal_lm" in run.config.objectives:
        raise ConfigError(
            f"{run.folder} writes from left to right", "the page shows how a masked model fills in"
        )
    reader.model.choose("mlm")
    predictor = Unmask(Model(run, dataclasses.replace(options, show_steps=True)))
    work = predictor.encode(rows)
    results = list(work.answer(options.batch_size))
    texts = [_collect(row, result) for row, result in zip(rows, results, strict=True)]
    most = max(len(text["steps"]) for text in texts)
    body = pages.fill(
        __file__,
        facts=_write_facts(reader, predictor, texts),
        rounds=str(most),
        chart=pages.section(
            "How sure the model was", draw(_describe_chart(texts)) if most > 1 else "", "charts"
        ),
        tables="".join(map(_write_table, texts)),
        data=common.data_script({"texts": texts}),
    )
    style = common.STYLE + pages.asset(__file__, ".css")
    script = common.SCRIPT + pages.asset(__file__, ".js")
    return pages.page("Generation", body, style, script)


def _collect(row: Row, result: dict[str, Any]) -> dict[str, Any]:
    """Collect what the page holds of a text: its tokens, and the choices of each round."""
    return {
        "text": shorten(visible(row.fields["text"]), TITLE),
        "final": visible(result["text"]),
        "tokens": [visible(token) for token in result["tokens"]],
        "steps": [
            [
                {**one, "token": visible(one["token"]), "probability": round(one["probability"], 6)}
                for one in revealed
            ]
            for revealed in result["steps"]
        ],
    }


def _write_facts(reader: OfText, predictor: Unmask, texts: Sequence[dict[str, Any]]) -> str:
    """Describe the model and how it was asked."""
    options = predictor.model.options
    facts = model_facts(reader.model.run)
    masks = [sum(map(len, text["steps"])) for text in texts]
    rounds = [len(text["steps"]) for text in texts]
    facts += [f"{_join_numbers(masks)} masks", f"{_join_numbers(rounds)} rounds"]
    random = options.order == "random"
    facts += ["random places" if random else "the surest places first"]
    if options.temperature:
        facts += [f"temperature {options.temperature:g}"]
        facts += [f"top-k {options.top_k}"] if options.top_k else []
        facts += [f"top-p {options.top_p:g}"] if options.top_p else []
    else:
        facts += ["the likeliest tokens"]
    facts += [f"seed {options.seed or 0}"] if random or options.temperature else []
    return " · ".join(facts)


def _join_numbers(numbers: Sequence[int]) -> str:
    """Write numbers as 2, 5 and 5."""
    *before, last = map(str, numbers)
    return f"{', '.join(before)} and {last}" if before else last


def _describe_chart(texts: Sequence[dict[str, Any]]) -> Chart:
    """Describe the figure of the probabilities of what each round chose."""
    lines = []
    for number, text in enumerate(texts, 1):
        chances = [[one["probability"] for one in revealed] for revealed in text["steps"]]
        lines.append(
            Series(
                f"text {number}" if len(texts) > 1 else "mean of the round",
                [(step, float(np.mean(each))) for step, each in enumerate(chances, 1)],
                colour=number,
                dots=[(step, chance) for step, each in enumerate(chances, 1) for chance in each],
            )
        )
    return Chart(
        "Probability of the tokens chosen",
        lines,
        zero=True,
        x="round",
        y="probability",
        last=False,
        note="Lines are means of a round, dots its tokens.",
    )


def _write_table(text: dict[str, Any]) -> str:
    """Tabulate the choices of a text, round by round."""
    lines = ""
    for step, revealed in enumerate(text["steps"], 1):
        for one in sorted(revealed, key=lambda one: one["place"]):
            chance = one["probability"]
            bar = f'<span class="bar"><i style="--p:{chance:.4f}"></i></span>'
            lines += (
                f'<tr><td class="n">{step}</td><td class="n">{one["place"] + 1}</td>'
                f"<td><bdi>{escape(one['token'])}</bdi></td>"
                f'<td class="n">{chance:.4f}</td><td>{bar}</td></tr>'
            )
    title = f"<bdi>{escape(text['text'] or '(no text)')}</bdi>"
    return (
        f'<div class="box"><h3>{title}</h3>'
        '<div class="scroll tall" tabindex=0 role="region" aria-label="choices">'
        '<table class="choices"><tr><th class="n">round</th><th class="n">place</th><th>token</th>'
        f'<th class="n">probability</th><th></th></tr>{lines}</table></div></div>'
    )
