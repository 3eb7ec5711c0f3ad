"""Thresholds for programs: `--gate 'text.equal>=0.99'`, exit status 1 where not met."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from generators.errors import UsageError
from generators.names import unknown

_FORM = re.compile(
    r"(?:(?P<label>.+?):\s+)?(?P<measure>[^\s<>=]+)\s*(?P<sign>>=|<=|==|>|<)\s*"
    r"(?P<bound>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
Measured = Mapping[str, float | None]
"""Figures of one way by name; None where there is no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityGate:
    """A measure of one way, or of every way but the reference, and its bound."""

    text: str
    label: str | None
    measure: str
    sign: str
    bound: float

    @classmethod
    def parsed(
        cls, text: str, labels: Sequence[str], measures: Sequence[str]
    ) -> FidelityGate:
        """`[LABEL: ]MEASURE>=NUMBER`; UsageError names what is valid."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"gate {text!r} is not of the form [LABEL: ]MEASURE>=NUMBER with one of "
                f"{', '.join(_SIGNS)}, such as 'text.equal>=0.99'"
            )
        label, measure, sign, bound = match.group("label", "measure", "sign", "bound")
        if label is not None and label not in labels:
            raise unknown(f"way in gate {text!r}", label, labels)
        if measure not in measures:
            raise unknown(f"measure in gate {text!r}", measure, measures)
        return cls(text=text, label=label, measure=measure, sign=sign, bound=float(bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Whether one way meets one gate."""

    gate: FidelityGate
    way: str
    value: float | None
    reason: str = ""
    """Why there is no value."""

    @property
    def met(self) -> bool:
        """A gate without a value is not met."""
        if self.value is None:
            return False
        return _SIGNS[self.gate.sign](self.value, self.gate.bound)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        about = {"gate": self.gate.text, "way": self.way, "value": self.value}
        return {**about, "met": self.met, "reason": self.reason}


def gate_results(
    gates: Sequence[FidelityGate],
    measured: Mapping[str, Measured],
    problems: Mapping[str, str],
    reference: str,
) -> list[GateResult]:
    """Every gate on every way it is for.

    The reference counts where it is named, and where a way is compared with itself.
    """
    results = []
    for gate in gates:
        itself = gate.measure.startswith(REPEAT)
        every = [label for label in measured if itself or label != reference]
        for way in every if gate.label is None else [gate.label]:
            value = measured[way].get(gate.measure)
            reason = "" if value is not None else problems.get(way, "nothing to measure")
            results.append(GateResult(gate=gate, way=way, value=value, reason=reason))
    return results


REPEAT = "repeat."
"""Begins the measures of a way with itself."""
