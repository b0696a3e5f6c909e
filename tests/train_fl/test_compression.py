"""What is sent: compressors, and the accounts of a round in which they are at work."""

# ruff: noqa: ARG002 - the signatures of compressors
from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario
from fl_edge_env.compression import Compression
from tests.support import chosen
from train_fl import TrainingWrapper, make_task
from train_fl.compression import QSGD, Compressor, TopK, Uploads, make_compressor
from train_fl.local_sgd import LocalTrainer, passes
from train_fl.task import TrainingSeeds

SHAPES = [(3, 2, 2), (5,), (1, 4)]


def sent(compressor: Compressor, update: np.ndarray, seed: int = 0) -> np.ndarray:
    uploads = Uploads(SHAPES, compressor)
    return uploads.decoded(uploads.encoded(update, np.random.default_rng(seed)))


def scales(update: np.ndarray) -> np.ndarray:
    """The largest magnitude of its tensor for each parameter, by loops."""
    parts = np.split(update, np.cumsum([np.prod(shape) for shape in SHAPES])[:-1])
    return np.array([max(abs(part)) for part in parts for _ in part])


@pytest.mark.parametrize("bits", [1, 3])
def test_qsgd__is_unbiased(bits):
    update = np.random.default_rng(1).normal(size=21).astype(np.float32)
    draws = np.array([sent(QSGD(bits), update, seed) for seed in range(2000)], dtype=np.float64)
    scale = scales(update)
    # One bit says s or -s, whose variance is known; more bits are at most half a step away.
    bound = scale**2 - update**2 if bits == 1 else (scale / (2 ** (bits - 1) - 1)) ** 2 / 4
    np.testing.assert_array_less(
        np.abs(draws.mean(axis=0) - update), 5e-6 + 5 * np.sqrt(bound / 2000)
    )


numbers = st.floats(-1e3, 1e3, width=32)


def counted(name: str, update: np.ndarray) -> np.ndarray:
    """The update that arrives, in as many bytes as the system counts."""
    uploads = Uploads(SHAPES, make_compressor(name))
    data = uploads.encoded(update, np.random.default_rng(0))
    assert 8 * len(data) == Compression.parse("", name).size(32 * 21, 3)
    return uploads.decoded(data)


@given(bits=st.integers(1, 16), update=st.lists(numbers, min_size=21, max_size=21))
def test_qsgd__rounds_to_a_step_in_the_counted_bytes(bits, update):
    update = np.array(update, dtype=np.float32)
    back = counted(f"qsgd:{bits}", update)
    scale = scales(update)
    step = scale / max(2 ** (bits - 1) - 1, 0.5)
    np.testing.assert_array_less(np.abs(back - update), step * (1 + 1e-3) + 1e-30)
    whole = np.divide(back + scale, step, out=np.zeros(21), where=step > 0)
    np.testing.assert_allclose(whole, np.round(whole), atol=1e-2)


@given(share=st.floats(0.01, 0.5), update=st.lists(numbers, min_size=21, max_size=21, unique=True))
def test_topk__sends_the_largest_in_the_bytes_that_are_counted(share, update):
    update = np.array(update, dtype=np.float32)
    back = counted(f"topk:{share}", update)
    largest = np.sort(np.abs(update))[-max(1, round(21 * share)) :]
    np.testing.assert_array_equal(np.sort(np.abs(back))[-len(largest) :], largest)
    assert np.count_nonzero(back) <= len(largest)
    np.testing.assert_array_equal(back, np.where(back == 0, 0, update))


ROUNDED = "must be none or qsgd:BITS, as devices need every"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("compression", "qsgd:0", "an integer from 1 to 16, the bits of a parameter, got 'qsgd:0'"),
        ("compression", "topk:0", r"a number in \(0, 1\], the fraction of the .*, got 'topk:0'"),
        (
            "compression",
            "topk:0.9",
            "'topk:0.9' writes .* bits, more than the uncompressed .*194880",
        ),
        ("compression", "qsdg:4", "must be none, qsgd:BITS, .* got 'qsdg:4': did you mean 'qsgd'"),
        ("download_compression", "topk:0.1", ROUNDED),
        ("download_compression", "bits:100", ROUNDED),
    ],
)
def test_scenario__names_a_wrong_compression(field, value, message):
    with pytest.raises(ValueError, match=message):
        Scenario.digits(**{field: value})


def training(scenario: Scenario, **options) -> TrainingWrapper:
    task = make_task("digits", num_devices=10, **options)
    return TrainingWrapper(gym.make("FLEdge-v0", scenario=task.fit(scenario)), task)


SCENARIO = Scenario.digits(num_devices=10, num_rounds=6)


def test_wrapper__takes_as_long_as_the_sent_bytes():
    scenario = SCENARIO.replace(
        compression="qsgd:3", download_compression="qsgd:8", download_rate_bps=1e4
    )
    env = training(scenario)
    env.reset(seed=2)
    model = env.parameters
    seed = env.unwrapped.training_seed
    gain = env.unwrapped.simulator.channel_gain.copy()
    info = env.step(chosen(scenario, 4, 7))[-1]
    shapes = [tuple(p.shape) for p in env.model().parameters()]
    key = (*seed.spawn_key, 1)  # the child of which all this comes

    def stream(*what: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*key, *what)))

    download = Uploads(shapes, QSGD(8))
    broadcast = download.encoded(model, stream(0))
    uploads = Uploads(shapes, QSGD(3))
    for row, device in enumerate((4, 7)):
        update = own_update(env, download.decoded(broadcast), device, 0)
        encoded = uploads.encoded(update, stream(0, device, 1))
        np.testing.assert_array_equal(info["client_updates"][row], uploads.decoded(encoded))
        rate = 1e6 / 2 * np.log2(1 + gain[device] * scenario.p_mid[device] / 0.01)
        time = 2 * 2e7 * 144 / 1.5e9 + 8 * len(encoded) / rate + 8 * len(broadcast) / 1e4
        assert info["device_time"][device] == pytest.approx(time, rel=1e-12)
    moved = model + info["client_updates"].mean(axis=0)
    np.testing.assert_allclose(env.parameters, moved, rtol=1e-5, atol=1e-7)


class Recorded(TopK):
    """Keeps for the test the updates that it was given, to which was added what was left."""

    def __init__(self):
        super().__init__(0.1)
        object.__setattr__(self, "seen", [])

    def encode(self, update, rng):
        self.seen.append(np.concatenate([part.ravel() for part in update]))
        return super().encode(update, rng)


def test_error_feedback__adds_up_on_each_device():
    compressor = Recorded()
    env = training(SCENARIO, compression=compressor)
    env.reset(seed=0)
    left = np.zeros((10, env.task.num_parameters), dtype=np.float32)
    for cohort in ((1, 2), (1, 3), (2, 3), (1,)):
        model = env.parameters
        compressor.seen.clear()
        number = int(env.unwrapped.simulator.round_index)
        info = env.step(chosen(SCENARIO, *cohort))[-1]
        assert np.flatnonzero(info["participants"]).tolist() == list(cohort)
        for row, device in enumerate(cohort):
            whole = own_update(env, model, device, number) + left[device]
            np.testing.assert_array_equal(compressor.seen[row], whole)
            left[device] = whole - info["client_updates"][row]


def own_update(env: TrainingWrapper, model: np.ndarray, device: int, number: int) -> np.ndarray:
    """A device's update in the round `number`, from 0, as local training makes it."""
    seeds = TrainingSeeds.of(env.unwrapped.training_seed)
    part = env.task.parts[device]
    data = env.task.dataset
    rate = env.task.learning_rate(number, env.scenario.num_rounds)
    update, _ = LocalTrainer(env.task.make_model(), env.task.options).update(
        torch.from_numpy(model), data.train_inputs[part], data.train_targets[part],
        epochs=2, learning_rate=rate, rng=seeds.sample_order(number, device),
    )  # fmt: skip
    return update.numpy()


class Halves(Compressor):
    """Sixteen bits a parameter."""

    def encode(self, update, rng):
        return b"".join(part.astype("<f2").tobytes() for part in update)

    def decode(self, data, shapes):
        flat = np.frombuffer(data, "<f2").astype(np.float32)
        ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
        return [p.reshape(s) for p, s in zip(np.split(flat, ends), shapes, strict=True)]


def test_fit__counts_the_bytes_of_ones_own_compressor():
    own, none = (make_task("digits", num_devices=10, compression=c) for c in (Halves(), None))
    counted = own.fit(SCENARIO)
    assert counted == none.fit(SCENARIO).replace(compression=f"bits:{6090 * 16}")
    env = gym.make("FLEdge-v0", scenario=counted)
    TrainingWrapper(env, own)
    with pytest.raises(ValueError, match="user-defined compressor: give it to make_task"):
        TrainingWrapper(env, none)
    with pytest.raises(ValueError, match="is 'none' and must be 'bits:97440'"):
        TrainingWrapper(gym.make("FLEdge-v0", scenario=SCENARIO), own)


class Broken(Halves):
    def __init__(self, fault):
        self.fault = fault

    def encode(self, update, rng):
        if self.fault == "generator":
            return super().encode([part + np.random.rand() for part in update], rng)  # noqa: NPY002
        if self.fault == "longer":
            return 4 * super().encode(update, rng)
        if self.fault == "other size":
            return super().encode(update, rng) + b"0" * int(np.any(update[0] != 0))
        return super().encode(update, rng)

    def decode(self, data, shapes):
        update = super().decode(data[: 2 * sum(map(np.prod, shapes))], shapes)
        faults = {
            "shape": lambda part: part.ravel(),
            "dtype": lambda part: part.astype(np.float64),
            "finite": lambda part: part * np.float32(np.inf),
        }
        return [faults.get(self.fault, np.array)(part) for part in update]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("generator", "Broken gives different results for the same update and stream: it must"),
        ("longer", "writes 389760 bits, more than the uncompressed model's 194880"),
        ("other size", "must write the same number of bytes for all updates .*, got 12181"),
        ("shape", r"must decode to finite float32 of shape \(.*\), got float32 of shape"),
        ("dtype", "must decode to finite float32 of shape .*, got float64"),
        ("finite", "Broken must decode to finite float32"),
    ],
)
def test_fit__refuses_a_compressor_that_does_not_work(fault, message):
    task = make_task("digits", num_devices=10, compression=Broken(fault))
    with pytest.raises(ValueError, match=message):
        task.fit(SCENARIO)


@given(epochs=st.floats(0.01, 5), samples=st.integers(1, 300))
def test_passes__see_as_many_samples_as_the_epochs_say(epochs, samples):
    parts = passes(epochs, samples)
    assert sum(parts) == pytest.approx(max(1, epochs * samples), abs=0.5)
    assert set(parts[:-1]) <= {samples}
    assert 0 < parts[-1] <= samples
