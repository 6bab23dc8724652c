"""The report of a build: one HTML file that needs no network, and the same facts as JSON."""

from __future__ import annotations

from recon.report.write import BuildRecord, write_report

__all__ = ["BuildRecord", "write_report"]
