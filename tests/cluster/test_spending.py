"""One ceiling of money for a whole run: what is paid counts, and then nothing is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trial import LIGHT, Witness, outcomes, painter, plan_of, run, sample, writer

from cluster.records import RecordRow
from cluster.usage import Spending
from cluster.worker import Receipt
from generators.base import Failure, Fault, StageSpec

PRICES = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
REMOTE = replace(LIGHT, endpoint="http://127.0.0.1:9/v1", batch_size=1)


def paid_writer(log: Path | None = None, cost: float | None = 1.0) -> StageSpec:
    options = {**PRICES, "cost": cost} | ({} if log is None else {"log": str(log)})
    return replace(writer(REMOTE), options=options)


def receipt(**usage: float) -> Receipt:
    row = RecordRow("done", None, None, 0, (), "", 0)
    return Receipt("done", rows={"key": row}, usage=usage)


def test_all_stages_count_towards_one_ceiling() -> None:
    spending = Spending(3.0)
    spending.count_receipt(paid_writer(), receipt(cost=2.0))
    spending.count_receipt(painter(), receipt(images=1))
    assert spending.exhausted() is None
    spending.count_receipt(painter(1), receipt(cost=1.0))
    assert spending.exhausted() == ("3 spent in this run; engine.max_cost is 3")
    assert spending.is_paid(paid_writer())
    assert spending.is_paid(painter(1))
    assert not spending.is_paid(painter())


def test_no_ceiling_is_kept_where_a_server_does_not_say_what_was_used() -> None:
    spending = Spending(3.0)
    spending.count_receipt(paid_writer(), Receipt("done"))  # a request that failed
    assert spending.exhausted() is None
    spending.count_receipt(paid_writer(), receipt())
    assert "the server of writer reports no token usage" in str(spending.exhausted())
    without = Spending(None)
    without.count_receipt(paid_writer(), receipt())
    assert without.exhausted() is None


@pytest.mark.usefixtures("worker_threads")
def test_nothing_is_sent_once_the_budget_is_reached_until_it_is_raised(
    tmp_path: Path,
) -> None:
    log, root = tmp_path / "log", tmp_path / "run"
    plan = plan_of([sample(i) for i in range(8)], write=paid_writer(log), paint=[painter()])
    witness = Witness()
    result = run(plan, root, witness, max_cost=3.0)

    assert (result.counts["done"], result.counts["failed"]) == (3, 5)
    failures = [o for o in outcomes(plan, root).values() if isinstance(o, Failure)]
    assert {failure.fault for failure in failures} == {Fault.BUDGET}
    assert {failure.reason for failure in failures} == {
        "3 spent in this run; engine.max_cost is 3"
    }
    assert log.read_text().count("call") == 3
    assert next(s for s in witness.stages if s.name == "writer").usage["cost"] == 3.0

    again = run(plan, root, max_cost=3.0)
    assert again.counts["done"] == 3
    assert log.read_text().count("call") == 3, "what was paid before counts"

    assert run(plan, root, max_cost=20.0).counts["done"] == 8
    assert log.read_text().count("call") == 8
