"""The options by which commands name a system and a comparison."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    MarkovChannel,
    RateTraceChannel,
    Scenario,
    TraceChannel,
    UplinkChannel,
    with_phones,
    with_proportional_work,
    with_tiers,
)
from fl_edge_env.channels import ChannelModel
from fl_edge_env.checks import integer_at_least, one_of
from fl_edge_env.compression import names_own
from fl_edge_env.scenario import toml
from policies.benchmark.options import PaperOptions
from train_fl.options import TrainingOptions


@dataclass(frozen=True)
class ScenarioOptions:
    """The options by which a command names its system.

    A field of `Scenario` is an option by a line here: its name, and its help.
    """

    scenario: str = "digits"
    """The system: digits, fashion_mnist, cifar10, femnist, cell, phones, mobile, or a TOML file."""
    channel: str | None = None
    """Channel: clip, resample, markov:P, cell, cell:P, uplinks, a trace file, or rates:FILE.
    P is the probability that a gain stays for the next round; rates are measured ones [bit/s]."""
    csi: str | None = None
    """Channel gains that the server knows when it decides.
    full: this round's; delayed: the last round's; participants: of their last participation."""
    objective: str | None = None
    """What the reward counts.
    penalty: the paper's penalty; outcome: what a user pays (actions then rank the devices)."""
    latency: str | None = None
    """What counts as latency.
    proxy: the paper's sum of q T; round_time: the mean time of the slowest device drawn."""
    availability: float | None = None
    """Probability that a device is available in a round; 1 by default."""
    upload_failure: float | None = None
    """Probability that an upload fails."""
    compression: str | None = None
    """Compression of the updates: none, qsgd:BITS a parameter or topk:SHARE of the parameters."""
    download_compression: str | None = None
    """Compression of the model that the server sends: none or qsgd:BITS."""
    download_rate_bps: float | None = None
    """Rate at which devices download the model [bit/s]; by default that of the scenario."""
    overhead_s: float | None = None
    """What a participation takes beside download, computing and upload [s]."""
    local_epochs: float | None = None
    """Local epochs, E, fractions too; by default those of the scenario."""
    work: str | None = None
    """Work of unequal devices.
    equal: the same number of epochs; proportional: by their speed, as much in all."""
    deadline_s: float | None = None
    """Time after which the server goes on without the devices that are not finished [s]."""
    tiers: str | None = None
    """Unequal devices.
    hardware: older, the scenario's own, and newer ones; phones: of measured speeds."""
    rounds: int | None = None
    """Number of rounds; by default that of the scenario."""
    num_devices: int | None = None
    """Number of devices, N; by default that of the scenario.
    They share out all its samples, where it gives one number of samples for all."""
    cohort_size: int | None = None
    """Number of devices drawn in a round, K; by default that of the scenario."""
    bandwidth_hz: float | None = None
    """Uplink bandwidth, B [Hz]."""
    noise_power_w: float | None = None
    """Noise power in B/K of the band, N0 [W]."""
    model_bits: float | None = None
    """Size of a model update, M [bit]; --upload names a network in its place."""
    num_samples: float | None = None
    """Samples of each device, D_n."""
    cycles_per_sample: float | None = None
    """CPU cycles to process one sample, c_n."""
    capacitance: float | None = None
    """Capacitance coefficient, alpha_n [W/Hz^3]."""
    f_min: float | None = None
    """Least CPU frequency [Hz]."""
    f_max: float | None = None
    """Largest CPU frequency [Hz]."""
    p_min: float | None = None
    """Least transmission power [W]."""
    p_max: float | None = None
    """Largest transmission power [W]."""
    initial_queue: float | None = None
    """Energy queue of each device at the start of an episode [J]."""
    energy_budget_j: float | None = None
    """Energy budget of each device in a round [J]; by default that of the scenario."""
    mu: float | None = None
    """Scale factor of lambda, the weight of the sampling error; by default that of the scenario."""
    nu: float | None = None
    """Scale factor of V, the weight of the penalty; by default that of the scenario."""

    def make_scenario(self) -> Scenario:
        """The preset or the file with the options that were given.

        Raises
        ------
        ValueError
            If one of them is wrong.
        """
        given = self._given()
        if self.channel is not None:
            given |= {"channel": make_channel(self.channel)}
        if self.compression is not None and names_own(self.compression):
            del given["compression"]  # its size is known when it is loaded for training
        if self.scenario.endswith(".toml"):
            devices = given.pop("num_devices", None)
            scenario = Scenario.load(self.scenario, num_devices=devices).replace(**given)
        else:
            scenario = Scenario.preset(self.scenario, **given)
        if self.tiers is not None:
            kinds = {"hardware": with_tiers, "phones": with_phones}
            scenario = kinds[one_of("tiers", self.tiers, list(kinds))](scenario)
        if self.work is not None:
            one_of("work", self.work, ("equal", "proportional"))
            if self.work == "proportional":
                scenario = with_proportional_work(scenario)
        return scenario

    def _given(self) -> dict[str, Any]:
        """The fields of the system that have options which were given, without the channel."""
        other = ("scenario", "channel", "rounds", "tiers", "work")
        names = [field.name for field in fields(ScenarioOptions) if field.name not in other]
        values = {name: getattr(self, name) for name in names} | {"num_rounds": self.rounds}
        return {name: value for name, value in values.items() if value is not None}

    def fields_given(self) -> set[str]:
        """Names of the fields that the options or the TOML file give, and no preset."""
        in_file = toml.read(Path(self.scenario)) if self.scenario.endswith(".toml") else {}
        return {*in_file, *self._given()}


def make_channel(text: str) -> ChannelModel:
    """The channel that ``--channel`` describes; `ValueError` if it is none."""
    name, _, parameter = text.partition(":")
    if text == "clip":
        return ExponentialChannel()
    if text == "resample":
        return ExponentialChannel(filter="resample")
    if text == "cell":
        return CellChannel()
    if text == "uplinks":
        return UplinkChannel()
    if name in ("cell", "markov"):
        try:
            persistence = float(parameter)
            if name == "cell":
                return CellChannel(persistence=persistence)
            return MarkovChannel.correlated(persistence)
        except ValueError as error:
            raise ValueError(f"channel {name}:P needs a probability P: {error}") from None
    if name == "rates" and parameter:
        return RateTraceChannel(parameter)
    if Path(text).suffix in (".csv", ".parquet"):
        return TraceChannel(text)
    raise ValueError(
        "channel must be clip, resample, markov:P, cell, cell:P, uplinks, rates:FILE, or a .csv "
        f"or .parquet file, got {text!r}"
    )


@dataclass(frozen=True)
class CompareOptions(PaperOptions, TrainingOptions, ScenarioOptions):
    """Compare policies for federated learning at the wireless edge.

    All policies meet the same channel under the same seed. The first policy is compared with the
    others.
    """

    policies: tuple[str, ...] = (
        "lroa",
        "uni-d",
        "uni-s",
        "divfl",
        "best-channel:static",
        "opportunistic",
    )
    """Names such as lroa, folders of trained agents, or classes of your own as my_file.py:MyPolicy.
    best-channel:static also names the resources of a scheduler, and uni-d@qsgd:4 another
    compression of its updates."""
    train: bool = True
    """Train real models in every round. Only the data of digits come with the libraries."""
    target_accuracy: float = 0.9
    """Test accuracy; the table shows when it is first reached."""
    seeds: int | None = None
    """Number of seeds; 5 with training, 30 without by default."""
    first_seed: int = 0
    """The seeds are first_seed, first_seed + 1, and so on."""
    fit_scenario: bool = False
    """Let the size of the model and the numbers of samples be those of the network and the data,
    also where --scenario is a file, or another option, that gives others. For a preset they are."""
    save_models: bool = False
    """Write the last global model of each run to <out>/models, as a state dict of PyTorch."""

    def seed_range(self) -> range:
        """The seeds; `ValueError` if there are none."""
        number = self.seeds if self.seeds is not None else (5 if self.train else 30)
        integer_at_least(1, "seeds", number)
        return range(self.first_seed, self.first_seed + number)

    def training_options(self) -> TrainingOptions:
        """Those of the training alone."""
        names = [field.name for field in fields(TrainingOptions)]
        return TrainingOptions(**{name: getattr(self, name) for name in names})
