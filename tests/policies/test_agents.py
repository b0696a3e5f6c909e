"""Agents of other libraries as policies: what they decide in the environment they know."""

from __future__ import annotations

import base64
import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, RescaleAction
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import VecNormalize

from fl_edge_env import Scenario
from fl_edge_env.allocation import decode_action
from fl_edge_env.flat import learning_seed
from policies import check_policy, evaluate, make_policy
from policies.learning.vec_env import BatchVecEnv
from tests.support import EXAMPLES

SMALL = Scenario.digits(num_devices=5, num_rounds=12)
PARTICIPANTS = SMALL.replace(objective="outcome", csi="participants")


def flat(scenario: Scenario, **keywords) -> gym.Env:
    return gym.make("FLEdgeFlat-v0", scenario=scenario, **keywords)


class Plain:
    """An object with predict alone: what it sees decides, row by row."""

    size = 3 * 5

    def predict(self, observation):
        return np.resize(np.sin(100.0 * observation), self.size)


@pytest.mark.parametrize("scenario", [SMALL, PARTICIPANTS])
@pytest.mark.parametrize("name", ["FLEdgeFlat-v0", "FLEdgeRule-v0"])
def test_predict__decides_as_in_the_environment(name, scenario):
    model = Plain()
    env = gym.make(name, scenario=scenario)
    if name == "FLEdgeRule-v0":  # learned in a larger and slower system
        fields = {"objective": scenario.objective, "csi": scenario.csi}
        vars(model).update(vars(Trained(gym.make(name, scenario="cifar10", **fields))))
        model.size = model.action_space.shape
    policy = make_policy("predict", scenario, model=model)
    check_policy(policy)
    assert policy.name == "Plain"
    plain = gym.make("FLEdge-v0", scenario=scenario)
    seen, _ = env.reset(seed=3)
    raw, _ = plain.reset(seed=learning_seed(3))
    for _ in range(scenario.num_rounds):
        seen, *_, info = env.step(model.predict(seen))
        raw, *_, expected = plain.step(policy.decide(raw))
        assert info["elapsed_time"] == pytest.approx(expected["elapsed_time"])


@pytest.mark.parametrize(("kind", "options"), [(PPO, {"n_steps": 16, "batch_size": 16}), (SAC, {})])
def test_predict__takes_agents_of_stable_baselines(tmp_path, kind, options):
    model = kind(
        "MlpPolicy", flat(SMALL), seed=0, policy_kwargs={"net_arch": [8]}, **options
    ).learn(20)
    file = str(tmp_path / "mine.zip")
    model.save(file)
    found = []
    for name, given in (("predict", {"model": model}), (file, {})):
        policy = make_policy(name, SMALL, **given)
        check_policy(policy)
        found.append(evaluate([policy], SMALL, [3], gaps=False)["total_time"].item())
    np.testing.assert_allclose(found, found[0], rtol=1e-6)
    assert policy.name == "mine"


class Trained:
    """An agent with the spaces of its training, which gives the zero action."""

    def __init__(self, env):
        self.observation_space = env.observation_space
        self.action_space = env.action_space

    def predict(self, observation):
        return np.zeros((*observation.shape[:-1], *self.action_space.shape))


TWICE = np.full(15, -2, np.float32), np.full(15, 2, np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flat(SMALL.replace(num_devices=4)), r"of \(20,\) and \(12,\), but here .*\(25,\)"),
        (lambda: flat(SMALL, csi="participants"), r"num_devices, csi and objective"),
        (
            lambda: gym.make("FLEdgeRule-v0", csi="participants"),
            r"\(27,\), but .* in FLEdgeRule-v0",
        ),
        (lambda: gym.make("FLEdge-v0", scenario=SMALL), r"of Dict.*: train it on one of these"),
        (lambda: flat(SMALL, noise_power_w=0.02), "other bounds .* same shapes"),
        (lambda: RescaleAction(flat(SMALL), *TWICE), "let predict scale"),
        (lambda: NormalizeObservation(flat(SMALL)), "let predict scale"),
        (lambda: NormalizeObservation(gym.make("FLEdgeRule-v0")), "other bounds"),
    ],
)
def test_predict__refuses_agents_of_other_systems(make, message):
    with pytest.raises(ValueError, match=message):
        make_policy("predict", SMALL, model=Trained(make()))


@pytest.mark.parametrize("scenario", [SMALL, PARTICIPANTS])
def test_predict__takes_agents_of_other_episode_lengths(scenario):
    longer = scenario.replace(num_rounds=700)
    for env in (flat(longer), BatchVecEnv(2, longer)):
        policy = make_policy("predict", scenario, model=Trained(env))
        check_policy(policy)


def test_predict__of_rows_decides_for_each_device_from_its_own(tmp_path):
    rows = BatchVecEnv(2, SMALL)
    model = PPO("MlpPolicy", rows, n_steps=8, batch_size=20, seed=0).learn(80)
    model.save(tmp_path / "rows.zip")
    policy = make_policy(str(tmp_path / "rows.zip"), SMALL)
    check_policy(policy)
    envs = BatchVecEnv(1, SMALL)
    envs.seed(5)
    seen = envs.reset()
    decision = policy.decide(envs.systems.simulator.observe())
    actions = model.predict(seen, deterministic=True)[0]
    np.testing.assert_allclose(decision.f[0], decode_action(actions.T, SMALL, 2.0).f, rtol=1e-6)


def test_predict__gives_a_recurrent_agent_its_state_back():
    class Counts:
        def predict(self, _, state=None, episode_start=None, **options):
            assert options == {"deterministic": True}
            assert episode_start.tolist() == [state is None]
            number = 0 if state is None else state
            return np.full(15, number / 100), number + 1

    policy = make_policy("predict", SMALL, model=Counts())
    check_policy(policy)  # a reset forgets the state, and systems have their own
    observation = {"channel_gain": np.full(5, 0.1), "queue": np.zeros(5)}
    policy.reset(0)
    f = [policy.decide(observation).f[0] for _ in range(3)]
    assert f[0] == pytest.approx(SMALL.f_mid[0])
    assert f[0] < f[1] < f[2]
    batch = policy.decide({name: np.tile(seen, (3, 1)) for name, seen in observation.items()})
    np.testing.assert_allclose(batch.f, [SMALL.f_mid] * 3)  # another batch without a reset


def test_predict__refuses_an_agent_behind_vec_normalize():
    envs = VecNormalize(BatchVecEnv(1, SMALL))
    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=16)
    with pytest.raises(ValueError, match="observations that VecNormalize scales"):
        make_policy("predict", SMALL, model=model)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("predict", {}, "predict needs the option model"),
        ("predict", {"model": Plain}, "must be an agent with predict.*, got <class"),
        ("absent.zip", {}, "cannot use the agent 'absent.zip': .*No such file"),
        ("{folder}", {}, "cannot use the agent .*: it is not a regular file"),
        ("{text}", {}, "cannot use the agent .*text.zip': it is damaged, or"),
        ("{other}", {}, "other.zip': .* not written by Stable-Baselines3"),
        ("{newer}", {}, "newer.zip': No module named 'numpy9'$"),
        ("predict", {"model": Plain(), "softmax_scale": 0}, "softmax_scale must be positive"),
    ],
)
def test_predict__names_what_is_no_agent(tmp_path, monkeypatch, name, options, message):
    monkeypatch.chdir(tmp_path)
    paths = {each: tmp_path / f"{each}.zip" for each in ("folder", "text", "other", "newer")}
    paths["folder"].mkdir()
    paths["text"].write_text("agent")
    with zipfile.ZipFile(paths["other"], "w") as file:
        file.writestr("readme", "nothing")
    with zipfile.ZipFile(paths["newer"], "w") as file:
        kept = {":serialized:": base64.b64encode(b"cnumpy9\nfloat9\n.").decode()}
        file.writestr("data", json.dumps({"policy_class": kept}))
    with pytest.raises(ValueError, match=message):
        make_policy(name.format(**paths), SMALL, **options)


@pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 cannot read files of NumPy 2")
def test_predict__says_that_a_file_is_damaged(tmp_path):
    whole = (EXAMPLES / "agents/cmdp.zip").read_bytes()
    for place in range(0, 20_000, 997):
        for content in (whole[:place], whole[:place] + b"??" + whole[place + 2 :]):
            (tmp_path / "agent.zip").write_bytes(content)
            with pytest.raises(ValueError, match=r"agent.zip': it is damaged, or was not written"):
                make_policy(str(tmp_path / "agent.zip"), SMALL)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(10), r"action of Gives must .*\(15,\), the freq.*, got shape \(10,\)"),
        (np.full(15, np.nan), "numbers in \\[-1, 1\\], got NaN"),
    ],
)
def test_predict__names_what_is_no_action(action, message):
    class Gives:
        def predict(self, _):
            return action

    with pytest.raises(ValueError, match=message):
        check_policy(make_policy("predict", SMALL, model=Gives()))
