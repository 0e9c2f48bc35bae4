"""Compiled loops: arrays in, arrays out. numpy and numba only, no Dask, no files, no columns with names."""
