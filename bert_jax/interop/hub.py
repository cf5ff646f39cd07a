"""Upload of an exported folder to the Hugging Face hub.

`hf auth login` or HF_TOKEN says who pushes, and HF_ENDPOINT where the hub is. Whatever fails, the
folder stays as it is.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from bert_jax.errors import ConfigError, first_line

logger = logging.getLogger(__name__)


def check_name(repository: str) -> None:
    """Refuse what cannot be ORG/NAME on the hub, before anything is exported."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        first, _, _ = str(error).partition("\n")
        raise ConfigError(
            f"--push={repository}: {first}", "ORG/NAME, such as me/my-bert"
        ) from error
    if "/" not in repository:
        raise ConfigError(
            f"--push={repository} names no owner", f"ORG/NAME, such as me/{repository}"
        )


def push(folder: Path, repository: str, private: bool) -> str:
    """Create the repository, unless it exists, and commit the folder to it; return its address."""
    import huggingface_hub

    later = f"hf upload {repository} {shlex.quote(str(folder))}{' --private' * private}"
    if not huggingface_hub.get_token():
        raise ConfigError(
            f"{folder} is exported, but not pushed to {repository}: no token of the hub is known",
            f"`hf auth login`, or HF_TOKEN; then `{later}`",
        )
    api = huggingface_hub.HfApi()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    logger.info(f"pushing {size:,} bytes to {repository}")
    huggingface_hub.utils.disable_progress_bars()  # an error would follow on the line of a bar
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Export of bert_jax"
        )
    except Exception as error:  # of whichever kind its HTTP client, or what it uploads with, has
        problem, advice = _explained(error, repository)
        raise ConfigError(
            f"{folder} is exported, but not pushed to {repository}: {problem}",
            f"{advice}; then `{later}`",
        ) from error
    finally:
        huggingface_hub.utils.enable_progress_bars()
    return str(address)


def _explained(error: BaseException, repository: str) -> tuple[str, str]:
    """Return what is wrong, and what to do about it."""
    if isinstance(error, RuntimeError) and error.__cause__:  # of one of several threads
        error = error.__cause__
    status = getattr(getattr(error, "response", None), "status_code", None)
    owner = repository.partition("/")[0]
    if status == 401:
        return "the hub does not know the token", "`hf auth login` with another one"
    if status in (403, 404):
        return (
            f"the token may not write to {owner}, or there is no {owner}",
            f"a token that may write, of a member of {owner}",
        )
    if status is None and not isinstance(error, ValueError):
        return f"no answer from the hub: {first_line(error)[:200]}", "where there is a network"
    return f"the hub refuses it: {' '.join(str(error).split())[:200]}", "mend what it names"
