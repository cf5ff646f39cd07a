"""Upload of an exported folder to the Hugging Face hub.

`hf auth login` or HF_TOKEN says who pushes, and HF_ENDPOINT where the hub is. Whatever fails, the
folder stays as it is.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from bert_jax.errors import ConfigError

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


def push_folder(folder: Path, repository: str, private: bool) -> str:
    """Create the repository, unless it exists, and commit the folder to it; return its address."""
    import huggingface_hub

    failed = f"{folder} is exported, but not pushed to {repository}"
    later = f"then `hf upload {repository} {shlex.quote(str(folder))}{' --private' * private}`"
    if not huggingface_hub.get_token():
        raise ConfigError(
            f"{failed}: no token of the hub is known", f"`hf auth login`, or HF_TOKEN; {later}"
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
    except Exception as error:  # each of the libraries it uploads with has errors of its own
        said = " ".join(f"{error} {error.__cause__ or ''}".split())[:300]
        raise ConfigError(f"{failed}: {said}", f"mend what the hub names; {later}") from error
    finally:
        huggingface_hub.utils.enable_progress_bars()
    return str(address)
