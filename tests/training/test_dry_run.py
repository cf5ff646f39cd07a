"""What a dry run says of a run whose length it cannot know."""

import json

from bert_jax.training.dry_run import describe_config
from tests import saved, texts


def test_dry_run_counts_no_steps_of_unread_text(base, tmp_path):
    """Neither does it compare schedules with those of a trunk, which are shares of all steps."""
    views = {"masking__prediction_rate": 0.3, "pairs": "none"}
    changes = {"epochs": 2.5, "optim__warmup_fraction": 0.1, **views}
    trunk = saved.run(tmp_path, texts.configure(base, **changes), {5: None})
    branch = texts.configure(base, **changes, branch_from=f"{trunk}@5")
    text, brace, resolved = describe_config(branch).partition("{\n")
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert rows["steps"] == "those of 2.5 epochs, counted when the text is prepared"
    assert rows["views"] == "2 of each example: an update reads 8 rows"
    assert rows["branch"] == f"of {trunk} at step 5"
    config = json.loads(brace + resolved)
    assert "steps" not in config
    assert "warmup_steps" not in config["optim"]
