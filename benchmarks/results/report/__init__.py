"""A static page that shows what every system answered and how it was judged."""

from benchmarks.results.report.page import ReportSettings, write_report

__all__ = ["ReportSettings", "write_report"]
