"""Programs that run in the environment of one peer; they import nothing of daskpriv unless it is the peer."""
