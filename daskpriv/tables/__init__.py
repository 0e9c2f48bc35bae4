"""Where rows come from: files and frames as tables of numbered parts, and what their columns are."""
