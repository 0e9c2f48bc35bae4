"""One small class per peer: what it is given, what it builds, how it is asked. Imports and reading are not timed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]


class Peer:
    """A search over the tables of one folder (see `benchmarks.peers.prepare` for its files)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns = int(np.load(folder / "columns.npy"))
        self.start()

    def start(self) -> None:
        """Import and read; not timed."""

    def take(self, rows: int) -> None:
        """Make the first rows of the query the next question; not timed."""

    def build(self) -> None:
        """Index the reference; timed as `build`."""

    def nearest(self) -> Floats:
        """Distances of the rows taken to their nearest (two) reference rows; timed."""
        raise NotImplementedError


class Encoded(Peer):
    """Searches in L1: a number divided by its range, two categories at +0.5 and -0.5 of one axis."""

    kind: ClassVar[Any] = np.float32

    def start(self) -> None:
        """Read the encoded tables."""
        self.query, self.reference = (
            np.ascontiguousarray(np.load(self.folder / f"{name}.npy"), dtype=self.kind)
            for name in ("query", "reference")
        )

    def take(self, rows: int) -> None:
        """Cut the query."""
        self.asked = self.query[:rows]


class PynearTree(Encoded):
    """pynear's vantage point tree."""

    def start(self) -> None:
        """Import it too."""
        super().start()
        self.index = import_module("pynear").VPTreeL1Index()

    def build(self) -> None:
        """Build the tree."""
        self.index.set(self.reference)

    def nearest(self) -> Floats:
        """It answers farthest first."""
        _, distances = self.index.searchKNN(self.asked, 2)
        return np.sort(np.asarray(distances, dtype=np.float64), axis=1) / self.columns


class FaissFlat(Encoded):
    """FAISS, exhaustive."""

    def start(self) -> None:
        """One thread."""
        super().start()
        faiss = import_module("faiss")
        faiss.omp_set_num_threads(1)
        self.index = faiss.IndexFlat(self.reference.shape[1], faiss.METRIC_L1)

    def build(self) -> None:
        """Copy the vectors."""
        self.index.add(self.reference)

    def nearest(self) -> Floats:
        """Two of them."""
        distances, _ = self.index.search(self.asked, 2)
        return np.asarray(distances, dtype=np.float64) / self.columns


class ScikitBrute(Encoded):
    """scikit-learn, exhaustive, float64."""

    kind: ClassVar[Any] = np.float64

    def start(self) -> None:
        """One job."""
        super().start()
        neighbors = import_module("sklearn.neighbors")
        self.index = neighbors.NearestNeighbors(n_neighbors=2, algorithm="brute", metric="manhattan", n_jobs=1)

    def build(self) -> None:
        """Keep the vectors."""
        self.index.fit(self.reference)

    def nearest(self) -> Floats:
        """Two of them."""
        return np.asarray(self.index.kneighbors(self.asked)[0]) / self.columns


class Frames(Peer):
    """Searches over pandas frames as they come."""

    def start(self) -> None:
        """Read both tables."""
        pandas = import_module("pandas")
        self.query, self.reference = (
            pandas.read_parquet(self.folder / f"{name}.parquet") for name in ("query", "reference")
        )
        self.nominal = [n for n in self.reference.columns if not pandas.api.types.is_numeric_dtype(self.reference[n])]

    def take(self, rows: int) -> None:
        """Cut the query."""
        self.asked = self.query.head(rows).copy()


class GowerMatrix(Frames):
    """The package `gower`: a whole matrix, of which the smallest entry of a row counts."""

    def start(self) -> None:
        """Import it too."""
        super().start()
        self.gower = import_module("gower")
        if not self.nominal:  # a table of whole numbers alone stops it: it divides in place
            self.query, self.reference = self.query.astype(float), self.reference.astype(float)

    def nearest(self) -> Floats:
        """Its ranges are those of both tables together."""
        flags = [n in self.nominal for n in self.reference.columns]
        matrix = self.gower.gower_matrix(self.asked, self.reference, cat_features=flags)
        return np.partition(matrix, 1, axis=1)[:, :2]


class SDMetricsDistance(Frames):
    """The distance to the closest record of SDMetrics."""

    def start(self) -> None:
        """Describe the table as it wants it."""
        super().start()
        self.utilities = import_module("sdmetrics.single_table.privacy.dcr_utils")
        kinds = {n: "categorical" if n in self.nominal else "numerical" for n in self.reference.columns}
        self.metadata = {"columns": {n: {"sdtype": kind} for n, kind in kinds.items()}}

    def nearest(self) -> Floats:
        """The nearest one only."""
        return np.asarray(self.utilities.calculate_dcr(self.asked, self.reference, self.metadata))[:, None]


class AnonymeterNeighbours(Frames):
    """Anonymeter's nearest neighbours of mixed columns."""

    def start(self) -> None:
        """Import it too."""
        super().start()
        import_module("anonymeter.evaluators")  # the package has a circular import: this side of it first
        module = import_module("anonymeter.neighbors.mixed_types_kneighbors")
        self.index = module.MixedTypeKNeighbors(n_neighbors=2, n_jobs=1)

    def build(self) -> None:
        """Keep the table."""
        self.index.fit(self.reference)

    def nearest(self) -> Floats:
        """Its ranges are those of both tables together; its distance is a sum."""
        return np.asarray(self.index.kneighbors(self.asked, return_distance=True)[0]) / self.columns


class SureDistance(Frames):
    """The distance to the closest record of clearbox-sure."""

    def start(self) -> None:
        """Importing it compiles its loop."""
        super().start()
        self.privacy = import_module("sure.privacy")

    def nearest(self) -> Floats:
        """The nearest one only; its ranges are those of both tables together."""
        found = self.privacy.distance_to_closest_record(
            "other", self.asked, self.reference, parallel=False, save_data=False
        )
        return np.asarray(found, dtype=np.float64)[:, None]


class NumbaPlain(Peer):
    """Fifteen lines of numba."""

    name = "plain"

    def start(self) -> None:
        """Read the plain arrays."""
        self.loop = getattr(import_module("benchmarks.peer_programs.loops"), self.name)
        self.arrays = [np.load(self.folder / f"{name}.npy") for name in ("qn", "qc", "rn", "rc")]

    def take(self, rows: int) -> None:
        """Cut the query."""
        qn, qc, rn, rc = self.arrays
        self.asked = (qn[:rows], qc[:rows], rn, rc)

    def nearest(self) -> Floats:
        """Two of them."""
        return np.asarray(self.loop(*self.asked))


class NumbaAbandoning(NumbaPlain):
    """The same with early abandon."""

    name = "abandoning"


class Daskpriv(Peer):
    """The search from encoded rows: encoding is not timed, as it is not for the others; ordering the query rows is."""

    def start(self) -> None:
        """Encode."""
        self.kernel = import_module("benchmarks.kernel")
        parquet = import_module("pyarrow.parquet")
        tables = (parquet.read_table(self.folder / f"{name}.parquet") for name in ("query", "reference"))
        self.data = self.kernel.encoded(*tables)
        self.kernel.indexed(self.data)

    def build(self) -> None:
        """Index the reference."""
        self.guide, self.index = self.kernel.indexed(self.data)

    def take(self, rows: int) -> None:
        """Cut the query."""
        self.asked = self.data.query.slice(0, rows)

    def nearest(self) -> Floats:
        """Two of them."""
        return np.asarray(self.kernel.nearest(self.guide, [self.index], self.asked, False, 2)[0])


class DaskprivCall(Peer):
    """The public call; it reads the files itself, and that is timed."""

    def start(self) -> None:
        """Import it."""
        self.ours = import_module("benchmarks.peers").ours
        self.parquet = import_module("pyarrow.parquet")
        self.table = self.parquet.read_table(self.folder / "query.parquet")

    def take(self, rows: int) -> None:
        """Write the cut query."""
        self.asked = self.folder / f"query-{rows}.parquet"
        self.parquet.write_table(self.table.slice(0, rows), self.asked, compression="zstd")

    def nearest(self) -> Floats:
        """Two of them."""
        return np.asarray(self.ours(self.asked, self.folder / "reference.parquet", 2))


PEERS: dict[str, type[Peer]] = {
    "daskpriv": Daskpriv,
    "daskpriv-call": DaskprivCall,
    "numba-plain": NumbaPlain,
    "numba-abandoning": NumbaAbandoning,
    "pynear": PynearTree,
    "faiss": FaissFlat,
    "scikit-learn": ScikitBrute,
    "anonymeter": AnonymeterNeighbours,
    "clearbox-sure": SureDistance,
    "gower": GowerMatrix,
    "sdmetrics": SDMetricsDistance,
}
