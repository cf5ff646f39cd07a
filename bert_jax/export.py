"""`bert-jax export`: a checkpoint as a folder for transformers and sentence-transformers."""

import json
import logging
import re
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from pathlib import Path

from bert_jax import cli
from bert_jax.errors import ConfigError, need

logger = logging.getLogger(__name__)

EXAMPLE = "--model=runs/demo --output=exported --push=me/my-bert"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    cli.add_checkpoint_flag(parser)
    cli.add_output_flag(parser, "the folder for transformers and sentence-transformers")
    push = "then upload the folder to this repository of the hub; a new one is private"
    parser.add_argument("--push", default=SUPPRESS, metavar="ORG/NAME", type=_name, help=push)
    public = "with --push: everybody may see a new repository"
    parser.add_argument("--public", action="store_true", help=public)
    states = "the card's licence, by its name on the hub, such as apache-2.0 (unknown)"
    beside = "of a run of objective replaced: export the generator, not the discriminator"
    parser.add_argument("--generator", action="store_true", help=beside)
    parser.add_argument("--license", default=SUPPRESS, metavar="ID", type=_licence, help=states)


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(**vars(call.args))


def run(
    checkpoint: str,
    output: Path,
    tokenizer: str = "",
    push: str = "",
    public: bool = False,
    license: str = "",
    generator: bool = False,
) -> None:
    """Export a checkpoint; print the folder, the class of transformers and the step as JSON.

    If the run has a generator, its discriminator is exported, or with `generator` the generator
    itself. With `push`, ORG/NAME, the folder is then uploaded to the hub, and its address is
    printed too.
    """
    from bert_jax.interop import export, runs

    need(bool(push) or not public, "--public is for --push", "--push=ORG/NAME says where to")
    opened = export.split_generator(runs.open_run(checkpoint, tokenizer=tokenizer), generator)
    family = export.find_family(opened.config, opened.tokenizer.special)  # before a folder is made
    name, _ = export.find_class(opened.config, family)
    with export.fresh_folder(output) as folder:
        export.write_folder(opened, folder, license, push)
    said = {"output": str(output), "architecture": name, "step": opened.step}
    if push:
        said["pushed"] = push_folder(output, push, private=not public)
    print(json.dumps(said))


def push_folder(folder: Path, repository: str, private: bool) -> str:
    """Commit a folder to a repository of the hub, created if needed; return its address.

    `hf auth login` or HF_TOKEN says who pushes, and HF_ENDPOINT where the hub is.
    """
    import huggingface_hub

    failed = f"{folder} is exported, but not pushed to {repository}"
    later = f"then `hf upload {repository} {shlex.quote(str(folder))}{' --private' * private}`"
    if not huggingface_hub.get_token():
        raise ConfigError(
            f"{failed}: no token of the hub is known", f"`hf auth login`, or HF_TOKEN; {later}"
        )
    api = huggingface_hub.HfApi()
    logger.info(f"pushing {folder} to {repository}")
    huggingface_hub.utils.disable_progress_bars()  # an error would follow on the line of a bar
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Export of bert_jax"
        )
    except Exception as error:  # each of the libraries it uploads with has errors of its own
        said = " ".join(f"{error} {error.__cause__ or ''}".split())[:300]
        raise ConfigError(f"{failed}: {said}", f"mend what the hub names; {later}") from error
    finally:
        huggingface_hub.utils.enable_progress_bars()
    return str(address)


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", text):
        raise ArgumentTypeError(f"{text!r} is not ORG/NAME, such as me/my-bert")
    return text


def _licence(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", text):
        raise ArgumentTypeError(f"{text!r} is no name of a licence on the hub")
    return text


if __name__ == "__main__":
    cli.main(["export", *sys.argv[1:]])
