"""Prepared data sets of TFDS are read in ranges, and what is missing is explained."""

import pytest

from bert_jax.data import prepare, tfds
from bert_jax.errors import DataError, MissingError
from tests.data import small

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A data set that the library itself prepared from local text."""
    import tensorflow_datasets as library

    folder = tmp_path_factory.mktemp("built")
    given = small.make_documents(60)

    class LocalText(library.core.GeneratorBasedBuilder):
        VERSION = library.core.Version("1.0.0")

        def _info(self):
            features = library.features.FeaturesDict({"text": library.features.Text()})
            return self.dataset_info_from_configs(features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield from ((i, {"text": "\n".join(lines)}) for i, lines in enumerate(given))

    LocalText(data_dir=str(folder / "tfds"), file_format="array_record").download_and_prepare()
    return folder, given


def test_a_data_set_is_read_in_ranges(built, tmp_path, monkeypatch):
    folder, given = built
    place = {"source": "tfds", "path": "local_text", "tfds_dir": str(folder / "tfds")}
    monkeypatch.setattr(tfds, "RANGE", 1000)
    settings = small.configure(tmp_path, split="train[:50%]", **place).corpus
    parts = tfds.list_items(settings, tmp_path)[0]
    assert len(parts) > 1, "a part of a split has ranges too"
    assert parts[-1].spec[1] == 30
    monkeypatch.setattr(tfds, "RANGE", 1)
    monkeypatch.setattr(prepare, "TASK", 1)
    settings = small.configure(tmp_path, **place).corpus
    assert len(tfds.list_items(settings, tmp_path)[0]) == 60
    found = small.run(tmp_path, **place)
    both = small.read_split(found, "train") + small.read_split(found, "validation")
    assert sorted(both) == sorted([line.lower() for line in lines] for lines in given)
    again = small.run(tmp_path, workers=2, cache=str(tmp_path / "other"), **place)
    assert small.digest_files(again.folder) == small.digest_files(found.folder)


@pytest.mark.parametrize(
    ("options", "says", "kind"),
    [
        ({"path": "lm1b"}, "lm1b, split 'train' cannot be read from", MissingError),
        ({"text_field": "body"}, "no 'body'", DataError),
        ({"split": "none"}, "split 'none' cannot be read", DataError),
    ],
)
def test_tfds_names_what_cannot_be_read(built, tmp_path, options, says, kind):
    place = {"source": "tfds", "path": "local_text", "tfds_dir": str(built[0] / "tfds")}
    with pytest.raises(DataError, match=says) as caught:
        small.run(tmp_path, **place | options)
    assert type(caught.value) is kind  # absent data of a suite is passed over
    assert "\n" not in str(caught.value) + caught.value.hint


def test_tfds_hints_at_what_the_caller_can_change(tmp_path):
    with pytest.raises(MissingError) as caught:
        tfds.examples_of("lm1b", str(tmp_path), "train")
    assert f"data_dir={str(tmp_path)!r}" in caught.value.hint
    assert "corpus" not in caught.value.hint
