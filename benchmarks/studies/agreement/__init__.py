"""Agreement of judges with people's annotations: reading, matching, reporting.

report = agreement_report(Path("runs/x"), Path("human.csv"))
report.content              # plain JSON
report.tables               # for a terminal
"""

from __future__ import annotations

from benchmarks.studies.agreement.comparison import AgreementSettings
from benchmarks.studies.agreement.report import AgreementReport, agreement_report

__all__ = ["AgreementReport", "AgreementSettings", "agreement_report"]
