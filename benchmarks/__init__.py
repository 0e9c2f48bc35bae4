"""Timings. They live here and nowhere else."""
