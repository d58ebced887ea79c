"""Repair: steps that bring lost and damaged files back, where no guess is needed."""
