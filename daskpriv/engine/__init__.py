"""Who computes what, where: plans, executors, and the only module that talks to Dask."""
