"""An S3 server to try things with: moto, and a bucket `tables` with the example tables of daskpriv. No credentials."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

TABLES = Path(os.environ.get("TABLES", "/tables"))


def main() -> None:
    """Serve until the process is ended."""
    ThreadedMotoServer("0.0.0.0", 5000, verbose=False).start()  # noqa: S104  (in a container)
    client = boto3.client(
        "s3",
        endpoint_url="http://127.0.0.1:5000",
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",  # noqa: S106  (nobody checks it)
    )
    client.create_bucket(Bucket="tables")
    for path in sorted(TABLES.glob("*.parquet")):
        client.upload_file(str(path), "tables", f"adult/{path.name}")
    client.create_bucket(Bucket="ready")  # what health checks ask for: "tables" is there before the tables are
    print("bucket 'tables' is ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
