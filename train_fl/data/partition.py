"""Splits of the training samples over the devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from fl_edge_env.checks import per_device
from fl_edge_env.typing import FloatArray, IntArray
from train_fl.data.dataset import Dataset
from train_fl.training_options import TrainingOptions


def split(
    dataset: Dataset,
    options: TrainingOptions,
    num_devices: int,
    merit: ArrayLike | None,
    rng: Generator,
) -> list[IntArray]:
    """Split the training samples over the devices as the options say.

    Raises
    ------
    ValueError
        If there are fewer samples than devices, or the data or the devices do not allow the split.
    """
    labels = dataset.train_targets.numpy()
    kind = options.partition
    if num_devices > len(labels):
        raise ValueError(
            f"num_devices must be at most the {len(labels)} samples, got {num_devices}"
        )
    if kind == "iid":
        return iid(len(labels), num_devices, rng)
    if kind in ("place", "speed"):
        if merit is None or np.shape(merit) != (num_devices,):
            raise ValueError(
                f"a split by {kind} needs merit, one number for each of {num_devices} devices, "
                f"got {merit!r}"
            )
        return by_rank(labels, merit, options.concentration, rng)
    if kind == "writer":
        if dataset.train_writers is None:
            raise ValueError(
                f"the data set {dataset.name} has no train_writers, which a split by writer needs: "
                "give the writer of each sample, counted from 0"
            )
        return by_writer(dataset.train_writers, num_devices)
    return dirichlet_equal(labels, num_devices, options.concentration, rng)


def dirichlet_equal(
    labels: NDArray[np.integer], num_devices: int, concentration: float, rng: Generator
) -> list[IntArray]:
    """Split samples with Dirichlet label mixes into parts whose sizes differ by at most one.

    Each device draws a distribution over classes. It then draws its samples one by one, without
    replacement, from the classes with samples left [Hsu2019]_. The distribution is drawn from a
    symmetric Dirichlet distribution: a small concentration gives devices few classes, a large one
    makes them alike.

    References
    ----------
    .. [Hsu2019] Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for
       Federated Visual Classification", 2019.
    """
    classes = _shuffled_classes(labels, rng)
    concentrations = np.full((num_devices, len(classes)), concentration)
    return _draw_parts(classes, concentrations, range(num_devices), rng)


def by_rank(
    labels: NDArray[np.integer], merit: ArrayLike, concentration: float, rng: Generator
) -> list[IntArray]:
    """Split samples into parts of equal size whose label mix follows the device's rank.

    Devices are ranked by mean gain or speed, the best first, and classes by their number: the first
    devices have more of the first classes, the last devices more of the last. As in
    `dirichlet_equal`, each device draws a distribution over classes and then its samples; here the
    mean of that distribution depends on the rank. Let u be the fraction of better devices and v the
    fraction of samples in earlier classes, both including half of the device or class itself. The
    mean is ``1 + (1 - 2 u)(1 - 2 v)`` times the class's share of all samples, so the devices' total
    demand matches the class sizes. Devices of equal merit have the same rank. A large concentration
    gives every device the mean mix of its rank; a small one gives devices few classes regardless of
    rank.

    A policy that prefers good channels or fast devices then learns the last classes badly.

    Raises
    ------
    ValueError
        If all merits are equal, or one is not positive and finite.

    Notes
    -----
    The joint density of u and v is the Farlie-Gumbel-Morgenstern copula with its largest parameter;
    its rank correlation is 1/3.
    """
    merits = per_device("merit", merit, np.size(merit))
    if np.all(merits == merits[0]):
        raise ValueError(
            "a split by place needs devices with different mean gains, as in Scenario.cell(), and "
            "a split by speed different speeds, as in Scenario.phones(); got "
            f"{merits[0]:g} for each of {merits.size} devices"
        )
    classes = _shuffled_classes(labels, rng)
    share = np.array([len(members) for members in classes]) / len(labels)
    before = np.cumsum(share) - 0.5 * share
    better = (rankdata(-merits) - 0.5) / merits.size
    mean_mix = share * (1.0 + np.outer(1.0 - 2.0 * better, 1.0 - 2.0 * before))
    # A concentration that underflows to zero gives no distribution.
    concentrations = np.maximum(concentration * len(share) * mean_mix, 1e-12)
    # The last devices get the leftovers, so the order is random and independent of the rank.
    return _draw_parts(classes, concentrations, rng.permutation(merits.size), rng)


def iid(num_samples: int, num_devices: int, rng: Generator) -> list[IntArray]:
    """Split samples at random into parts whose sizes differ by at most one."""
    return np.array_split(rng.permutation(num_samples), num_devices)


def by_writer(writers: IntArray, num_devices: int) -> list[IntArray]:
    """Give each device the samples of one writer.

    Raises
    ------
    ValueError
        If there are more or fewer writers than devices, or they are not numbered from 0.
    """
    found = np.unique(writers)
    if not np.array_equal(found, np.arange(num_devices)):
        raise ValueError(
            f"a split by writer needs as many devices as writers, and writers numbered from 0: "
            f"num_devices is {num_devices} and there are {len(found)} writers from {found[0]} "
            f"to {found[-1]}"
        )
    return [np.flatnonzero(writers == writer) for writer in range(num_devices)]


def _shuffled_classes(labels: NDArray[np.integer], rng: Generator) -> list[IntArray]:
    """The samples of each class, in random order."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def _draw_parts(
    classes: Sequence[IntArray],
    concentrations: FloatArray,
    order: Iterable[int],
    rng: Generator,
) -> list[IntArray]:
    """Draw each device's samples from the classes; part sizes differ by at most one.

    `concentrations`, shape (N, C), are each device's Dirichlet parameters over classes.
    """
    pools = [members.tolist() for members in classes]
    share, more = divmod(sum(map(len, pools)), len(concentrations))
    parts = [np.empty(share + (n < more), dtype=np.int64) for n in range(len(concentrations))]
    for device in order:
        mix = rng.dirichlet(concentrations[device])
        for index in range(len(parts[device])):
            left = np.array([len(pool) for pool in pools])
            odds = np.where(left > 0, mix, 0.0)
            if odds.sum() == 0.0:  # no samples are left in this device's classes
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
    return np.array(counts)
