"""What `bert-jax` can do: a command is one row of COMMANDS, with its flags and the function that runs it.

Each imports what it needs when it runs: --help, and every usage error, answer before jax is loaded.
"""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bert_jax import flags
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.flags import Call
from bert_jax.system import allocator, supervisor

# --- flags and function of each -------------------------------------------------------------------------------------


def _prepare(call: Call) -> None:
    from bert_jax import prepare

    prepare.run(flags.read_config(call.args.config, call.overrides))


LIMITS = f"labelled data: texts of at most {knobs.TEXT:,} characters, in lines of at most {knobs.LINE:,} bytes"


def _train_flags(parser: ArgumentParser) -> None:
    parser.description = f"{parser.description}; {LIMITS}"
    flags.config_flag(parser)
    parser.add_argument("--workdir", type=Path, metavar="DIR", required=True, help="where the run lives; resumes it")
    parser.add_argument("--dry-run", action="store_true", help="print config, parameters, memory and steps only")
    allow = "resume although this knob changed, such as steps; may be repeated"
    parser.add_argument("--allow-change", action="append", default=[], metavar="KEY", help=allow)


def _train(call: Call) -> None:
    config = flags.read_config(call.args.config, call.overrides)
    if config.parallel.distributed and not supervisor.supervised():
        again = [sys.executable, "-m", "bert_jax.cli", *call.words[1:], *(["--debug"] if call.debug else [])]
        sys.exit(supervisor.run(again, call.args.workdir, call.debug))
    allocator.retain()
    from bert_jax import train

    allowed = tuple(key.removeprefix("config.") for key in call.args.allow_change)
    train.run(config, call.args.workdir, dry_run=call.args.dry_run, allow_change=allowed, command=call.words)


def _evaluate_flags(parser: ArgumentParser) -> None:
    flags.checkpoint_flag(parser)
    flags.config_flag(parser)
    suites = (
        "pretrain, nsp, cross_rate, pll, blimp, sts, probe, task, glue, or a task such as squad; several with commas; "
        "if nothing is said, task or pretrain, as the checkpoint was trained"
    )
    parser.add_argument("--suite", default="", metavar="NAME[,NAME]", help=suites)
    parser.add_argument("--task", type=flags.given, metavar="NAME", help="sts, probe: a row of bert_jax/data/tasks.py")
    source = "texts or labelled data in place of the checkpoint's or the task's own: files:PATTERN or tfds:NAME; "
    source += LIMITS
    parser.add_argument("--source", type=flags.given, metavar="SOURCE", help=source)
    parser.add_argument("--split", type=flags.given, metavar="NAME", help="the part of a task's data")
    parser.add_argument(
        "--batch-size", type=flags.positive, default=0, metavar="N", help="rows a step; changes no result"
    )
    limit = "only the first N texts, examples (probe: of each split), or pairs of a paradigm"
    parser.add_argument("--limit", type=flags.positive, default=0, metavar="N", help=limit)
    submit = "tasks of GLUE, SQuAD: write there what their servers take, for the test splits unless --split says"
    parser.add_argument("--submission", type=flags.given, metavar="DIR", help=submit)
    within = "pll, blimp: mask the later pieces of a token's word with it (PLL-word-l2r)"
    parser.add_argument("--within-word", action="store_true", help=within)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")


def _evaluate(call: Call) -> None:
    args = call.args
    config = flags.read_config(args.config, call.overrides, args.source or "") if args.config else None
    allocator.retain()
    flags.make_room(args.output)
    from bert_jax import evaluate

    changes = [] if config else call.overrides  # of the checkpoint's own config
    asked = {key: getattr(args, key) for key in ("batch_size", "limit", "within_word")}
    asked |= {key: getattr(args, key) or "" for key in ("task", "source", "split", "submission")}
    evaluate.run(args.checkpoint, args.suite, config, args.output, changes=changes, tokenizer=args.tokenizer, **asked)


def _predict_flags(parser: ArgumentParser) -> None:
    tasks = ("fill-mask", "nsp", "classify", "tag", "answer", "embed", "generate")
    one = "; fill-mask gives a [MASK] one token: a masked model cannot say how many a gap has"
    parser.add_argument("task", metavar="TASK", choices=tasks, help=", ".join(tasks) + one)
    flags.checkpoint_flag(parser)
    lines = f"texts or JSON lines, each of at most {knobs.TEXT:,} characters in {knobs.LINE:,} bytes"
    parser.add_argument("--input", type=Path, metavar="FILE", help=f"{lines}; standard input when left out")
    several = "fill-mask: tokens a mask (5); answer: answers listed besides the chosen one (none); generate: draw "
    several += "from the likeliest K (all)"
    parser.add_argument("--top-k", type=flags.positive, metavar="K", help=several)
    parser.add_argument("--pooling", choices=("mean", "cls"), default="", help="embed (the model's own, else mean)")
    parser.add_argument("--normalize", action="store_true", help="embed: vectors of length 1")
    parser.add_argument("--entities", action="store_true", help="tag: merge words labelled B-… and I-…")
    none = "answer: there may be none, and is where that scores higher by more than this (the model's own)"
    parser.add_argument("--no-answer-threshold", type=float, metavar="X", help=none)
    parser.add_argument("--max-tokens", type=flags.positive, metavar="N", help="generate: at most so many more (64)")
    warm = "generate: 0 takes the likeliest token; others draw, 1 as the model says (%(default)s)"
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help=warm)
    nucleus = "generate: draw from the fewest tokens that have this share of the probability (1)"
    parser.add_argument("--top-p", type=float, metavar="P", help=nucleus)
    parser.add_argument("--seed", type=flags.count, metavar="N", help="generate: of the draws (0)")
    too_long = (
        "a text too long for the model: refuse it (fill-mask, nsp, embed, generate), cut its end (classify), or look "
        "at it in windows (tag, answer; fill-mask has them too)"
    )
    parser.add_argument("--long", choices=("refuse", "cut", "windows"), default="", help=too_long)
    stride = "of windows, in tokens (fill-mask 64; tag, answer: the model's own, or 128)"
    parser.add_argument("--stride", type=flags.positive, metavar="N", help=stride)
    meaning = "what the stride is (fill-mask overlap; tag, answer: the model's own, or step)"
    parser.add_argument("--stride-as", choices=("overlap", "step"), default="", help=meaning)
    bad = "a line that cannot be read or asked ends it, or is left out with a warning (%(default)s)"
    parser.add_argument("--on-bad-row", choices=("fail", "skip"), default="fail", help=bad)
    parser.add_argument("--batch-size", type=flags.positive, default=32, metavar="N", help="rows a step (%(default)s)")


def _predict(call: Call) -> None:
    args = call.args
    allocator.retain()
    from bert_jax import predict

    options = {
        key: getattr(args, key)
        for key in (
            *("top_k", "pooling", "normalize", "entities", "no_answer_threshold"),
            *("max_tokens", "temperature", "top_p", "seed"),
            *("long", "stride", "stride_as", "on_bad_row", "batch_size"),
        )
    }
    predict.run(args.task, args.checkpoint, args.input, args.tokenizer, **options)


OF_PAGE = {  # flags of one page alone
    "attention": ("digits",),
    "embeddings": ("layer", "pooling", "points", "method", "neighbours"),
}


def _inspect_flags(parser: ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", choices=OF_PAGE, help=", ".join(OF_PAGE))
    flags.checkpoint_flag(parser)
    text = "a text to look at; may be repeated, and all are shown beside one another"
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help=text)
    pair = "attention: what follows it; the n-th goes with the n-th text"
    parser.add_argument("--text-pair", action="append", default=[], metavar="TEXT", help=pair)
    lines = "instead: one text a line (attention: or two with a tab between), or JSON lines with text (and text_pair)"
    parser.add_argument("--input", type=Path, metavar="FILE", help=lines)
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page (PAGE.html)")
    too_long = "a text too long for the model: refuse it, or cut its end (%(default)s)"
    parser.add_argument("--long", choices=("refuse", "cut"), default="refuse", help=too_long)
    digits = "attention: decimals of a weight; a page with fewer is smaller (6)"
    parser.add_argument("--digits", type=int, choices=range(2, 7), metavar="2…6", help=digits)
    layer = "embeddings: what is shown first: input (rows of the token table), 0 (after their sum), 1 … or last (last)"
    parser.add_argument("--layer", type=flags.given, metavar="N|input|last", help=layer)
    pooling = (
        "embeddings: what is shown first: tokens (the mean of the text's own), mean (with [CLS] and [SEP], as predict "
        "embed has it) or cls (the model's own, else tokens)"
    )
    parser.add_argument("--pooling", choices=("tokens", "mean", "cls"), help=pooling)
    points = "embeddings: a point is a text, or a word of one (texts)"
    parser.add_argument("--points", choices=("texts", "words"), help=points)
    method = "embeddings: the way into two dimensions; umap needs the package umap-learn (pca)"
    parser.add_argument("--method", choices=("pca", "tsne", "umap"), help=method)
    near = "embeddings: nearest ones listed, at most 100 (5)"
    parser.add_argument("--neighbours", type=flags.positive, metavar="K", help=near)


def _inspect(call: Call) -> None:
    args = call.args
    for page, names in OF_PAGE.items():
        if page != args.page and (wrong := [name for name in names if getattr(args, name) is not None]):
            raise ConfigError(f"inspect {args.page} has no flag --{wrong[0]}", f"inspect {page} has it")
    options = {name: value for name in OF_PAGE[args.page] if (value := getattr(args, name)) is not None}
    output = args.output or Path(f"{args.page}.html")
    allocator.retain()
    flags.make_room(output)
    inspect = importlib.import_module("bert_jax.inspect")  # not Python's
    given = {key: getattr(args, key) for key in ("tokenizer", "long")}
    inspect.run(args.page, args.checkpoint, args.text, args.text_pair, args.input, output, **given, **options)


def _export_flags(parser: ArgumentParser) -> None:
    flags.checkpoint_flag(parser)
    flags.output_flag(parser, "the folder for transformers and sentence-transformers")


def _export(call: Call) -> None:
    from bert_jax import export

    export.run(call.args.checkpoint, call.args.output, call.args.tokenizer)


def _import_flags(parser: ArgumentParser) -> None:
    flags.checkpoint_flag(parser)
    flags.output_flag(parser, "the run")
    parser.add_argument("--allow-missing", action="store_true", help="do without heads its config.json promises")
    parser.add_argument("--allow-unused", action="store_true", help="leave tensors aside that are no part of BERT")
    parser.add_argument("--resize-vocab", action="store_true", help="cut rows of the table that no piece has")


def _import(call: Call) -> None:
    module = importlib.import_module("bert_jax.import")  # a keyword in Python, and the right word for users
    allowed = {key: getattr(call.args, key) for key in ("allow_missing", "allow_unused", "resize_vocab")}
    module.run(call.args.checkpoint, call.args.output, call.args.tokenizer, **allowed)


def _doctor_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    compare = "in what two presets differ; defaults is one too"
    parser.add_argument("--preset-diff", nargs=2, metavar=("A", "B"), default=(), help=compare)


def _doctor(call: Call) -> None:
    from bert_jax import doctor

    doctor.run(call.args.json, call.args.preset_diff)


def _study_flags(parser: ArgumentParser) -> None:
    actions = ("run", "status", "report")
    does = "run what is missing and report; say how far it is; write the report again"
    parser.add_argument("action", metavar="ACTION", choices=actions, help=f"{', '.join(actions)}: {does}")
    where = "run: its folder, such as experiments/masking_rate; --config.a.b=VALUE changes a knob of all its cells"
    parser.add_argument("study", metavar="DIR[:SCALE]", nargs="?", type=flags.given, help=where)
    parser.add_argument("--workdir", type=Path, metavar="DIR", required=True, help="where the study lives; resumes it")
    engines = "run: local (processes of this machine), slurm or ray; a study may change it (%(default)s)"
    parser.add_argument("--engine", default="local", metavar="NAME", help=engines)
    option = "run: a setting of slurm or ray, such as mem_gb=16; may be repeated"
    parser.add_argument("--engine-option", action="append", default=[], metavar="KEY=VALUE", help=option)
    jobs = "run: groups at a time (a core each; all accelerators together; what the cluster has)"
    parser.add_argument("--jobs", type=flags.positive, default=0, metavar="N", help=jobs)
    fuse = "run: cells that train in one program: as many as pay off and fit, none, or at most N (%(default)s)"
    parser.add_argument("--fuse", default="auto", metavar="auto|never|N", help=fuse)
    retries = "run: tries after the first of what fails (%(default)s)"
    parser.add_argument("--retries", type=flags.count, default=2, metavar="N", help=retries)
    reuse = "run: the workdir of another study; cells of this one that it has trained are copied; may be repeated"
    parser.add_argument("--reuse", type=Path, action="append", default=[], metavar="DIR", help=reuse)
    parser.add_argument("--dry-run", action="store_true", help="run: print cells, groups and the estimated time only")
    parser.add_argument("--verbose", action="store_true", help="status: a line for every cell")
    parser.add_argument("--json", action="store_true", help="status: one JSON object")


def _study(call: Call) -> None:
    args = call.args
    for flag, action in (("dry_run", "run"), ("reuse", "run"), ("verbose", "status"), ("json", "status")):
        if getattr(args, flag) and args.action != action:
            raise ConfigError(f"study {args.action} has no flag --{flag.replace('_', '-')}", f"study {action} has it")
    options = dict(text.partition("=")[::2] for text in args.engine_option)
    if wrong := [text for text in args.engine_option if "=" not in text]:
        raise ConfigError(f"--engine-option {wrong[0]!r} has no value", "write --engine-option KEY=VALUE")
    from bert_jax import study

    if args.action == "status":
        study.status(args.workdir, verbose=args.verbose, as_json=args.json)
    elif args.action == "report":
        study.report(args.workdir)
    else:
        given = {key: getattr(args, key) for key in ("engine", "jobs", "fuse", "retries", "reuse", "dry_run")}
        study.run(args.study, args.workdir, overrides=call.overrides, options=options, command=call.words, **given)


def _benchmark_flags(parser: ArgumentParser) -> None:
    from bert_jax import benchmark

    parser.add_argument("name", metavar="NAME", choices=benchmark.TABLE, help=", ".join(benchmark.TABLE))
    flags.config_flag(parser)
    size = f"LAYERSxHIDDEN or a name of the models' sizes ({benchmark.SIZE}, or what --config says)"
    parser.add_argument("--size", type=flags.given, metavar="SIZE", help=size)
    rivals = "measure it too, in turn; needs torch and transformers"
    parser.add_argument("--against", choices=benchmark.RIVALS, default="", help=rivals)
    parser.add_argument("--python", default="", metavar="PATH", help="a Python that has them (this one)")
    parser.add_argument("--rounds", type=flags.positive, default=9, metavar="N", help="turns of each (%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the rows there as JSON")


def _benchmark(call: Call) -> None:
    args = call.args
    flags.make_room(args.output)
    from bert_jax import benchmark

    given = {key: getattr(args, key) for key in ("size", "against", "python", "rounds", "output")}
    benchmark.run(args.name, args.config, call.overrides, **given)


@dataclass(frozen=True)
class Command:
    """One row of the table: what it does, its flags, its function, and whether the same command continues it."""

    help: str
    example: str
    flags: Callable[[ArgumentParser], None]
    run: Callable[[Call], None]
    resumable: bool = False
    overrides: bool = False  # takes --config.a.b=VALUE without a --config


COMMANDS = {
    "prepare": Command(
        "corpus and vocabulary of a config, once",
        "--config=configs/tiny.py",
        flags.config_flag,
        _prepare,
        resumable=True,
    ),
    "train": Command(
        "prepare if needed, train, evaluate; the same command resumes",
        "--config=configs/tiny.py --workdir=runs/tiny --config.masking.rate=0.4",
        *(_train_flags, _train),
        resumable=True,
    ),
    "evaluate": Command(
        "exact evaluation of a checkpoint, as JSON",
        "--checkpoint=runs/tiny --output=runs/tiny/evaluation.json",
        *(_evaluate_flags, _evaluate),
    ),
    "predict": Command(
        "fill masks, classify, tag, answer, embed, generate: texts in, JSON lines out",
        "fill-mask --model=runs/tiny --input=texts.txt",
        *(_predict_flags, _predict),
    ),
    "inspect": Command(
        "what a model makes of a text, as one offline HTML page",
        "attention --model=runs/tiny --input=texts.txt --output=attention.html",
        *(_inspect_flags, _inspect),
    ),
    "study": Command(
        "many runs that answer one question: run, status, report",
        "run experiments/masking_rate --workdir=runs/masking_rate",
        *(_study_flags, _study),
        resumable=True,
        overrides=True,
    ),
    "export": Command(
        "a checkpoint as a folder for transformers and sentence-transformers",
        "--checkpoint=runs/tiny --output=exported",
        *(_export_flags, _export),
    ),
    "import": Command(
        "a model of others as a run: Hugging Face, safetensors, TF1",
        "--model=google-bert/bert-base-uncased --output=runs/bert_base",
        *(_import_flags, _import),
    ),
    "benchmark": Command(
        "this project beside what its users would otherwise run, in turn",
        "train-step --size=4x512 --against=transformers --config.model.dtype=bfloat16",
        *(_benchmark_flags, _benchmark),
    ),
    "doctor": Command("versions, devices, disk, prepared corpora, known trouble", "--json", _doctor_flags, _doctor),
}
