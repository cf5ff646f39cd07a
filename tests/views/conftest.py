"""What the tests of pages share."""

import pytest

from bert_jax.interop import runs
from tests.predictors.drawing import open_golden


@pytest.fixture(scope="module")
def golden() -> runs.TrainedModel:
    return open_golden("pretraining")
