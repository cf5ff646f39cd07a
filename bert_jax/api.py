"""The package in Python: models that are opened once and asked often, with numpy arrays.

    import bert_jax

    model = bert_jax.load("runs/demo")
    model.fill_mask(["The name of the [MASK] to be read."])

Models call the same code as the commands, so results equal the output of the commands. Texts of
about the same length are computed in one batch.
"""

import functools
import importlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.errors import ConfigError, DataError, suggest
from bert_jax.interop import runs
from bert_jax.system import opening
from bert_jax.system.arguments import Parser

if TYPE_CHECKING:
    from bert_jax.views.texts import Parts, Texts

Text = str | Sequence[str] | dict[str, Any]  # a text; a pair, or several fields; fields by name
Answers = list[dict[str, Any]]
HEIGHT = 640  # pixels of a page in a notebook


class Page:
    """An HTML page, which a notebook displays."""

    def __init__(self, html: str, title: str):
        self.html = html.encode(errors="replace").decode()  # a lone surrogate is no character
        self.title = title

    def __repr__(self) -> str:
        return f"<{self.title}: {len(self.html) / 1e3:,.0f} kB of HTML>"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:0"
        # Without a base of its own, links to sections would load the notebook into the frame.
        html = escape(self.html.replace("<head>", '<head><base href="about:srcdoc">', 1))
        return f'<iframe srcdoc="{html}" title="{escape(self.title)}" style="{style}"></iframe>'

    def save(self, path: str | os.PathLike) -> None:
        """Write the page into a file, which can be viewed without a network."""
        Path(path).write_text(self.html, encoding="utf-8")


class Model:
    """A trained model: the model of a bert-jax run, or a model of another project."""

    def __init__(self, opened: runs.TrainedModel):
        self.opened = opened
        self._predictors: dict[str, Any] = {}  # the last of each task

    def __repr__(self) -> str:
        model = self.opened.config.model
        heads = ", ".join(self.opened.config.objectives) or "none"
        name = self.opened.meta.get("foreign", f"{self.opened.folder}, step {self.opened.step:,}")
        size = f"{model.layers} layers of {model.hidden}, {self.opened.tokenizer.size:,} tokens"
        return f"<Model {name}: {size}, heads {heads}>"

    # --- what `bert-jax predict` answers ----------------------------------------------------------

    def fill_mask(self, texts: Sequence[Text], **options: Any) -> Answers:
        """Return for each text a dict with "masks": the likeliest tokens of each [MASK]."""
        return self._answer("fill-mask", texts, options)

    def nsp(self, pairs: Sequence[Text], **options: Any) -> Answers:
        """Compute the probability that the second text of each pair follows the first.

        The result has a dict for each pair, with the probability as "is_next".
        """
        return self._answer("nsp", pairs, options)

    def classify(self, texts: Sequence[Text], **options: Any) -> Answers:
        """Return for each text or pair a dict with its label and the probability of every label.

        A model that predicts a number gives the number as "value" instead.
        """
        return self._answer("classify", texts, options)

    def tag(self, texts: Sequence[Text], **options: Any) -> Answers:
        """Return for each text a dict with its "words" and a label for each word."""
        return self._answer("tag", texts, options)

    def answer(self, questions: Sequence[Text], **options: Any) -> Answers:
        """Find the answer to each (question, context); return a dict for each question.

        The dict has the answer's text, its score, and where in the context the answer starts and
        ends.
        """
        return self._answer("answer", questions, options)

    def generate(self, texts: Sequence[Text], **options: Any) -> Answers:
        """Return for each text a dict with "text": the text continued, or with its masks filled in.

        The objective of the model decides whether it continues a text or fills in masks.
        """
        return self._answer("generate", texts, options)

    def embed(self, texts: Sequence[Text], **options: Any) -> np.ndarray:
        """Compute one vector for each text, float32 [N, D]."""
        vectors = [answer["embedding"] for answer in self._answer("embed", texts, options)]
        return np.array(vectors, np.float32).reshape(
            len(vectors), self.opened.config.model.hidden or 0
        )

    def _answer(self, task: str, texts: Sequence[Text], options: dict[str, Any]) -> Answers:
        from bert_jax.predictors import TASKS, stream
        from bert_jax.predictors.base import AskedModel as Asked
        from bert_jax.predictors.options import FIELDS, Options

        _check_names(task, options, [field.name for field in FIELDS])
        chosen = Options(**options)
        predictor = self._predictors.get(task)
        if predictor is None or predictor.model.options != chosen:
            _check_options("predict", [task], options)
            predictor = TASKS[task].make(Asked(self.opened, chosen))
            self._predictors[task] = predictor
        rows = _read_rows(predictor, texts)
        answers: Answers = []
        window = chosen.batch_size * stream.AHEAD
        for start in range(0, len(rows), window):
            work = predictor.encode(rows[start : start + window])
            answers += work.answer(chosen.batch_size)
        return answers

    # --- arrays (here [MASK] in a text is the special token) --------------------------------------

    def hidden_states(self, texts: Sequence[Text]) -> list[np.ndarray]:
        """Compute the vectors of each text's tokens, an array float32 [layers + 1, tokens, D].

        The embeddings come first. The last vectors are those after the final norm, if the model has
        one, as in transformers. [CLS] and [SEP] count as tokens.
        """
        return self._texts.look_inside(self._read_parts(texts), "hidden")

    def attention(self, texts: Sequence[Text]) -> list[np.ndarray]:
        """Compute the attention of each text, an array float32 [layers, heads, tokens, tokens]."""
        return self._texts.look_inside(self._read_parts(texts), "attention")

    def logits(self, texts: Sequence[Text], head: str = "") -> list[np.ndarray]:
        """Compute the logits of a head for each text, by default of the model's first head.

        Heads over tokens give [tokens, classes]. The classes of `mlm` and `causal_lm` are the
        vocabulary, and `replaced` gives [tokens]. Heads over a whole text give [classes]. For
        `choice` a text is {"text", "options"}, and the result is [options].
        """
        from bert_jax.objectives import TABLE, network
        from bert_jax.predictors.base import AskedModel as Asked
        from bert_jax.predictors.labelled import Classify
        from bert_jax.predictors.options import Options

        asked = Asked(self.opened, Options())
        name = asked.choose_head(*([head] if head else self.opened.config.heads))
        size = self.opened.tokenizer.size
        build = network.build_network(self.opened.config, size, only=name)
        params = {p: self.opened.params[p] for p in network.list_parts(self.opened.config, name)}

        def apply(params: Any, batch: dict[str, Any]) -> Any:
            found = network.compute_outputs(build, params, batch)[name]
            return getattr(found, "logits", found)

        def cut(row: np.ndarray, count: int) -> np.ndarray:
            row = row[0] if TABLE[name].pooled else row[:count]
            return row[..., :size] if name in ("mlm", "causal_lm") else row

        def compute(texts: Sequence[Text]) -> list[np.ndarray]:
            parts = self._read_parts(texts)
            return self._texts.compute(f"logits of {name}", parts, apply, params, cut)

        if name != "choice":
            return compute(texts)
        reader = Classify(asked)
        questions = [reader.make_example(row) for row in _read_rows(reader, texts)]
        pairs = [(question.text, option) for question in questions for option in question.options]
        scores = iter(compute(pairs))
        return [np.concatenate([next(scores) for _ in q.options]) for q in questions]

    @functools.cached_property
    def _texts(self) -> "Texts":
        from bert_jax.predictors.base import AskedModel as Asked
        from bert_jax.predictors.options import Options
        from bert_jax.views.texts import Texts

        reader = Texts(Asked(self.opened, Options()))
        reader.shorten = "split the text"
        return reader

    def _read_parts(self, texts: Sequence[Text]) -> "Parts":
        parts, _ = self._texts.tokenize_texts(_read_rows(self._texts, texts))
        return parts

    # --- pages ------------------------------------------------------------------------------------

    def inspect(
        self, page: str, texts: Sequence[Text], *, long: str = "refuse", **settings: Any
    ) -> Page:
        """Make the HTML page of `bert-jax inspect`: attention, embeddings or a generation."""
        from bert_jax.predictors.base import AskedModel as Asked
        from bert_jax.predictors.options import Options
        from bert_jax.views import PAGES

        if page not in PAGES:
            raise ConfigError(f"no page {page!r}", suggest(page, PAGES))
        kind, make = PAGES[page].find_maker()
        _check_options("inspect", [page], settings | {"long": long})
        reader = kind(Asked(self.opened, Options(long=long)))
        rows = _read_rows(reader, texts)
        count = "1 text" if len(rows) == 1 else f"{len(rows)} texts"
        return Page(make(reader, rows, **settings), f"{page} of {count}")


class Run:
    """A run folder: its metrics and report, and the model that it trained."""

    def __init__(self, workdir: str | os.PathLike):
        from bert_jax.reporting import run_record

        self.workdir = _read_path(workdir, "workdir")
        run_record.check_run(self.workdir)

    def __repr__(self) -> str:
        from bert_jax.reporting.metric_names import is_result

        metrics = self.metrics()
        last = max((int(steps[-1]) for steps, _ in metrics.values()), default=0)
        scores = [name for name in metrics if name.startswith("eval/") and is_result(name)]
        shown = [f"{name} {metrics[name][1][-1]:.3f}" for name in scores[:2]]
        return f"<Run {self.workdir}: {', '.join([f'step {last:,}', *shown])}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def metrics(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Read metrics.jsonl; return {metric: (steps, values)}, both as arrays."""
        from bert_jax.reporting import records

        found: dict[str, tuple[list[int], list[float]]] = {}
        path = self.workdir / records.METRICS  # an imported run has none
        for row in records.read_rows(path) if path.exists() else ():
            for name, value in row.items():
                if "/" in name and isinstance(value, (int, float)):
                    steps, values = found.setdefault(name, ([], []))
                    steps.append(row["step"])
                    values.append(value)
        return {name: (np.array(steps), np.array(v)) for name, (steps, v) in found.items()}

    def report(self) -> Page:
        """Make the report of the run as it is now; the run may still be training."""
        from bert_jax.reporting import run_record, run_report

        html = run_report.build_report(run_record.read_run(self.workdir))
        return Page(html, f"report of {self.workdir}")

    def load(self) -> Model:
        """Open the model of the best sound checkpoint, or of the latest if no step has a metric."""
        return load(self.workdir)


def load(path: str | os.PathLike, *, tokenizer: str = "") -> Model:
    """Open a trained model: of a run, of one step of a run, or of another project.

    Args:
      path: RUN, RUN/checkpoints/STEP, a Hugging Face folder, a .safetensors file, a TF1 checkpoint,
        or a hub name. RUN stands for its best sound checkpoint, or for its latest if no step has a
        metric.
      tokenizer: the vocabulary, for a model of another project without a vocabulary.
    """
    _read_path(path, "path")
    return Model(runs.open_run(os.fspath(path), tokenizer=tokenizer))


def default_config(preset: str = "") -> Any:
    """Return the default config as a ConfigDict, or the config of the published recipe `preset`."""
    return configs.default(preset)


def run(config: Any, workdir: str | os.PathLike, **options: Any) -> Run | None:
    """Train a config (a ConfigDict or a Config) in a folder; return the run.

    If the folder has an unfinished run of this config, the training continues there. `options` are
    passed to `train.run`. With dry_run=True the description of the run is printed, nothing is
    trained, and the result is None.
    """
    from bert_jax import train

    settled = config if isinstance(config, knobs.Config) else configs.resolve(config)
    folder = _read_path(workdir, "workdir")
    train.run(settled, folder, **({"command": ["bert_jax.run"]} | options))
    return None if options.get("dry_run") else Run(folder)


def score(model: Model | str | os.PathLike, suite: str, **options: Any) -> dict[str, Any]:
    """Compute the metrics of a suite; return the dict that `bert-jax evaluate` prints under NAME.

    The dict has NaN where the command prints null. `options` are the flags of the suite, by name.
    The option `config` may be a ConfigDict.
    """
    from bert_jax import suites

    opened = model.opened if isinstance(model, Model) else load(model).opened
    _check_names(suite, options, ("config", "changes", *suites.list_flags()))
    config = options.pop("config", None)
    # 0 leaves a number to the suite.
    given = {name: x for name, x in options.items() if name != "changes" and (x or x is False)}
    _check_options("evaluate", [], given)
    if config is not None:
        if not isinstance(config, knobs.Config):
            tree = configs.copy_with_source(config, options.get("source", ""))
            config = configs.resolve(tree)
        config = configs.change_knobs(config, options.get("changes", ()))
    (asked,) = suites.build_options([suite], config=config, **options)
    return suites.score(opened, asked)[0]


def show(folder: str | os.PathLike) -> Page:
    """Open the report of a run or of a study."""
    path = _read_path(folder, "folder") / "report.html"
    if not path.is_file():
        raise DataError(f"no report in {folder}", "the folder of a run or of a study")
    return Page(path.read_text(encoding="utf-8"), f"report of {folder}")


def _read_path(path: str | os.PathLike, what: str) -> Path:
    """Convert a path; refuse an empty path, which would mean the current folder."""
    if not os.fspath(path):
        raise ConfigError(f"{what} is empty", "name a folder; '.' is the current one")
    return opening.expand_home(path)


def _check_names(asked: str, options: Iterable[str], known: Sequence[str]) -> None:
    """Refuse an unknown option, and suggest the known option that is nearest."""
    for name in options:
        if name not in known:
            raise TypeError(f"{asked} has no option {name!r}: {suggest(name, known)}")


def _check_options(command: str, part: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse options that the command line would refuse, with the same messages.

    The parser of the command checks that each option belongs to `part`, the task or page, and that
    its value is in range.
    """
    parser = Parser(prog=f"bert-jax {command}")
    importlib.import_module(f"bert_jax.{command}").add_flags(parser)
    parser.check(part, options)


def _read_rows(reader: Any, texts: Sequence[Text]) -> list[Any]:
    """Convert texts to the rows that a predictor reads; check them as `bert-jax predict` does."""
    if isinstance(texts, (str, dict)):  # which would be read letter by letter
        raise TypeError(f"one text where several are expected: write [{texts!r}]")
    return [reader.read(n, _write_line(n, text, reader.forms)) for n, text in enumerate(texts, 1)]


def _write_line(number: int, text: Text, forms: Sequence[Sequence[str]]) -> str:
    """Write a text, a pair or a dict as a line of JSON.

    `forms` lists the sets of fields that a line may have, such as ("text",) and ("text", "pair").
    """
    if isinstance(text, dict):
        return json.dumps(text)
    if isinstance(text, str):
        names = next((form for form in forms if len(form) == 1 and form != ("words",)), forms[0])
        return json.dumps({names[0]: text})
    parts = list(text)
    names = next((form for form in forms if len(form) == len(parts)), ())
    if not names:
        taken = " or ".join(", ".join(form) for form in forms)
        raise DataError(f"line {number}: {len(parts)} parts, not {taken}", "name them in a dict")
    return json.dumps(dict(zip(names, parts, strict=True)))
