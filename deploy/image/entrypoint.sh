#!/bin/sh
# Kernels compiled with the image save a minute at the first start; where there is no room for them numba compiles anew.
cp -a /opt/daskpriv/numba/. "$NUMBA_CACHE_DIR/" 2>/dev/null || true
exec "$@"
