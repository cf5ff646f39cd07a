"""TensorFlow 1 checkpoints of google's code, read by TensorFlow, under Hugging Face's names."""

import os
import re
from pathlib import Path

import numpy as np

from bert_jax.errors import CheckpointError, first_line
from bert_jax.system import extras

PREFIX = "give PREFIX of PREFIX.index and PREFIX.data-00000-of-00001, as in FOLDER/bert_model.ckpt"
DAMAGED = "it is damaged, or its files are of different checkpoints: fetch all of them again"


def is_checkpoint(path: Path) -> bool:
    """Tell whether a path is the prefix, index or folder of a TensorFlow checkpoint."""
    if path.is_dir():
        return any(path.glob("*.index")) and not any(path.glob("*.safetensors*"))
    return path.suffix == ".index" or Path(f"{path}.index").is_file()


class TensorFlowCheckpoint:
    """The tensors of a checkpoint, with Hugging Face's names: see `tensor_files.Tensors`.

    Variables of the optimizer are left out. A dense kernel [in, out] is transposed to [out, in].
    """

    def __init__(self, path: Path):
        self._prefix = find_prefix(path)
        self._variables: dict[str, str] = {}  # Hugging Face's name -> the variable
        self.shapes: dict[str, tuple[int, ...]] = {}
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # what it says on import helps nobody
        self._tensorflow = extras.need_extra("tensorflow", "tf1", "a TensorFlow 1 checkpoint")
        try:
            self._reader = self._tensorflow.train.load_checkpoint(self._prefix)
        except self._tensorflow.errors.OpError as error:
            raise self._refuse(error) from error
        for variable, shape in self._reader.get_variable_to_shape_map().items():
            if name := rename_variable(variable):
                self._variables[name] = variable
                self.shapes[name] = tuple(reversed(shape) if is_kernel(variable) else shape)

    def read(self, name: str) -> np.ndarray:
        """Read one tensor; TensorFlow checks its checksum."""
        variable = self._variables[name]
        try:
            value = self._reader.get_tensor(variable)
        except (self._tensorflow.errors.OpError, IndexError) as error:
            raise self._refuse(error) from error
        return value.T if is_kernel(variable) else value

    def _refuse(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self._prefix} cannot be read: {first_line(error)}", DAMAGED)


def find_prefix(path: Path) -> str:
    """Return the prefix of the checkpoint at a path, which is a folder, prefix or index file."""
    found = sorted(path.glob("*.index")) if path.is_dir() else [path]
    if len(found) != 1:
        names = ", ".join(file.name for file in found[:5])
        raise CheckpointError(f"{path} holds {len(found)} *.index files: {names}", PREFIX)
    return str(found[0]).removesuffix(".index")


def is_kernel(variable: str) -> bool:
    """Tell whether a variable is the matrix of a dense layer."""
    return variable.endswith("kernel")


def rename_variable(name: str) -> str:
    """Return Hugging Face's name of a variable of google's code; "" if Hugging Face has none."""
    of_optimizer = re.search(r"(^|/)(adam_[mv]|Adam(_1)?)$", name)
    if of_optimizer or not re.match(r"(bert|cls)/|output_(weights|bias)$", name):
        return ""
    name = re.sub(r"^cls/squad/output_", "qa_outputs/output_", name)
    name = re.sub(r"^output_", "classifier/output_", name)
    name = re.sub(r"layer_(\d+)", r"layer/\1", name)
    name = re.sub(r"output_weights$|kernel$|gamma$", "weight", name)
    name = re.sub(r"output_bias$|beta$", "bias", name)
    name = re.sub(r"(_embeddings)$", r"\1/weight", name)
    return name.replace("/", ".")
