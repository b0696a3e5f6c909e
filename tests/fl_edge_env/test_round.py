"""The options of a round, all together, against an account by plain loops over the devices."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_edge_env import (
    Allocation,
    CellChannel,
    FLEdgeEnv,
    FLEdgeVectorEnv,
    MarkovChannel,
    Scenario,
    Simulator,
    physics,
)
from fl_edge_env.aggregation import contributions, in_time
from fl_edge_env.compression import sent_bits
from fl_edge_env.spaces import NEVER_MEASURED
from tests.support import ANY_SEED, chosen, missed

ROUNDS = 4
SYSTEM_OPTIONS = {
    "availability": lambda rng, n: rng.uniform(0.2, 1.0, n),
    "upload_failure": lambda rng, _: rng.uniform(0.1, 0.6),
    "deadline_s": lambda rng, _: 10 ** rng.uniform(2.5, 4),
    "overhead_s": lambda rng, n: 10 ** rng.uniform(1, 4.2, n),
    "download_rate_bps": lambda rng, n: 10 ** rng.uniform(5.5, 7, n),
    "compression": lambda rng, _: str(rng.choice(["qsgd:4", "topk:0.01", "bits:123456"])),
    "download_compression": lambda *_: "qsgd:8",
    "local_epochs": lambda rng, n: rng.uniform(0.3, 4, n),
    "latency": lambda *_: "round_time",
    "objective": lambda *_: "outcome",
    "csi": lambda rng, _: str(rng.choice(["delayed", "participants"])),
}
# Means over the draw, which the server does not know where only participants are measured.
OF_THE_DRAW = {
    "energy_expected",
    "latency",
    "penalty",
    "drift",
    "reward_latency",
    "reward_drift",
}
OPTIONS = st.sets(st.sampled_from([*SYSTEM_OPTIONS, "first", "bandwidth", "weights"]))


def random_system(rng: np.random.Generator, options: set[str], most: int = 5) -> Scenario:
    n = int(rng.integers(1, most + 1))
    given_ = {k: make(rng, n) for k, make in SYSTEM_OPTIONS.items() if k in options}
    return Scenario(
        num_devices=n,
        cohort_size=int(rng.integers(1, 5)),
        num_rounds=ROUNDS,
        num_samples=rng.integers(20, 900, n),
        energy_budget_j=rng.uniform(1, 20, n),
        f_max=rng.uniform(1.1e9, 3e9, n),
        capacitance=rng.uniform(1e-28, 4e-28, n),
        channel=rng.choice([CellChannel(persistence=0.3), MarkovChannel.correlated(0.6)]),
        mu=rng.uniform(0.1, 3),
        nu=10 ** rng.uniform(3, 6),
        **given_,
    )


def random_decision(
    rng: np.random.Generator, system: Scenario, there: np.ndarray, options: set[str], chosen: bool
) -> Allocation:
    """A decision for systems in which devices are available, bool of shape (B, N)."""
    f = system.f_min + rng.beta(0.3, 0.3, there.shape) * (system.f_max - system.f_min)
    p = system.p_min + rng.beta(0.3, 0.3, there.shape) * (system.p_max - system.p_min)
    if not chosen:
        q = rng.dirichlet(np.full(there.shape[1], 0.3), len(there)) + 1e-3
        return Allocation(f, p, q / q.sum(axis=1, keepdims=True))
    cohort = np.full((len(there), min(system.cohort_size, there.shape[1])), -1)
    parts = np.zeros(there.shape)
    first = np.zeros(len(there), int)
    for row, present in enumerate(there):
        named = rng.permutation(np.flatnonzero(present))[: rng.integers(1, cohort.shape[1] + 1)]
        cohort[row, rng.permutation(cohort.shape[1])[: named.size]] = named
        parts[row] = rng.uniform(0, 1, present.size)  # of others it does not count
        parts[row, named] = rng.dirichlet(np.ones(named.size)) * rng.uniform(0.5, 1)
        first[row] = rng.integers(1, named.size + 1)
    given_ = {
        "first": first,
        "bandwidth": parts * system.bandwidth_hz,
        "weights": rng.uniform(0, 2, cohort.shape),
    }
    return Allocation(f, p, cohort=cohort, **{k: given_[k] for k in given_ if k in options})


def of_system(decision: Allocation, row: int) -> Allocation:
    fields = {name: value for name, value in vars(decision).items() if value is not None}
    return Allocation(**{n: v[row] for n, v in fields.items() if n != "participates"})


def account(
    system: Scenario,
    decision: Allocation,
    gain: np.ndarray,
    queues: tuple[list[float], list[float]],
    there: list[bool],
    drawn: list[int],
) -> dict[str, Any]:
    """What a round comes to, a device at a time; `drawn` is the cohort."""
    devices = range(system.num_devices)
    K = system.cohort_size
    data = [float(x) / sum(system.num_samples.tolist()) for x in system.num_samples]
    budget = system.energy_budget_j.tolist()
    members = {n for n in drawn if n >= 0}
    model = system.model_bits, system.model_tensors
    download = sent_bits("download_compression", system.download_compression, *model)
    time = []
    energy = []
    spans = []
    for n in devices:
        f = decision.f[n]
        p = decision.p[n]
        part = system.bandwidth_hz / K
        noise = system.noise_power_w / part  # per hertz
        if decision.bandwidth is not None and n in members:
            part = decision.bandwidth[n]
        rate = part * math.log2(1 + gain[n] * p / (noise * part))
        waiting = system.overhead_s[n] + download / system.download_rate_bps[n]
        cycles = system.local_epochs[n] * system.cycles_per_sample[n] * system.num_samples[n]
        compute = cycles / f
        upload = system.upload_bits / rate
        power = system.capacitance[n] * f**3 / 2
        spans.append((waiting, compute, power, p))
        time.append(waiting + compute + upload)
        energy.append(power * compute + p * upload)
    end = system.deadline_s
    if decision.first is not None:
        end = min(end, sorted(time[n] for n in members)[decision.first - 1])
    late = [t > end * (1 + 1e-9) for t in time]
    for n in devices:
        if late[n]:
            waiting, compute, power, p = spans[n]
            computed = min(max(end - waiting, 0.0), compute)
            sent = max(end - waiting - compute, 0.0)
            time[n] = end
            energy[n] = power * computed + p * sent
    x = [n in members and not late[n] for n in devices]
    spent = [energy[n] if n in members else 0.0 for n in devices]
    round_time = max(time[n] for n in members)
    told: dict[str, Any] = {"device_time": time, "round_time": round_time, "energy_spent": spent}
    told["late"] = [late[n] and n in members for n in devices]
    if decision.q is None:
        q = None
        expected = spent
        error = None
        told["latency"] = round_time
    else:
        total = sum(decision.q[n] for n in devices if there[n])
        q = [decision.q[n] / total if there[n] else 0.0 for n in devices]
        expected = [(1 - (1 - q[n]) ** K) * energy[n] for n in devices]
        error = sum(data[n] ** 2 / q[n] for n in devices if there[n])
        longest = sum(
            math.prod(q[n] for n in draw) * max(time[n] for n in draw)
            for draw in itertools.product([n for n in devices if there[n]], repeat=K)
        )
        proxy = sum(q[n] * time[n] for n in devices)
        told["latency"] = longest if system.latency == "round_time" else proxy
    target = [min(K * w, 1) for w in data]
    Q, Z = queues
    outcome = system.objective == "outcome"
    moved = spent if outcome or system.csi == "participants" else expected
    told["penalty"] = None if error is None else told["latency"] + system.lambda_ * error
    if outcome:
        drift = None
        middle = system.f_mid, system.p_mid, system
        reward = -round_time / physics.time_and_energy(system.mean_gain, *middle)[0].mean()
        energies = [spent[n] / budget[n] for n in devices]
        missing = [2 - x[n] / target[n] for n in devices]
        told |= {"cost": sum(energies) / len(data), "costs": energies + missing}
    else:
        drift = sum(Q[n] * (expected[n] - budget[n]) for n in devices)
        reward = -(system.V * (told["latency"] if q is None else told["penalty"]) + drift)
        told |= {"cost": None, "costs": None}
    return told | {
        "energy_expected": expected,
        "sampling_error": error,
        "drift": drift,
        "reward": reward,
        "q": q,
        "queue": [max(Q[n] + moved[n] - budget[n], 0.0) for n in devices],
        "participation_queue": [Z[n] + target[n] - x[n] for n in devices],
        "in_time": x,
    }


def weights_of(
    system: Scenario, decision: Allocation, told: dict[str, Any], info: dict[str, Any]
) -> list[float]:
    """The weight of each device's update, summed up draw by draw."""
    data = system.num_samples.tolist()
    drawn = info["cohort"].tolist()
    failed = info.get("failed", [False] * len(data))
    arrived = [x and not f for x, f in zip(told["in_time"], failed, strict=True)]
    weight = [0.0] * len(data)
    for place, n in enumerate(drawn):
        if n < 0 or not arrived[n]:
            continue
        if told["q"] is not None:
            one = data[n] / sum(data) / (len(drawn) * told["q"][n]) / (1 - system.upload_failure)
        elif decision.weights is not None:
            one = decision.weights[place] / (1 - system.upload_failure)
        else:
            one = data[n] / sum(d for d, a in zip(data, arrived, strict=True) if a)
        weight[n] += one
    return weight


@pytest.mark.filterwarnings("ignore:no device meets the deadline")
@settings(max_examples=4 * settings().max_examples)
@given(ANY_SEED, OPTIONS, st.booleans())
def test_round__equals_plain_loops_with_any_options(seed, options, chosen):
    rng = np.random.default_rng(seed)
    system = random_system(rng, options)
    devices = range(system.num_devices)
    seeds = [seed, seed + 1]
    batch = FLEdgeVectorEnv(2, system, autoreset_mode="Disabled")
    single, second = (FLEdgeEnv(system) for _ in seeds)
    together, _ = batch.reset(seed=seeds)
    observation, _ = single.reset(seed=seed)
    second.reset(seed=seed + 1)
    queues = [0.0] * len(devices), [0.0] * len(devices)
    elapsed = 0.0
    last = None
    known = [system.channel.mean] * len(devices)
    age = [NEVER_MEASURED] * len(devices)
    for _ in range(ROUNDS):
        gain = single.simulator.channel_gain.copy()
        there = together.get("available", np.ones((2, len(devices)))) == 1
        wanted: dict[str, Any] = {"queue": queues[0]}
        if system.csi == "full":
            wanted["channel_gain"] = gain
        elif system.csi == "participants":
            wanted |= {"channel_gain": known, "age": age}
        elif last is not None:
            wanted["channel_gain"] = last
        if system.objective == "outcome":
            wanted["participation_queue"] = queues[1]
        for name, values in wanted.items():
            np.testing.assert_allclose(observation[name], values, rtol=1e-9, atol=1e-9)
        assert {*observation} - {*wanted} <= {"available", "channel_gain"}
        if "bandwidth" not in options:  # with less of it a device may spend more
            assert single.observation_space.contains(observation)

        decision = random_decision(rng, system, there, options, chosen)
        own = of_system(decision, 0)
        observation, reward, _, _, info = single.step(own)
        together, rewards, *_, infos = batch.step(decision)
        alone = [(observation, reward, info)]
        others, other, _, _, more = second.step(of_system(decision, 1))
        alone.append((others, other, more))
        infos = {name: values for name, values in infos.items() if not name.startswith("_")}
        for row, expected in enumerate(alone):
            rows = [{k: v[row] for k, v in each.items()} for each in (together, infos)]
            np.testing.assert_equal((rows[0], rewards[row], rows[1]), expected)

        played = single.last_round
        told = account(system, own, gain, queues, there[0].tolist(), played.cohort.tolist())
        elapsed = elapsed + told["round_time"]
        last = gain
        queues = told["queue"], told["participation_queue"]
        told["elapsed_time"] = elapsed
        for name in set(told) - {"q", "late", "queue", "participation_queue", "in_time"}:
            found = getattr(played, name)
            assert (found is None) == (told[name] is None), name
            if found is not None:
                np.testing.assert_allclose(found, told[name], rtol=1e-9, atol=1e-9, err_msg=name)
        terms = [played.reward_latency, played.reward_sampling_error, played.reward_drift]
        assert sum(x for x in terms if x is not None) == pytest.approx(reward) == played.reward
        members = {n for n in played.cohort.tolist() if n >= 0}
        assert all(there[0, n] for n in members)
        assert played.cohort.shape == (system.cohort_size,)
        if chosen:
            places = own.cohort.size
            np.testing.assert_array_equal(played.cohort[:places], own.cohort)
            assert np.all(played.cohort[places:] == -1)
        ends_early = "deadline_s" in options or (chosen and "first" in options)
        assert (played.late is not None) == ends_early
        if ends_early:
            np.testing.assert_array_equal(played.late, told["late"])
        assert (played.q is not None) == (not chosen and "availability" in options)
        if played.q is not None:
            np.testing.assert_allclose(played.q, told["q"], rtol=1e-9)
        if "upload_failure" in options:
            assert not np.any(played.failed & ~np.array(told["in_time"]))
        np.testing.assert_array_equal(in_time(info), told["in_time"])
        weight = weights_of(system, own, told, info)
        found = contributions(own, info, system)
        np.testing.assert_allclose(found.weight, weight, rtol=1e-9)
        both = contributions(decision, infos, system)
        for name in ("weight", "arrived"):
            np.testing.assert_array_equal(getattr(both, name)[0], getattr(found, name))
        # What the server does not know is hidden, and nothing else.
        for n in devices:
            if n in members:
                known[n] = gain[n]
                age[n] = 1.0
            else:
                age[n] = min(age[n] + 1.0, NEVER_MEASURED)
        blind = system.csi == "participants"
        everything = played.account()
        hidden = (
            {"measured", "device_time"} | (set() if chosen else OF_THE_DRAW) if blind else set()
        )
        assert {*info} == {*everything} - hidden
        for name, value in info.items():
            assert isinstance(value, np.ndarray | np.generic), name
            np.testing.assert_array_equal(value, everything[name])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "choice",
    [{"q": [0.2, 0.3, 0.5]}, {"cohort": [2, 0], "bandwidth": [4e5, 0.0, 6e5], "weights": 0.5}],
    ids=["sampled", "chosen"],
)
def test_round__corrects_small_violations_of_bounds(choice, sign):
    # Uploads take most of the time, and depend on the bandwidth.
    system = Scenario(num_devices=3, cohort_size=2, num_samples=1.0, noise_power_w=1e-6)
    decision = Allocation(np.array([1e9, 2e9, 2e9]), np.array([0.1, 0.001, 0.1]), **choice)
    results = []
    for played in (decision, missed(decision, system, sign)):
        env = FLEdgeEnv(system)
        env.reset(seed=1)
        info = env.step(played)[-1]
        results.append(info | contributions(played, info, system)._asdict())
    for name, values in results[0].items():
        np.testing.assert_allclose(results[1][name], values, rtol=3e-9, err_msg=name)


@pytest.mark.parametrize(("first", "on_time"), [(1, [4, 5]), (3, [2, 4, 5]), (4, [0, 2, 4, 5])])
def test_first__is_the_end_of_the_round_and_ties_are_in_time(first, on_time):
    scenario = Scenario.femnist(num_devices=6, cohort_size=4, num_samples=1.0)
    simulator = Simulator(scenario)
    simulator.reset([0])
    simulator.measure(np.array([0.1, 0.1, 0.2, 0.3, 0.4, 0.4 * (1 - 1e-12)]))
    played = simulator.advance(chosen(scenario, 5, 0, 4, 2, first=first))
    assert np.flatnonzero(in_time(played.info())).tolist() == on_time
