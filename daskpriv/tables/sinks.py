"""Small files that daskpriv writes, such as reports and checkpoints: to a path or any fsspec URL, never half of one."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from daskpriv.tables.retry import retrying
from daskpriv.tables.stores import filesystem, protocols

# A PUT to these is seen whole or not at all; elsewhere a file is written beside its place and then moved.
_ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "memory", "oss", "cos", "r2"})


def put(target: str, data: bytes, private: bool = False) -> None:
    """Write a file so that nobody ever sees half of it; transient errors are tried again.

    A `private` file on a local disk, and the directories made for it, are for this user alone.

    Raises
    ------
    OSError
        Or the provider's own error, as it was raised.
    """
    local = _local(target)
    retrying((lambda: _replace(local, data, private)) if local is not None else (lambda: _upload(target, data)))


def get(target: str) -> bytes:
    """The whole file.

    Raises
    ------
    FileNotFoundError
        When it is missing; other errors as they were raised.
    """
    local = _local(target)
    return retrying(local.read_bytes if local is not None else (lambda: _download(target)))


def listing(folder: str) -> dict[str, int]:
    """Names of all files below the folder, relative to it with `/`, and their sizes; empty when it is missing."""
    local = _local(folder)
    return retrying((lambda: _walk(local)) if local is not None else (lambda: _find(folder)))


def remove(target: str) -> None:
    """Delete a file; one that is missing already is fine."""
    local = _local(target)
    retrying((lambda: local.unlink(missing_ok=True)) if local is not None else (lambda: _delete(target)))


def join(folder: str, *names: str) -> str:
    """The path or URL of something below the folder."""
    head = folder.rstrip("/") if folder.strip("/") else folder[:1]
    return "/".join([*([head] if head and head != "/" else []), *names]) if head != "/" else "/" + "/".join(names)


def _local(target: str) -> Path | None:
    """The path of a target on this machine's file systems; None for a URL of another kind."""
    if "://" not in target:
        return Path(target)
    if target.startswith(("file://", "local://")):
        return Path(filesystem(target)[1])
    return None


def _replace(path: Path, data: bytes, private: bool) -> None:
    _make_folder(path.parent, 0o700 if private else 0o777)
    part = path.with_name(f".{path.name[:120]}.{_unique()}.part")
    try:
        with open(part, "xb", opener=_for_me if private else None) as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _make_folder(path: Path, mode: int) -> None:
    """Make a directory and those above it that are missing, all with this mode (less what the umask takes)."""
    if not path.is_dir():
        _make_folder(path.parent, mode)
        path.mkdir(mode, exist_ok=True)


def _for_me(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unique() -> str:
    return f"{os.getpid()}-{threading.get_ident():x}-{time.time_ns():x}"


def _upload(url: str, data: bytes) -> None:
    fs, path = filesystem(url)
    if _ATOMIC.intersection(protocols(fs)):
        fs.pipe_file(path, data)
    else:
        folder, _, name = path.rpartition("/")
        part = f"{folder}/.{name[:120]}.{_unique()}.part"
        fs.makedirs(folder, exist_ok=True)
        fs.pipe_file(part, data)
        fs.mv(part, path)
    fs.invalidate_cache()


def _download(url: str) -> bytes:
    fs, path = filesystem(url)
    data: bytes = fs.cat_file(path)
    return data


def _delete(url: str) -> None:
    fs, path = filesystem(url)
    with suppress(FileNotFoundError):
        fs.rm_file(path)
    fs.invalidate_cache()


def _find(url: str) -> dict[str, int]:
    fs, path = filesystem(url)
    # Another process may have written since: a listing that fsspec remembers would hide it.
    fs.invalidate_cache()
    root = path.rstrip("/") + "/"
    try:
        found = fs.find(path, detail=True)
    except FileNotFoundError:
        return {}
    names = {p: int(info.get("size") or 0) for p, info in found.items() if info.get("type") != "directory"}
    return {p[len(root) :]: size for p, size in sorted(names.items()) if p.startswith(root) and _is_whole(p)}


def _walk(root: Path) -> dict[str, int]:
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                continue  # moved away or deleted by another process since the folder was read
            if _is_whole(name):
                found[path.relative_to(root).as_posix()] = size
    return dict(sorted(found.items()))


def _is_whole(path: str) -> bool:
    """False for the leftovers of a writer that was killed."""
    name = path.rpartition("/")[2]
    return not (name.startswith(".") and name.endswith(".part"))
