"""Clusters described in a YAML file: any class of any package with its arguments.

class: dask_kubernetes.operator.KubeCluster
arguments: {name: daskpriv, n_workers: 10, image: "registry/daskpriv:1"}
adapt: {minimum: 0, maximum: 50}
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from daskpriv.errors import InputError

_KEYS = ("class", "arguments", "scale", "adapt")


@dataclass(frozen=True)
class Spec:
    """A cluster to be started.

    Attributes
    ----------
    made_by : str
        Dotted path of the class.
    arguments : mapping
    scale : int, optional
        Workers to ask for once it is up.
    adapt : mapping, optional
        Arguments of `cluster.adapt`, such as minimum and maximum.
    source : str
        What the file is called in messages.
    """

    made_by: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    scale: int | None = None
    adapt: Mapping[str, Any] | None = None
    source: str = "cluster"

    @classmethod
    def load(cls, path: str) -> Spec:
        """Read a YAML file; nothing in it is executed but the class that it names."""
        where = f"cluster {path!r}"
        try:
            data = yaml.safe_load(Path(path).read_text("utf-8"))
        except OSError as error:
            raise InputError(f"{where}: cannot be read ({error.strerror}); check the path.") from None
        except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError):
            raise InputError(f"{where}: this is not valid YAML; see docs/clusters.md for an example.") from None
        if not isinstance(data, Mapping) or not isinstance(data.get("class"), str):
            raise InputError(f"{where}: give 'class', such as distributed.LocalCluster, and 'arguments'.")
        unknown = sorted(map(str, set(data) - set(_KEYS)))
        if unknown:
            raise InputError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}.")
        arguments, adapt, scale = data.get("arguments") or {}, data.get("adapt"), data.get("scale")
        named = all(isinstance(m, Mapping) and all(isinstance(k, str) for k in m) for m in (arguments, adapt or {}))
        if not named:
            raise InputError(f"{where}: 'arguments' and 'adapt' must map names to values.")
        if scale is not None and (not isinstance(scale, int) or isinstance(scale, bool) or scale < 1):
            raise InputError(f"{where}: 'scale' must be a whole number of at least 1.")
        return cls(data["class"], arguments, scale, adapt, where)

    def start(self, **more: Any) -> Any:
        """Start it; the caller closes it."""
        module, _, name = self.made_by.rpartition(".")
        try:
            made_by = getattr(importlib.import_module(module), name)
        except Exception:
            raise InputError(
                f"{self.source}: there is no class {self.made_by!r}; install its package or check the spelling."
            ) from None
        cluster: Any = None
        try:
            cluster = made_by(**{**more, **self.arguments})
            if not hasattr(cluster, "scheduler_address"):
                raise InputError(f"{self.source}: {self.made_by!r} makes no Dask cluster; check the spelling.")
            if self.scale is not None:
                cluster.scale(self.scale)
            if self.adapt is not None:
                cluster.adapt(**self.adapt)
        except BaseException as error:
            # Machines that nobody uses cost money.
            if cluster is not None:
                with suppress(Exception):
                    cluster.close()
            if isinstance(error, InputError) or not isinstance(error, Exception):
                raise
            raise InputError(
                f"{self.source}: {self.made_by} does not start ({type(error).__name__}); check its arguments."
            ) from None
        return cluster
