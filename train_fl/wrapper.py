"""Real training inside the environment's steps."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from fl_edge_env import FLEdgeEnv
from fl_edge_env.aggregation import Contributions, contributions
from fl_edge_env.checks import freeze
from fl_edge_env.core import ReadsThrough, fixed
from fl_edge_env.files import atomic_path, reason
from fl_edge_env.typing import BoolArray, Float32Array, FloatArray, IntArray
from train_fl.compression import make_compressor
from train_fl.gradient_distance import GradientDistances
from train_fl.local_sgd import LocalTrainer, samples_seen
from train_fl.models import new_model
from train_fl.modes import default_modes, repeatable
from train_fl.server import LARGER_MU, apply_contributions, norms_of
from train_fl.task import Task, TrainingSeeds
from train_fl.training_options import check_flag


class TrainingWrapper(
    ReadsThrough, gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs
):
    """Trains the cohort of each round from the global model and aggregates the updates.

    The scenario says how updates and the model that the server sends are compressed. If the
    compressor has error feedback, devices keep the residuals of their updates
    (see `train_fl.compression`). The sum of the updates, weighted as in
    `fl_edge_env.aggregation.contributions`, goes to the task's server optimiser, which by default
    adds it to the global model.

    The learning rate is halved after half and after three quarters of the rounds. The episode's
    seed determines the initial model, the order of the samples and their split over the devices,
    unless the task has one split for all episodes. Under the same seed every policy starts from the
    same model and split, and a device that takes part in a round sees its samples in the same
    order.

    The info of a step gains these entries, of the same shapes in all rounds. Arrays of shape (N,)
    are zero for devices that are not participants:

    - `participants`, bool, shape (N,): the devices whose update arrived and was not skipped. If
      there are none, the model does not change;
    - `client_updates`, float32, shape (K, d): the local models minus the received model, after
      compression: a row for each participant in ascending order, then zeros;
    - `update_norms`, shape (N,): the Euclidean norms of these updates;
    - `skipped`, bool, shape (N,): the devices whose update, update norm or reported loss was not
      finite; these updates are not used;
    - `train_loss`: the mean over the samples that participants trained on, counted in each pass;
      absent if not finite;
    - `test_loss` and `test_accuracy` of the new global model, absent if it was not evaluated;
    - `device_accuracy`, shape (N,), absent in the same rounds: the test accuracy with the classes
      weighted as in each device's training data.

    The info of a reset has the entries of an evaluation, and `participants`, all False.

    With `report_gradients` both also have `gradient_distance`, shape (N, N): the distances between
    the devices' latest gradients over all local data. After a reset they are taken at the initial
    model, and then for participants at the model that they received.

    With `report_losses` both have `local_losses` and `local_loss_rms`, shape (N,): mean and root
    mean square of a participant's sample losses under the model that it received. For this a device
    passes over its data once before it trains.

    With `report_update_norms` all devices are participants in the info of a reset, and report the
    `update_norms` of the first round. For this every device trains once.

    The simulated times and energies do not include this extra work, as in the papers. Training
    gives the same numbers in all of torch's modes, such as `torch.inference_mode`.

    Parameters
    ----------
    env : gymnasium.Env
        ``gym.make("FLEdge-v0")`` with a scenario that fits the task.
    task : Task
        Data, split, network and training settings.
    report_gradients, report_losses, report_update_norms : bool
        Add `gradient_distance`, `local_losses`, or after a reset `update_norms` to the info, for
        policies with `uses_gradients`, `uses_losses` or `uses_update_norms`.
    **options
        `eval_every`, `on_non_finite`, `device` and `threads` override the task's options; see
        `train_fl.training_options.TrainingOptions`. An update that is not finite ends training
        with an error, or with ``on_non_finite="skip"`` is skipped with a warning.

    Attributes
    ----------
    task : Task
        The task; after a reset, with the episode's split.

    Raises
    ------
    ValueError
        If `env` is not an FLEdge environment or already trains, `task` is not a `Task` or does not
        fit the scenario, or an option is wrong.
    """

    task: Task = fixed("task")

    def __init__(
        self,
        env: gym.Env[Any, Any],
        task: Task,
        *,
        report_gradients: bool = False,
        report_losses: bool = False,
        report_update_norms: bool = False,
        **options: Any,
    ) -> None:
        reports = {
            "report_gradients": report_gradients,
            "report_losses": report_losses,
            "report_update_norms": report_update_norms,
        }
        gym.utils.RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, task=task, **reports, **options
        )
        gym.Wrapper.__init__(self, env)
        self._base = _base_env(env)
        if not isinstance(task, Task):
            raise ValueError(
                f"task must be a Task, got {task!r}: use make_task, for example "
                f'make_task("digits", num_devices={self.scenario.num_devices})'
            )
        for name, value in reports.items():
            check_flag(name, value)
        task.check_fit(self.scenario)
        self._task = self._base_task = task
        self._uploads = task.uploads(self.scenario)
        self._broadcast = self._uploads._replace(
            compressor=make_compressor(self.scenario.download_compression)
        )
        self._options = task.options.for_run(**options)
        self._report_losses = report_losses
        self._report_update_norms = report_update_norms
        self._device = _check_device(self._options.device)
        with default_modes():
            self._distances = (
                GradientDistances(self.scenario.num_devices, task.num_parameters, self._device)
                if report_gradients
                else None
            )
            self._take_data()

    def _take_data(self) -> None:
        """Move the test samples and each device's samples to torch's device."""
        dataset = self.task.dataset
        device = self._device
        self._test = dataset.test_inputs.to(device), dataset.test_targets.to(device)
        self._data = [
            (dataset.train_inputs[part].to(device), dataset.train_targets[part].to(device))
            for part in self.task.parts
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the samples, which come from the task."""
        return {name: v for name, v in vars(self).items() if name not in ("_test", "_data")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._take_data()

    @property
    def parameters(self) -> Float32Array:
        """A flat copy of the global model, shape (d,); `ResetNeeded` before the first reset."""
        return _to_numpy(self._global_model())

    def _global_model(self) -> Tensor:
        if not hasattr(self, "_parameters"):
            raise gym.error.ResetNeeded("there is no global model yet: call reset() first")
        return self._parameters

    @default_modes()
    def model(self) -> nn.Module:
        """A copy of the global model as a network, which later rounds do not change."""
        parameters = self._global_model().cpu().clone()
        network = new_model(self.task.make_model)
        vector_to_parameters(parameters, network.parameters())
        return network

    def save_model(self, path: Path) -> None:
        """Save the global model's state dict, for ``load_state_dict(torch.load(path))``.

        Raises `OSError` if it cannot be written, as on a full disk, and leaves no partial file.
        """
        # Clones, as the parameters are views: torch would save the whole vector with each.
        state = {name: value.clone() for name, value in self.model().state_dict().items()}
        content = io.BytesIO()  # torch does not say why it cannot write a file
        torch.save(state, content)
        with atomic_path(path) as temporary:
            temporary.write_bytes(content.getbuffer())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode with a new global model; see `FLEdgeEnv.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        with repeatable(self._device, self._options.threads):
            info |= self._begin()
        freeze(info.values())
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one round and train its cohort; see `FLEdgeEnv.step`.

        Raises
        ------
        FloatingPointError
            If a device's update is not finite, unless such updates are skipped, or the new global
            model is not finite.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        decision = self._base.last_decision
        assert decision is not None
        with repeatable(self._device, self._options.threads):
            info |= self._round(contributions(decision, info, self.scenario), last=truncated)
        freeze(info.values())
        return observation, float(reward), terminated, truncated, info

    def _begin(self) -> dict[str, Any]:
        """Start training; return the training entries of a reset's info."""
        self._seeds = TrainingSeeds.of(self._base.training_seed)
        if self._base_task.split is not None:
            self._task = self._base_task.episode(self._seeds.split)
            self._take_data()
        model = self.task.initial_model(self._seeds.model).to(self._device)
        self._trainer = LocalTrainer(model, self._options)
        self._parameters = self._trainer.initial_parameters()
        self._kept: dict[str, Tensor] = {}
        # Residuals of each device's updates, for error feedback; empty without it.
        devices = self.scenario.num_devices if self._uploads.remembers else 0
        self._left = np.zeros((devices, len(self._parameters)), dtype=np.float32)
        everyone = np.arange(self.scenario.num_devices)
        reporting = everyone if self._report_update_norms else everyone[:0]
        info = self._evaluate() | self._gradients(everyone, self._parameters)
        reports = self._losses(reporting, self._parameters)
        if self._report_update_norms:
            # Of the first round, before compression; one by one, to save memory.
            updates = (self._train(int(device), 0, self._parameters)[0] for device in everyone)
            norms = [norms_of(update[None])[0] for update in updates]
            reports["update_norms"] = np.array(norms, dtype=np.float64)
        skipped = self._skip_non_finite(reports, 1)
        return info | reports | {"participants": np.isin(everyone, reporting) & ~skipped}

    def _round(self, arriving: Contributions, *, last: bool) -> dict[str, Any]:
        """Train the devices whose upload arrives; return the training entries of a step's info."""
        trained = arriving.participants
        number = int(self._base.simulator.round_index)
        received = self._received(number)
        info = self._gradients(trained, received)
        reports = self._losses(trained, received)
        padded, losses = self._train_cohort(trained, number, received)
        client_updates = padded[: len(trained)]
        reports["update_norms"] = np.zeros(self.scenario.num_devices)
        reports["update_norms"][trained] = norms_of(client_updates)
        skipped = self._skip_non_finite(reports, number)
        participants = trained[~skipped[trained]]
        if skipped.any():
            kept = client_updates[torch.from_numpy(~skipped[trained])]
            client_updates = padded.zero_()[: len(kept)].copy_(kept)
        server = self.task.server
        balance = server.balance(self.scenario.local_epochs, self.task.num_samples)
        weights = (arriving.weight * balance)[participants]
        apply_contributions(self._parameters, client_updates, weights, server, self._kept, number)
        if last or number % self._options.eval_every == 0:
            info |= self._evaluate()
        finite = np.isfinite(losses)  # without the devices whose training diverged
        if finite.any():
            seen = samples_seen(self.scenario.local_epochs, self.task.num_samples)[trained]
            info["train_loss"] = np.average(losses[finite], weights=seen[finite])
        return (
            info
            | reports
            | {
                "participants": arriving.arrived & ~skipped,
                "skipped": skipped,
                "client_updates": _to_numpy(padded),
            }
        )

    def _train_cohort(
        self, devices: IntArray, number: int, received: Tensor
    ) -> tuple[Tensor, FloatArray]:
        """The updates that the server receives, and the mean losses of the devices.

        A row for each device, then zeros, shape (K, d).
        """
        updates = self._parameters.new_zeros((self.scenario.cohort_size, len(self._parameters)))
        losses = np.empty(len(devices))
        uploads = self._uploads
        for index, device in enumerate(devices):
            updates[index], losses[index] = self._train(device, number - 1, received)
            if uploads.compressor is None or not torch.isfinite(updates[index]).all():
                continue
            rng = self._seeds.upload(number - 1, device)
            left = self._left[device] if uploads.remembers else None
            data, left = uploads.sent(updates[index].cpu().numpy(), left, rng)
            if left is not None:
                self._left[device] = left
            updates[index] = torch.from_numpy(uploads.decoded(data))
        return updates, losses

    def _train(self, device: int, completed_rounds: int, received: Tensor) -> tuple[Tensor, float]:
        return self._trainer.update(
            received,
            *self._data[device],
            epochs=float(self.scenario.local_epochs[device]),
            learning_rate=self.task.learning_rate(completed_rounds, self.scenario.num_rounds),
            rng=self._seeds.sample_order(completed_rounds, device),
            augment=self.task.dataset.augment,
        )

    def _received(self, number: int) -> Tensor:
        """The global model as the devices receive it in a round, shape (d,)."""
        if self._broadcast.compressor is None:
            return self._parameters
        rng = self._seeds.broadcast(number - 1)
        sent = self._broadcast.encoded(_to_numpy(self._parameters), rng)
        return torch.from_numpy(self._broadcast.decoded(sent)).to(self._device)

    def _skip_non_finite(self, reports: dict[str, FloatArray], number: int) -> BoolArray:
        """Mask of devices with a report that is not finite, (N,); sets their reports to zero."""
        skipped = np.zeros(self.scenario.num_devices, dtype=np.bool_)
        for values in reports.values():
            skipped |= ~np.isfinite(values)
        if skipped.any():
            message = (
                f"the update, update norm or loss of device "
                f"{', '.join(map(str, np.flatnonzero(skipped)))} in round {number} is not finite: "
                f"choose a learning rate below {self._options.learning_rate}, or {LARGER_MU}"
            )
            if self._options.on_non_finite == "raise":
                raise FloatingPointError(message)
            warnings.warn(message, RuntimeWarning, stacklevel=4)
            for values in reports.values():
                values[skipped] = 0.0
        return skipped

    def _evaluate(self) -> dict[str, Any]:
        """Evaluate on the test set; return the info entries."""
        inputs, targets = self._test
        loss, outputs = self._trainer.evaluate(self._parameters, inputs, targets)
        classes = self.task.dataset.num_classes
        tested, right_of_class = (
            np.bincount(labels.cpu().numpy(), minlength=classes)
            for labels in (targets, targets[outputs.argmax(dim=1) == targets])
        )
        return {
            "test_loss": np.float64(loss),
            "test_accuracy": right_of_class.sum() / len(targets),
            "device_accuracy": device_accuracy(self.task.label_histogram, right_of_class, tested),
        }

    def _losses(self, devices: IntArray, received: Tensor) -> dict[str, Any]:
        """The info entries of `report_losses`."""
        if not self._report_losses:
            return {}
        mean, rms = np.zeros((2, self.scenario.num_devices))
        for device in devices:
            mean[device], rms[device] = self._trainer.losses(received, *self._data[device])
        return {"local_losses": mean, "local_loss_rms": rms}

    def _gradients(self, devices: IntArray, received: Tensor) -> dict[str, Any]:
        """The info entries of `report_gradients`."""
        if self._distances is None:
            return {}
        gradients = (self._trainer.gradient(received, *self._data[n]) for n in devices)
        return {"gradient_distance": self._distances.update(devices, gradients)}


def _base_env(env: gym.Env[Any, Any]) -> FLEdgeEnv:
    """The environment inside the wrappers; `ValueError` if it is none or already trains."""
    base = env.unwrapped
    if not isinstance(base, FLEdgeEnv):
        raise ValueError(f"env must be an FLEdge environment, got {base!r}")
    if env.has_wrapper_attr("task"):
        raise ValueError(f"env must not train already, got {env}: wrap its unwrapped environment")
    return base


def device_accuracy(
    label_histogram: FloatArray, right_of_class: IntArray, tested: IntArray
) -> FloatArray:
    """Test accuracy with the classes weighted as in each device's data, shape (N,).

    `label_histogram`, shape (N, C), has the devices' class shares; `right_of_class` and `tested`,
    shape (C,), count correct and all test samples. NaN if no class of a device is tested.
    """
    known = tested > 0
    mix = label_histogram[:, known]
    total = mix.sum(axis=1)
    right = mix @ (right_of_class[known] / tested[known])
    return np.divide(right, total, out=np.full(len(mix), math.nan), where=total > 0)


def _check_device(device: str | torch.device) -> torch.device:
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except Exception as error:  # torch raises many kinds
        raise ValueError(
            f"device must be available to torch here, such as 'cpu', got {str(device)!r}: "
            f"{reason(error)}"
        ) from None


def _to_numpy(values: Tensor) -> Float32Array:
    return values.detach().cpu().numpy().copy()
