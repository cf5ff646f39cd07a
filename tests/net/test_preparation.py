"""`bert-jax prepare` writes the frozen ids, ends and vocabularies from every format."""

import pytest

from tests.net import golden, prepare_rows

FROZEN = golden.read("preparation")


@pytest.fixture(scope="module", autouse=True)
def texts(tmp_path_factory: pytest.TempPathFactory):
    with prepare_rows.inputs(tmp_path_factory.mktemp("preparation") / "inputs"):
        yield


@pytest.mark.parametrize("name", prepare_rows.ROWS)
def test_prepare_writes_the_frozen_digests(name):
    assert golden.find_differences(FROZEN[name], prepare_rows.measure(name), 0.0) == []


@pytest.mark.parametrize("vocabulary", prepare_rows.VOCABULARIES)
def test_formats_give_the_same_ids(vocabulary):
    """The same documents in .txt, .jsonl.gz and .parquet are the same corpus."""
    text, *others = (FROZEN[f"{vocabulary}_{form}"] for form in prepare_rows.FORMATS)
    assert [golden.find_differences(text, other, 0.0) for other in others] == [[], []]
