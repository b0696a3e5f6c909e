"""Short searches for prices: any prices give valid bounds, and the commands only print them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.benchmark import bound
from policies.outcome import prices


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound, "_PRICE_ROUNDS", 50)
        patch.setattr(prices, "_STAGES", (20,))
        prices._ascend.cache_clear()
        yield
    prices._ascend.cache_clear()
