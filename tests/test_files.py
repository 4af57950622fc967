import threading

import pytest

from redraft import _files as files
from redraft._files import locked, replace_file
from redraft.errors import StoreError


def test_waiting_for_a_locked_folder_times_out_with_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOCK_WAIT", 0.02)
    refused = pytest.raises(StoreError, match="a: another process has had it locked")
    with locked(tmp_path / "a"), locked(tmp_path / "b"), refused, locked(tmp_path / "a"):
        pass
    with locked(tmp_path / "a"):
        assert list((tmp_path / "a").iterdir()) == []


def test_threads_take_turns(tmp_path):
    seen, inside = [], []

    def work():
        for _ in range(20):
            with locked(tmp_path):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 80


def test_a_file_is_created_or_replaced(tmp_path):
    path = tmp_path / "one.md"
    replace_file(path, b"a")
    path.chmod(0o640)
    replace_file(path, b"b")
    assert path.read_bytes() == b"b"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
