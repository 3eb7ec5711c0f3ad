"""Agreement of judges with people's annotations: reading, matching, reporting.

content = agreement_report(Path("runs/x"), Path("human.csv"))      # plain JSON
for table in tables(content): ...
"""

from __future__ import annotations

from benchmarks.studies.agreement.comparison import AgreementSettings
from benchmarks.studies.agreement.report import agreement_report, tables

__all__ = ["AgreementSettings", "agreement_report", "tables"]
