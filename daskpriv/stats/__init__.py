"""Small pure functions of counts and arrays: exact sums, exact quantiles, permutation laws, intervals."""
