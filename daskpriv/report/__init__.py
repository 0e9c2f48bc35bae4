"""The report: a value first, JSON from it, HTML from the JSON alone."""
