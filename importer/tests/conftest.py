"""The tiers of the tests of Frazil, also where only the tests of this folder run."""

pytest_plugins = ["tests.support.tiers"]
