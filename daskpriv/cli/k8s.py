"""`daskpriv k8s render`: Kubernetes manifests of an evaluation, from a handful of values."""

from __future__ import annotations

import click
import yaml

from daskpriv.cli.manifests import manifests
from daskpriv.cli.wanted import Wanted
from daskpriv.version import __version__

_EXAMPLE = f"""image: registry.example.org/daskpriv:{__version__}
train: s3://bucket/train/
holdout: s3://bucket/holdout/
synthetic: s3://bucket/synthetic/
output: s3://bucket/report/
"""


@click.group("k8s")
def k8s_command() -> None:
    """Run evaluations on Kubernetes."""


@k8s_command.command("render")
@click.option("--config", type=click.Path(), help="YAML with image, train, holdout, synthetic and output.")
@click.option("--example", is_flag=True, help="Print such a file.")
def render(config: str | None, example: bool) -> None:
    """Print the manifests of an evaluation: daskpriv k8s render --config eval.yaml | kubectl apply -f -."""
    if example or config is None:
        if not example:
            raise click.UsageError("give --config FILE, or --example to see one.")
        click.echo(_EXAMPLE, nl=False)
        return
    click.echo(yaml.safe_dump_all(manifests(Wanted.load(config)), sort_keys=False), nl=False)
