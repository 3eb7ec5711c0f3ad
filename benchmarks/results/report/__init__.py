"""A static page that shows what every system answered and how it was judged."""

from plait.benchmarks.results.report.page import write_page_alone, write_report

__all__ = ["write_page_alone", "write_report"]
