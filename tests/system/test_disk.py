"""Files are replaced in one move, and a full disk is told by the place that is full."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bert_jax.system import disk


def make_device(path: Path, minor: int) -> Path:
    """Make a node of a memory device (3 is null, 7 is full)."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("ab").close()
    except PermissionError:
        pytest.skip("device nodes need root")
    return path


@pytest.mark.fault(4)
def test_write_output_writes_into_a_device(tmp_path):
    """As root, a rename would turn /dev/null into a file for the whole machine."""
    null = make_device(tmp_path / "null", 3)
    full = make_device(tmp_path / "full", 7)
    disk.write_output(null, "text")
    with pytest.raises(disk.DiskFull, match=f"disk full: {full} needs more than "):
        disk.write_output(full, "text")
    assert stat.S_ISCHR(null.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [full, null]


def test_write_output_follows_a_link_to_its_target(tmp_path):
    file, link, early = (tmp_path / name for name in ("file", "link", "early"))
    file.write_text("earlier")
    link.symlink_to(file)
    early.symlink_to("later")
    for path in (link, early):
        disk.write_output(path, "new")
        assert path.is_symlink()
    assert file.read_text() == (tmp_path / "later").read_text() == "new"


def test_write_output_replaces_files_in_shared_memory():
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "file")
        for text in ("first", "second"):
            disk.write_output(file, text)
        assert file.read_text() == "second"


def test_write_output_to_stdout_comes_in_order(tmp_path):
    log = tmp_path / "log"
    log.write_text("earlier\n")
    source = (
        "from pathlib import Path\nfrom bert_jax.system import disk\n"
        "print('a line')\ndisk.write_output(Path('/dev/stdout'), 'a page')"
    )
    with log.open("ab") as stream:
        subprocess.run([sys.executable, "-c", source], stdout=stream, check=True)
    assert log.read_text() == "earlier\na line\na page"


@pytest.mark.timeout(20)
def test_write_output_reaches_the_reader_of_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    disk.check_output(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        disk.write_output(pipe, "text")
        assert reader.communicate() == (b"text", None)


def test_check_output_leaves_nothing_behind(tmp_path):
    disk.check_output(tmp_path / "new" / "file")
    assert list((tmp_path / "new").iterdir()) == []


def test_write_that_fails_keeps_the_old_file(tmp_path):
    disk.write(tmp_path / "file", "old")
    with pytest.raises(TypeError), disk.replace_file(tmp_path / "file") as draft:
        draft.write("no bytes")
    assert (tmp_path / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.fault(4)
def test_full_standard_output_is_named():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "bert_jax.cli", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4
    error, hint = done.stderr.splitlines()
    assert error == "error: disk full: standard output takes no more"
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("error", [OSError(28, "No space"), OSError(122, "quota")])
def test_full_disk_is_found_among_causes(error, tmp_path):
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert disk.is_full(outer)
    assert not disk.is_full(OSError(5, "input/output"))
    with pytest.raises(disk.DiskFull, match="what needs 9"):
        raise disk.make_full_error(tmp_path / "gone" / "file", 9 * 10**18, "what")
