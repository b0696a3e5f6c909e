"""Splits of the training samples over the devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from fl_edge_env.checks import per_device
from fl_edge_env.typing import FloatArray, IntArray
from train_fl.data.dataset import Dataset
from train_fl.options import TrainingOptions


def split(
    dataset: Dataset,
    options: TrainingOptions,
    num_devices: int,
    merit: ArrayLike | None,
    rng: np.random.Generator,
) -> list[IntArray]:
    """The samples of each device, drawn as the options say.

    Raises
    ------
    ValueError
        If there are fewer samples than devices, or the data or the devices do not allow the split.
    """
    labels, kind = dataset.train_targets.numpy(), options.partition
    if num_devices > len(labels):
        raise ValueError(
            f"num_devices must be at most the {len(labels)} samples, got {num_devices}"
        )
    if kind == "iid":
        return iid(len(labels), num_devices, rng)
    if kind in ("place", "speed"):
        if merit is None or np.shape(merit) != (num_devices,):
            raise ValueError(
                f"a split by {kind} needs the merit of each of {num_devices} devices, got {merit!r}"
            )
        return by_rank(labels, merit, options.concentration, rng)
    if kind == "writer":
        if dataset.train_writers is None:
            raise ValueError(
                f"the data set {dataset.name} does not say who its writers are: give it "
                "train_writers, a number from 0 on for each sample"
            )
        return by_writer(dataset.train_writers, num_devices)
    return dirichlet_equal(labels, num_devices, options.concentration, rng)


def dirichlet_equal(
    labels: NDArray[np.integer], num_devices: int, concentration: float, rng: np.random.Generator
) -> list[IntArray]:
    """Split samples into parts with a Dirichlet label mix, whose sizes differ by at most one.

    Each device draws a distribution over classes and then its samples, one after the other and
    without replacement, from the classes that have samples left [Hsu2019]_. The distribution is the
    symmetric Dirichlet distribution of the concentration: small for devices with few classes, large
    for devices that are alike.

    References
    ----------
    .. [Hsu2019] Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for
       Federated Visual Classification", 2019.
    """
    classes = _shuffled_classes(labels, rng)
    concentrations = np.full((num_devices, len(classes)), concentration)
    return _draw_parts(classes, concentrations, range(num_devices), rng)


def by_rank(
    labels: NDArray[np.integer], merit: ArrayLike, concentration: float, rng: np.random.Generator
) -> list[IntArray]:
    """Split samples into parts of equal size whose label mix follows the rank of the device.

    Devices are ranked by their mean gain or their speed, the best first, and classes by their
    number: the first devices have more of the first classes and the last more of the last. As in
    `dirichlet_equal` each device draws a distribution over classes and then its samples; here the
    mean of that distribution depends on the rank. With u the share of devices that are better and
    v the share of samples in classes before (each counting half of its own), it is
    ``1 + (1 - 2 u)(1 - 2 v)`` times the class's share of all samples, so that the devices
    together ask for the classes in the shares that there are. Devices of equal merit share their
    rank. With a large concentration a device's mix is the one of its rank, with a small one devices
    have few classes, whatever their rank.

    A policy that prefers good channels, or fast devices, then learns the last classes badly.

    Raises
    ------
    ValueError
        If all devices are alike, or a merit is not positive and finite.

    Notes
    -----
    The joint density of u and v is the copula of Farlie, Gumbel and Morgenstern with its largest
    parameter, whose rank correlation is 1/3.
    """
    merits = per_device("merit", merit, np.size(merit))
    if np.all(merits == merits[0]):
        raise ValueError(
            "a split by place needs devices of different mean gains, as in a CellChannel, and one "
            f"by speed devices of different speeds, as phones; got {merits[0]:g} for each of "
            f"{merits.size}"
        )
    classes = _shuffled_classes(labels, rng)
    share = np.array([len(members) for members in classes]) / len(labels)
    before = np.cumsum(share) - 0.5 * share
    better = (rankdata(-merits) - 0.5) / merits.size
    mean_mix = share * (1.0 + np.outer(1.0 - 2.0 * better, 1.0 - 2.0 * before))
    # A part so small that it would be zero makes no distribution.
    concentrations = np.maximum(concentration * len(share) * mean_mix, 1e-12)
    # The last ones get what is left: in random order, so that it is no matter of the rank.
    return _draw_parts(classes, concentrations, rng.permutation(merits.size), rng)


def iid(num_samples: int, num_devices: int, rng: np.random.Generator) -> list[IntArray]:
    """Split samples at random into parts of equal size; see `dirichlet_equal`."""
    return np.array_split(rng.permutation(num_samples), num_devices)


def by_writer(writers: IntArray, num_devices: int) -> list[IntArray]:
    """Give each device the samples of one writer.

    Raises
    ------
    ValueError
        If there are more or fewer writers than devices, or they are not counted from 0.
    """
    found = np.unique(writers)
    if not np.array_equal(found, np.arange(num_devices)):
        raise ValueError(
            f"a split by writer needs as many devices as writers, and writers counted from 0: "
            f"num_devices is {num_devices} and there are {len(found)} writers from {found[0]} "
            f"to {found[-1]}"
        )
    return [np.flatnonzero(writers == writer) for writer in range(num_devices)]


def _shuffled_classes(labels: NDArray[np.integer], rng: np.random.Generator) -> list[IntArray]:
    """The samples of each class, in random order."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def _draw_parts(
    classes: Sequence[IntArray],
    concentrations: FloatArray,
    order: Iterable[int],
    rng: np.random.Generator,
) -> list[IntArray]:
    """Parts of sizes apart by at most one, drawn from the classes device after device.

    `concentrations`, shape (N, C), are those of each device's Dirichlet distribution over classes.
    """
    pools = [members.tolist() for members in classes]
    share, more = divmod(sum(map(len, pools)), len(concentrations))
    parts = [np.empty(share + (n < more), dtype=np.int64) for n in range(len(concentrations))]
    for device in order:
        mix = rng.dirichlet(concentrations[device])
        for index in range(len(parts[device])):
            left = np.array([len(pool) for pool in pools])
            odds = np.where(left > 0, mix, 0.0)
            if odds.sum() == 0.0:  # of this device's classes nothing is left
                odds = left.astype(np.float64)
            cdf = np.cumsum(odds)
            drawn = int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right"))
            parts[device][index] = pools[drawn].pop()
    return parts


def label_histogram(
    labels: NDArray[np.integer], parts: Sequence[IntArray], num_classes: int
) -> FloatArray:
    """Share of each class in each device's samples, shape (N, C)."""
    counts = [np.bincount(labels[part], minlength=num_classes) / len(part) for part in parts]
    return np.array(counts, dtype=np.float64)
