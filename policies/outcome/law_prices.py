"""Dual prices of the outcome problem for a server that does not know the gains.

The problem is that of `policies.outcome.prices`. Here the server knows the gain h of a device only
where it lasts from the device's last participation; else it knows a law.

*Without persistence.* A device n that takes part with the target share rho of the rounds may spend
``e = budget / rho`` in each. Let T_n be the least expected time at which its expected energy is e,
r_n the energy that a second more would save there, and

    m_n = 1 / (K r_n),    z_n = T_n / K + m_n e.

A cohort S with the deadline tau costs ``tau + sum over S of (m_n E_n - z_n)``. The least energies
are convex in the deadline, so that ``m_n E_n(tau) >= m_n e - (tau - T_n) / K``, and the cost is at
least ``(1 - |S| / K) tau >= 0``; it is zero for K devices with the same T_n. Where devices can
take turns in such cohorts, these prices are therefore the best, and the mean time of a round is
``sum rho_n T_n / K``.

*With persistence.* A device that is tried shows its gain, and may be taken again while this lasts:
in the mean l rounds more, ``l = P + P^2 + ...`` up to the number of participations in an episode.
At a price of energy y in time let a participation at an unknown gain cost
``c = min E[T] + y E[E]`` and one at a known gain ``c(h) = min T + y E``. Taking it again where c(h)
is below the mean cost of all its participations makes that mean the least,

    cost = min over sets A of gains of (c + l E[c(h); h in A]) / (1 + l P(h in A)).

With T_n and e for the times and energies of this mixture, y such that e is as above, and
``r_n = 1 / y``, the prices are those formulas. They are then a sensible start, not a proven
optimum: that devices can share rounds with others of the same time is less certain.
"""

from __future__ import annotations

import math

import numpy as np

from fl_edge_env import Scenario, lyapunov
from fl_edge_env.channels import GainLaw
from fl_edge_env.typing import BoolArray, FloatArray
from policies.outcome.prices import DualPrices
from policies.state import check_rounds, for_kernel


def law_prices(
    law: GainLaw,
    scenario: Scenario,
    *,
    persistence: float = 0.0,
    most: FloatArray | float = math.inf,
    only: BoolArray | None = None,
) -> DualPrices:
    """Dual prices where gains are known only as far as they last from a participation.

    Parameters
    ----------
    law : GainLaw
        Of the gains of a device of which nothing recent is known, shape (N, J) or (B, N, J).
    scenario : Scenario
        The system.
    persistence : float
        Probability that a gain stays from one round to the next, in [0, 1).
    most : float or ndarray, shape (N,)
        Largest price of energy [s/J], which a device has that would have to crawl to keep within
        its budget, or cannot.
    only : ndarray of bool, shape (N,) or (B, N), optional
        The devices of interest; the prices of the others are NaN.

    Returns
    -------
    DualPrices
        Of shape (N,) or (B, N). A device that cannot spend its budget has an energy price of
        zero.
    """
    from policies.outcome import law_kernel  # here, because numba takes half a second to import

    rounds, shape = check_rounds(law, np.zeros(law.gain.shape[:-1]), scenario)
    wanted = np.ones(shape, dtype=np.bool_) if only is None else only
    target = lyapunov.participation_target(scenario)
    allowed = scenario.energy_budget_j / target
    participations = scenario.num_rounds * target
    again = persistence * (1.0 - persistence**participations) / (1.0 - persistence)
    least = np.broadcast_to(1.0 / (scenario.cohort_size * np.asarray(most)), allowed.shape)
    time, rate = np.full((2, *rounds.queue.shape), np.nan)
    mask = np.atleast_2d(for_kernel(wanted))
    rounds.run(law_kernel.price_rows, mask, *map(for_kernel, (allowed, again, least)), time, rate)
    m = 1.0 / (scenario.cohort_size * rate)
    z = time / scenario.cohort_size + m * allowed
    return DualPrices(m.reshape(shape), z.reshape(shape))
