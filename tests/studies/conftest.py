"""A study that several files report on."""

import pytest

from bert_jax.studies.report.view import View
from tests.studies.views import build_view, define_claims


@pytest.fixture(scope="session")
def view(tmp_path_factory) -> View:
    """A study that states a true, a reversed and a null claim."""
    return build_view(tmp_path_factory.mktemp("w") / "w", define_claims(), examples=300)
