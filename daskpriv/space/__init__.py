"""What a distance means: summaries of columns, one frozen encoding, ranges and weights, encoded blocks."""
