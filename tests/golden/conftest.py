"""What makes golden files needs environments of its own, and is no test."""

collect_ignore_glob = ["make_*.py"]
