"""What cert-manager is asked for: valid, complete, and the Secret that pods wait for."""

from __future__ import annotations

import ast
import functools
import sys
import typing
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic
import pytest
import yaml

from tests.deploy.manifests import K8S, Object, built, chosen, pods

ASKED: list[Object] = list(yaml.safe_load_all((K8S / "components" / "tls" / "cert-manager.yaml").read_text()))


@functools.cache
def schema() -> dict[str, Any]:
    """cert-manager's own types, from a package made of its CRDs; only their fields, and no field that is not theirs."""
    try:
        held = metadata.files("cloudcoil-models-cert-manager") or ()
    except metadata.PackageNotFoundError:
        pytest.skip("cloudcoil-models-cert-manager is not here: make test installs it from tests/deploy/tools.txt")
    source = next(f for f in held if f.as_posix().endswith("cert_manager/v1.py")).locate()
    tree = ast.parse(Path(str(source)).read_text("utf-8"))
    classes = [c for c in tree.body if isinstance(c, ast.ClassDef) and ast.unparse(c.bases[0]) == "BaseModel"]
    for each in classes:
        each.body = [line for line in each.body if isinstance(line, ast.AnnAssign)] or [ast.Pass()]
    made = ModuleType("cert_manager_types")
    strict = pydantic.create_model("Strict", __config__=pydantic.ConfigDict(extra="forbid", defer_build=True))
    vars(made).update(vars(typing), __name__=made.__name__, datetime=datetime, Field=pydantic.Field, BaseModel=strict)
    sys.modules[made.__name__] = made  # where pydantic looks for names
    code = ast.Module([*ast.parse("from __future__ import annotations").body, *classes], [])
    exec(compile(ast.fix_missing_locations(code), str(source), "exec"), vars(made))
    return vars(made)


def wrong(thing: Object) -> list[str]:
    """What is wrong with an object."""
    try:
        schema()[f"{thing['kind']}Spec"].model_validate(thing["spec"])
    except pydantic.ValidationError as error:
        return [str(e["loc"]) for e in error.errors()]
    return []


@pytest.mark.parametrize("thing", ASKED, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_valid_without_unknown_fields(thing: Object) -> None:
    assert thing["apiVersion"] == "cert-manager.io/v1"
    assert wrong(thing) == []


@pytest.mark.parametrize(
    "change", [{"secretname": "a"}, {"usages": ["server"]}, {"issuerRef": {"kind": "Issuer"}}, {"isCA": "perhaps"}]
)
def test_validation_would_notice(change: Object) -> None:
    thing = chosen(tuple(ASKED), "Certificate", "daskpriv")
    thing["spec"] |= change
    assert len(wrong(thing)) == 1


def test_what_is_named_exists() -> None:
    issuers = {o["metadata"]["name"]: o["spec"] for o in ASKED if o["kind"] == "Issuer"}
    certificates = [o["spec"] for o in ASKED if o["kind"] == "Certificate"]
    for spec in certificates:
        assert spec["issuerRef"]["kind"] == "Issuer"
        assert spec["issuerRef"]["name"] in issuers
    authorities = {spec["secretName"] for spec in certificates if spec.get("isCA")}
    assert {spec["ca"]["secretName"] for spec in issuers.values() if "ca" in spec} == authorities


def test_pods_get_the_certificate_and_not_the_authority() -> None:
    leaf = chosen(tuple(ASKED), "Certificate", "daskpriv")["spec"]
    assert set(leaf["usages"]) == {"server auth", "client auth"}, "every process of Dask is both"
    for variant in ("operator", "plain"):
        for _, _, spec in pods(built(K8S / "render" / variant)):
            mounted = [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v]
            assert mounted == [leaf["secretName"]]
    asked = (K8S / "components" / "tls" / "tls.env").read_text()
    assert {"ca.crt", "tls.crt", "tls.key"} == {
        line.rsplit("/", 1)[1] for line in asked.splitlines() if "/tls/" in line
    }


def test_the_authority_outlives_its_certificates() -> None:
    """Renewed with them, it would part pods that started before from those that started after."""
    authority = chosen(tuple(ASKED), "Certificate", "daskpriv-authority")["spec"]
    assert int(authority["duration"].removesuffix("h")) >= 24 * 365
