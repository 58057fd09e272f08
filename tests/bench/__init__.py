"""Measurements: each figure beside a floor that was measured in the same run."""
