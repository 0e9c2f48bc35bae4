"""The command line: `daskpriv`, and `dask priv` through Dask's own."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any

import click

from daskpriv.cli.bench import bench_command
from daskpriv.cli.demo import demo_command
from daskpriv.cli.doctor import doctor_command
from daskpriv.cli.evaluate import evaluate_command
from daskpriv.cli.k8s import k8s_command
from daskpriv.cli.plan import plan_command
from daskpriv.cli.report import report_command
from daskpriv.cli.runs import runs_command
from daskpriv.cli.schema import schema_command
from daskpriv.cli.split import split_command
from daskpriv.errors import DaskprivError, InputError
from daskpriv.version import __version__

DONE, BROKEN, BAD_INPUT, FAILED = 0, 1, 2, 3


class _OneSentence(click.Group):
    """Every failure is one sentence on stderr and an exit code; never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except DaskprivError as error:
            _say(str(error))
            ctx.exit(BAD_INPUT if isinstance(error, InputError) else FAILED)
        except KeyboardInterrupt:
            _say("interrupted; run the same command again to go on: what is finished is kept.")
            ctx.exit(FAILED)
        except Exception as error:
            if os.environ.get("DASKPRIV_DEBUG"):
                traceback.print_exc()
            _say(
                f"unexpected {type(error).__name__}; this is a bug in daskpriv: set DASKPRIV_DEBUG=1 to "
                "see where, and report it."
            )
            ctx.exit(FAILED)


def _say(sentence: str) -> None:
    """One printable line that ends in a full stop and holds no credential, whatever was typed."""
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(sentence.split()))
    text = re.sub(r"(://[^\s'\"?]*)\?[^\s'\"]*", r"\1", re.sub(r"://[^/@\s]*@", "://", text))
    if len(text) > 1000:
        text = f"{text[:500]} ... {text[-300:]}"
    click.echo(f"daskpriv: {text}{'' if text.endswith(('.', '?')) else '.'}", err=True)


@click.group(
    "priv", cls=_OneSentence, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="daskpriv")
def cli() -> None:
    """Tell how much a synthetic table gives away about the people in the table it was made from."""


for _command in (
    evaluate_command,
    demo_command,
    schema_command,
    report_command,
    bench_command,
    plan_command,
    runs_command,
    doctor_command,
    split_command,
    k8s_command,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the `daskpriv` command."""
    try:
        code = cli(prog_name="daskpriv", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        code = BAD_INPUT
    except click.ClickException as error:
        _say(error.format_message())
        code = BAD_INPUT
    except click.Abort:
        _say("interrupted.")
        code = FAILED
    sys.exit(code if isinstance(code, int) else DONE)
