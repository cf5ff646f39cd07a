"""`export --push` against a server on this machine that speaks the hub's protocol."""

from __future__ import annotations

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

    def run(*words: str, to: str = REPOSITORY) -> tuple[int, str, str]:
        where = [f"--model={MODEL}", f"--output={tmp_path / 'out'}"]
        code = cli.execute(["export", *where, f"--push={to}", *words])
        return code, *capsys.readouterr()

    return run


def test_push_uploads_the_folder_byte_for_byte(hub, push, tmp_path):
    code, out, err = push("--license=apache-2.0")
    assert code == 0, err
    address = json.loads(out)["pushed"]
    assert address.endswith(REPOSITORY)
    folder = tmp_path / "out"
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert hub.models == {REPOSITORY: files}
    assert hub.private == {REPOSITORY: True}
    text = (folder / "README.md").read_text()
    assert "\nlicense: apache-2.0\n" in text
    assert f'BertForPreTraining.from_pretrained("{REPOSITORY}")' in text


def test_push_leaves_a_repository_as_public_as_it_is(hub, push, tmp_path):
    assert push("--public")[0] == 0
    assert hub.private == {REPOSITORY: False}
    (tmp_path / "out").rename(tmp_path / "first")
    assert push()[0] == 0
    assert hub.private == {REPOSITORY: False}


@pytest.mark.parametrize(
    ("token", "settings", "problem", "advice"),
    [
        ("", {}, "no token of the hub is known", "`hf auth login`, or HF_TOKEN"),
        ("hf_other", {}, "401", "mend what the hub names"),
        (TOKEN, {"to": "others/small"}, "403", "mend what the hub names"),
        (TOKEN, {"broken": "preupload"}, "500", "mend what the hub names"),
        (TOKEN, {"broken": "sha256"}, "Error while uploading", "mend what the hub names"),
        (TOKEN, {"words": ("--license=wrong",)}, '"license" must be one of', "mend"),
        (TOKEN, {"endpoint": "http://127.0.0.1:9"}, "onnection refused", "mend"),
    ],
)
def test_push_that_fails_is_one_line_and_leaves_folder(
    hub, push, tmp_path, monkeypatch, token, settings, problem, advice
):
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", token)
    hub.broken, to = settings.get("broken", ""), settings.get("to", REPOSITORY)
    if endpoint := settings.get("endpoint"):
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    code, out, err = push(*settings.get("words", ()), to=to)
    assert (code, out) == (2, "")
    error, hint = (line for line in err.splitlines() if line.startswith(("error:", "hint:")))
    assert f"error: {tmp_path / 'out'} is exported, but not pushed to {to}: " in error
    assert problem in error
    assert advice in hint
    assert hint.endswith(f"`hf upload {to} {tmp_path / 'out'} --private`")
    assert runs.open_run(str(tmp_path / "out")).config.model.layers == 2


def test_push_hints_at_a_command_for_any_folder(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "")
    where = [f"--model={MODEL}", f"--output={tmp_path / 'my model'}"]
    assert cli.execute(["export", *where, f"--push={REPOSITORY}"]) == 2
    assert f"`hf upload {REPOSITORY} '{tmp_path}/my model' --private`" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["small", "a/b/c", "so meone/small", "some--one/small", "a/b.git"])
def test_push_refuses_a_bad_name_before_it_exports(hub, push, tmp_path, name):
    code, _, err = push(to=name)
    assert code == 2
    assert err.startswith(f"error: --push={name}")
    assert "ORG/NAME" in err.splitlines()[1]
    assert not (tmp_path / "out").exists()
    assert hub.requests == []


def test_export_refuses_flags_without_their_push(tmp_path, capsys):
    where = ["export", f"--model={MODEL}", f"--output={tmp_path / 'out'}"]
    assert cli.execute([*where, "--public"]) == 2
    assert "--public is for --push" in capsys.readouterr().err
    assert cli.execute([*where, "--license=my own\nlicense"]) == 2
    assert "no name of a licence" in capsys.readouterr().err
