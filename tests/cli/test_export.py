"""`export --push` against a server on this machine that speaks the hub's protocol."""

import json
from collections.abc import Callable, Iterator

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http, close_session

from bert_jax import cli
from bert_jax.interop import runs
from tests import variants
from tests.hubs import OWNER, TOKEN, Hub, serving

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of its client
MODEL = variants.GOLDEN / "huggingface" / "pretraining"
REPOSITORY = f"{OWNER}/small"


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    made = Hub({}, {})
    with serving(made) as endpoint:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield made
    close_session()


@pytest.fixture
def push(tmp_path, capsys) -> Callable[..., tuple[int, str, str]]:
    """A function that exports and pushes; returns exit code, standard output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        where = [f"--model={MODEL}", f"--output={tmp_path / 'my model'}"]
        code = cli.execute(["export", *where, *words])
        return code, *capsys.readouterr()

    return run


def test_push_uploads_the_folder_byte_for_byte(hub, push, tmp_path):
    code, out, err = push(f"--push={REPOSITORY}", "--license=apache-2.0")
    assert code == 0, err
    assert json.loads(out)["pushed"].endswith(REPOSITORY)
    folder = tmp_path / "my model"
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert hub.models == {REPOSITORY: files}
    assert hub.private == {REPOSITORY: True}
    text = (folder / "README.md").read_text()
    assert "\nlicense: apache-2.0\n" in text
    assert f'BertForPreTraining.from_pretrained("{REPOSITORY}")' in text


def test_push_leaves_a_repository_as_public_as_it_is(hub, push, tmp_path):
    assert push(f"--push={REPOSITORY}", "--public")[0] == 0
    (tmp_path / "my model").rename(tmp_path / "first")
    assert push(f"--push={REPOSITORY}")[0] == 0
    assert hub.private == {REPOSITORY: False}


@pytest.mark.parametrize(
    ("token", "broken", "problem"),
    [
        ("", "", "no token of the hub is known"),
        ("hf_other", "", "401"),
        (TOKEN, "preupload", "500"),
    ],
)
def test_push_that_fails_leaves_the_folder(
    hub, push, tmp_path, monkeypatch, token, broken, problem
):
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", token)
    hub.broken = broken
    code, out, err = push(f"--push={REPOSITORY}")
    assert (code, out) == (2, "")
    error, hint = (line for line in err.splitlines() if line.startswith(("error:", "hint:")))
    assert f"is exported, but not pushed to {REPOSITORY}: " in error
    assert problem in error
    assert hint.endswith(f"`hf upload {REPOSITORY} '{tmp_path}/my model' --private`")
    assert runs.open_run(str(tmp_path / "my model")).config.model.layers == 2
