"""What tests of manifests have in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.deploy.manifests import Object, overlay

Built = Callable[[str, str], tuple[Object, ...]]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Every overlay over every base, built once."""
    scratch = tmp_path_factory.mktemp("kustomize")
    return lambda name, variant: overlay(name, variant, scratch)
