"""Reports: what an analysis found, saved, loaded, judged again, and shown as a page."""

from icl_interp.report.report import FORMATS, SCHEMA, Report

__all__ = ["FORMATS", "SCHEMA", "Report"]
