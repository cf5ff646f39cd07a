"""Every file, preset and study has the frozen config, and dry runs print it."""

import pytest

from bert_jax.errors import ConfigError
from tests.marks import mark_slow
from tests.net import config_rows, golden

pytestmark = pytest.mark.usefixtures("inputs")
FROZEN = {part: golden.read(part) for part in ("configs", "studies", "cells")}
STUDIES = [
    name if name.endswith(":docstrings") else pytest.param(name, marks=pytest.mark.slow)
    for name in config_rows.STUDIES
]


def differences(part: str, name: str, found: config_rows.Knobs) -> list[str]:
    return golden.find_differences(FROZEN[part][name], found, 1e-12)


def test_every_file_in_configs_is_frozen():
    files = {name.partition(":")[0] for name in config_rows.FILES}
    folder = config_rows.ROOT / "configs"
    assert files >= {str(file.relative_to(folder)) for file in folder.glob("*.py")}


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("finetune.py", (*config_rows.TASKS, *config_rows.RECIPES)),
        ("preset.py", config_rows.PRESETS),
        ("ablations.py", config_rows.ABLATIONS),
    ],
)
def test_every_name_in_a_config_is_frozen(file, names):
    with pytest.raises(ConfigError) as error:
        config_rows.load_file(f"checkout/configs/{file}:nothing")
    assert sorted(error.value.hint.rpartition("one of: ")[2].split(", ")) == sorted(names)


@pytest.mark.parametrize("name", config_rows.CONFIGS)
def test_config_has_the_frozen_knobs(name):
    assert differences("configs", name, config_rows.measure(name)) == []


@pytest.mark.parametrize("name", mark_slow(config_rows.FILES, config_rows.DRY))
def test_dry_run_prints_the_frozen_knobs(name):
    assert differences("configs", name, config_rows.measure_dry(name)) == []


@pytest.mark.parametrize("name", STUDIES)
def test_study_has_the_frozen_cells(name):
    assert differences("studies", name, config_rows.measure_study(name)) == []
    if name in config_rows.TABLES:
        assert differences("cells", name, config_rows.measure_cells(name)) == []
