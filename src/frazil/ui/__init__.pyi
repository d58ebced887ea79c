__all__: list[str]

from frazil.ui.widget import Explorer as Explorer
