"""What an evaluation on Kubernetes is made of: a handful of values, checked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from urllib.parse import urlsplit

from daskpriv.errors import InputError
from daskpriv.tables.files import refuse_secrets
from daskpriv.tables.schema import load_yaml

TABLES = ("train", "holdout", "synthetic", "output")
_URL = re.compile(r"(?!file:|local:|memory:)[a-z][a-z0-9+.:-]*://[^/\s].*")
_DIGEST = r"@sha256:[0-9a-f]{64}"
_PINNED = re.compile(rf"[^\s:@]+(:\d+/[^\s:@]+)?({_DIGEST}|:(?!latest\b)[\w][\w.-]{{0,127}}({_DIGEST})?)")
_QUANTITY = re.compile(r"[1-9]\d*(Mi|Gi|Ti)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = {"workers": 100_000, "cpus": 1_000}
_SECRET = re.compile(r"SECRET|PASSW|TOKEN(?!_FILE$)|CONNECTION_STRING|_KEY(_ID)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """What an evaluation on Kubernetes is made of.

    Attributes
    ----------
    image : str
        With a tag that is not `latest`, or a digest.
    train, synthetic, output, holdout : str
        URLs that pods can reach.
    workers, cpus : int
        How many, and threads of each.
    memory : str
        Of each worker, such as 4Gi.
    operator : bool
        One DaskJob for the Dask operator; else a Deployment of workers and a Job.
    tls : bool
        Encrypted by the certificate in the Secret `daskpriv-tls`.
    arguments : sequence of str
        More options of `daskpriv evaluate`.
    environment, account : mapping
        More environment of all pods; annotations of their ServiceAccount, which bind it to an identity of the cloud.
    """

    image: str
    train: str
    synthetic: str
    output: str
    holdout: str = ""
    workers: int = 4
    cpus: int = 1
    memory: str = "4Gi"
    operator: bool = True
    tls: bool = True
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    account: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in TABLES:
            url = getattr(self, name)
            fits = isinstance(url, str) and (_URL.fullmatch(url) or (name == "holdout" and not url))
            _demand(bool(fits), name, "a URL that pods can reach, such as s3://bucket/folder/")
            _demand(_writable(url), name, "a URL without control characters")
            refuse_secrets(url, name)
        _demand(not self.output.startswith("http"), "output", "a bucket; a web server takes no reports")
        _demand(
            isinstance(self.image, str) and bool(_PINNED.fullmatch(self.image)),
            "image",
            "NAME:TAG (not latest) or NAME@sha256:...",
        )
        for name in ("workers", "cpus"):
            count = getattr(self, name)
            _demand(type(count) is int and count >= 1, name, "a whole number of at least 1, without quotes")
            _demand(count <= _MOST[name], name, f"at most {_MOST[name]}")
        for name in ("operator", "tls"):
            _demand(isinstance(getattr(self, name), bool), name, "true or false, without quotes")
        _demand(
            isinstance(self.memory, str) and bool(_QUANTITY.fullmatch(self.memory)),
            "memory",
            "a number of Mi, Gi or Ti, such as 4Gi",
        )
        listed = isinstance(self.arguments, (list, tuple)) and all(isinstance(a, str) for a in self.arguments)
        _demand(listed, "arguments", "a list of texts")
        for name in ("environment", "account"):
            held = getattr(self, name)
            texts = isinstance(held, Mapping) and all(isinstance(t, str) for pair in held.items() for t in pair)
            _demand(texts, name, "names and texts (put numbers in quotes)")
        _demand(all(_NAME.fullmatch(k) for k in self.environment), "environment", "names of variables")
        written = [*self.arguments, *self.environment.values(), *(t for pair in self.account.items() for t in pair)]
        _demand(all(map(_writable, written)), "arguments, environment and account", "texts without control characters")
        endpoint_ports(self.environment)
        self._refuse_credentials()

    def _refuse_credentials(self) -> None:
        """Manifests are kept and shown."""
        if any(_SECRET.search(key) for key in self.environment):
            raise InputError(
                "environment: credentials do not belong into a ConfigMap; bind the ServiceAccount to an identity of "
                "the cloud (account), or put them into the Secret daskpriv-credentials."
            )
        for text in self.arguments:
            refuse_secrets(text.partition("=")[2] if text.startswith("--") else text, "arguments")
        for key, text in self.environment.items():
            refuse_secrets(text, f"environment: {key}")

    @classmethod
    def load(cls, path: str) -> Wanted:
        """Read a YAML file."""
        where = f"config {path!r}"
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError):
            raise InputError(f"{where}: cannot be read; check the path.") from None
        data = load_yaml(text, where, "write lines such as 'train: s3://bucket/train/'")
        known = [f.name for f in fields(cls)]
        if not isinstance(data, dict):
            raise InputError(f"{where}: write lines such as 'train: s3://bucket/train/'.")
        unknown = sorted(str(k) for k in data if k not in known)
        if unknown:
            raise InputError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}.")
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in needed if name not in data]
        if missing:
            raise InputError(f"{where}: {missing[0]!r} is missing; give {', '.join(needed)}.")
        return cls(**data)


def _demand(kept: bool, name: str, what: str) -> None:
    if not kept:
        raise InputError(f"{name}: give {what}.")


def _writable(text: str) -> bool:
    """False where Kubernetes, or UTF-8, has no way to write it."""
    return not any(unicodedata.category(c) in ("Cc", "Cs") for c in text if c not in "\n\t")


def endpoint_ports(environment: Mapping[str, str]) -> set[int]:
    """Ports of the object stores that variables name."""
    found = set()
    for key, text in environment.items():
        if key.startswith("AWS_ENDPOINT_URL") or ("ENDPOINT" in key and "://" in text):
            try:
                url = urlsplit(text)
                port = url.port or {"http": 80}.get(url.scheme, 443)
            except ValueError:
                url, port = urlsplit(""), 0
            _demand(bool(url.hostname), f"environment: {key}", "a URL such as https://host:9000")
            found.add(port)
    return found
