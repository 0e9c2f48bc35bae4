#!/opt/daskpriv/bin/python
"""Before its pod ends a worker takes no new work and hands over what it holds (preStop hook)."""

import os

from distributed import Client

with Client(timeout=10) as client:  # address and certificates come from Dask's configuration
    client.retire_workers(names=[os.environ["DASK_WORKER_NAME"]], close_workers=False, remove=False)
