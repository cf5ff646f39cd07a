"""`export --push`, with a stand-in for the client of the hub, whose calls must fit its own."""

import json
from unittest import mock

import huggingface_hub
import pytest

from bert_jax import cli
from bert_jax.interop import runs
from tests import variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"
REPOSITORY = "someone/small"


@pytest.fixture
def api(monkeypatch) -> mock.Mock:
    made = mock.create_autospec(huggingface_hub.HfApi, instance=True)
    made.create_repo.return_value = f"https://huggingface.co/{REPOSITORY}"
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    return made


def push(folder, *words: str) -> int:
    where = [f"--model={MODEL}", f"--output={folder}", f"--push={REPOSITORY}"]
    return cli.execute(["export", *where, *words])


@pytest.mark.parametrize(("words", "private"), [([], True), (["--public"], False)])
def test_push_uploads_the_folder(api, tmp_path, capsys, words, private):
    """A new repository is private, unless --public is given."""
    folder = tmp_path / "my model"
    assert push(folder, "--license=apache-2.0", *words) == 0
    assert json.loads(capsys.readouterr().out)["pushed"].endswith(REPOSITORY)
    api.create_repo.assert_called_once_with(REPOSITORY, private=private, exist_ok=True)
    (upload,) = api.upload_folder.mock_calls
    assert (upload.kwargs["repo_id"], upload.kwargs["folder_path"]) == (REPOSITORY, folder)
    text = (folder / "README.md").read_text()
    assert "\nlicense: apache-2.0\n" in text
    assert f'BertForPreTraining.from_pretrained("{REPOSITORY}")' in text


def test_push_that_fails_leaves_the_folder(api, tmp_path, capsys):
    """The transcript has an export without a token."""
    api.upload_folder.side_effect = OSError("500\nServer Error")
    assert push(tmp_path / "my model") == 2
    out, err = capsys.readouterr()
    error, hint = (line for line in err.splitlines() if line.startswith(("error:", "hint:")))
    assert out == ""
    assert f"is exported, but not pushed to {REPOSITORY}: 500 Server Error" in error
    assert hint.endswith(f"`hf upload {REPOSITORY} '{tmp_path}/my model' --private`")
    assert runs.open_run(str(tmp_path / "my model")).config.model.layers == 2
