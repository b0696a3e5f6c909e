"""The systems of published papers: fields by name, for any number of devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fl_edge_env.channels import CellChannel

# Parameter tensors of the network for digits, which fedl2019 and yang2021 train.
_TENSORS = 6

# Chen et al., 2021; numbers are of the authors' code, FLMIN.m in github.com/mzchen0/Wireless-FL,
# unless they are called ours or the paper's (from memory).
_CHEN_SAMPLES = (100, 200, 300, 400, 500, 400, 300, 200, 100)  # of its nine devices
_CHEN_MODEL_BITS = 16.0 * 39_760  # 16 bits a parameter
_CHEN_BLOCKS = 6  # it also runs nine
# Interference of its six blocks [W], on average: ours are alike. Noise of 1e-14 W is beside it.
_CHEN_NOISE_W = float(np.mean([0.01, 0.03, 0.05, 0.07, 0.09, 0.11])) * 1e-6 + 1e-14
_CHEN_DOWNLOAD_NOISE_W = 0.06 * 3e-6
_CHEN_RADIUS_M, _CHEN_LEAST_DISTANCE_M = 500.0, 10.0  # the latter ours, there is none
# Gains go with 1/d^2, 20 dB a decade; a `CellChannel` has 36.7. In the ring from 1 m with this
# outer radius it has the gains of distances d, ``10 r^1.835`` m, with d nearly uniform up to 500 m.
_CHEN_EQUIVALENT_RADIUS_M = (_CHEN_RADIUS_M / _CHEN_LEAST_DISTANCE_M) ** (20.0 / 36.7)
# Of the first 2000 that for which nine devices are the most evenly spread over the distances.
_CHEN_PLACE_SEED = 487


def chen2021(num_devices: int) -> dict[str, Any]:
    """The system of Chen et al., 2021, as their code has it."""
    # Without shadowing; the code has no fading, the paper has Rayleigh's (from memory).
    ring = {"radius_m": _CHEN_EQUIVALENT_RADIUS_M, "least_distance_m": 1.0, "shadowing_db": 0.0}
    channel = CellChannel(**ring, place_seed=_CHEN_PLACE_SEED)
    gain = _CHEN_LEAST_DISTANCE_M**-2 * channel.distances(num_devices) ** -3.67
    samples = np.resize(_CHEN_SAMPLES, num_devices).astype(np.float64)
    return {
        "cohort_size": _CHEN_BLOCKS,
        "num_rounds": 130,
        "bandwidth_hz": _CHEN_BLOCKS * 1e6,  # 1 MHz a block
        "noise_power_w": _CHEN_NOISE_W,
        "model_bits": _CHEN_MODEL_BITS,
        "model_tensors": 4,
        "num_samples": samples,
        "local_epochs": 1.0,
        # 40 cycles times the Mbit of a model, whatever the data, at 1e-27 J/Hz^2 and 1 GHz.
        "cycles_per_sample": 40.0 * _CHEN_MODEL_BITS / 2**20 / samples,
        "capacitance": 2e-27,
        "f_min": 1e9,
        "f_max": 1e9,
        "p_min": 1e-4,  # ours
        "p_max": 0.01,
        # There the most for one round of a participant, 3 mJ.
        "energy_budget_j": 0.003,
        "deadline_s": 0.5,
        "download_rate_bps": 20e6 * np.log2(1.0 + gain / _CHEN_DOWNLOAD_NOISE_W),
        "waterfall_threshold": 1.08,
        "channel": CellChannel(**ring, place_seed=_CHEN_PLACE_SEED, mean=float(gain.mean())),
    }


def _users_around(
    num_devices: int, channel: CellChannel, loss_at_1km_db: float, loss_per_decade_db: float
) -> CellChannel:
    """The channel with the median gain that a paper's path loss gives its users.

    Around it the gains spread by the channel's own path loss, whose exponent is another one.
    """
    loss = loss_at_1km_db + loss_per_decade_db * np.log10(channel.distances(num_devices) / 1e3)
    here = np.median(channel.device_mean(num_devices)) / channel.mean
    return replace(channel, mean=float(np.median(10.0 ** (-0.1 * loss)) / here))


def yang2021(num_devices: int) -> dict[str, Any]:
    """The system of Yang et al., 2021, as far as their code has it.

    Read in main_5.m, main_1.m and user_distribution.m of the code that came with "Energy efficient
    federated learning over wireless communication networks", TWC 2021:
    github.com/BrokenBunny/Energy-efficient-federated-learning.
    """
    ring = CellChannel(
        radius_m=500.0 / np.sqrt(np.pi),  # ours: as large as their square of 500 m
        least_distance_m=10.0,  # ours; theirs is 1 m
        shadowing_db=8.0,
        # Theirs do not fade; ours hardly do.
        fading="rician",
        rician_factor=1000.0,
        fading_min=0.8,
        fading_max=1.2,
    )
    bandwidth = 20e6
    return {
        "cohort_size": num_devices,  # all take part
        "bandwidth_split": "shared",
        "bandwidth_hz": bandwidth,
        "noise_power_w": 1e-3 * 10**-17.4 * bandwidth / num_devices,  # -174 dBm/Hz
        "model_bits": 28.1e3,
        "num_samples": 500.0,
        "cycles_per_sample": 2e5,
        "local_epochs": 4.0,  # v log2(1 / eta) with v = 4, and eta = 1/2, where their code begins
        "capacitance": 2e-28,  # their kappa = 1e-28 stands without our 1/2
        "f_min": 1e8,  # ours; theirs is zero
        "f_max": 2e9,
        "p_min": 1e-6,  # ours; theirs is zero
        "p_max": 0.01,  # 10 dBm
        "energy_budget_j": 0.1,  # ours; theirs have none. At 2 GHz a round takes 0.16 J
        "model_tensors": _TENSORS,
        "channel": _users_around(num_devices, ring, 128.1, 37.6),
    }


def fedl2019(num_devices: int) -> dict[str, Any]:
    """The system of Tran et al., 2019, as far as their code has it.

    Read in Setting.jl and TrafficGen.jl (julia-INFOCOM) of the authors' code of "Federated learning
    over wireless networks: optimization model design and analysis", INFOCOM 2019:
    github.com/nhatminh/FEDL-INFOCOM.
    """
    ring = CellChannel(radius_m=50.0, least_distance_m=2.0, shadowing_db=0.0)
    data = np.random.default_rng(0).uniform(5.0, 10.0, num_devices)  # theirs, with a seed of ours
    return {
        "cohort_size": num_devices,  # all take part
        "bandwidth_split": "shared",
        "bandwidth_hz": 1e6,
        "noise_power_w": 1e-10 / num_devices,  # 1e-10 W in the whole band
        "model_bits": 25e3 / np.log(2.0),  # 25,000 nats
        "num_samples": 8e6 * data,  # a sample is a bit
        "cycles_per_sample": 20.0,  # the number of equal devices; others have 10 to 30
        "local_epochs": 1.0,  # ours; theirs is log(1 / theta), which they choose
        "capacitance": 2e-28,
        "f_min": 0.3e9,
        "f_max": 2e9,
        # Theirs have 0.2 to 1 W in turns, and so much less if they all send at once.
        "p_min": 1e-4,
        "p_max": 1.0,
        "energy_budget_j": 0.3,  # ours; theirs have none. At 2 GHz computing takes 0.3 to 0.6 J
        "model_tensors": _TENSORS,
        # -40 dB at one metre, and 40 dB a decade.
        "channel": _users_around(num_devices, ring, 160.0, 40.0),
    }
