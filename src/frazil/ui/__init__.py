"""The homes of the explorer, a page that shows a repository: a server, a static export, and a widget.

``Explorer`` is the widget, for notebooks. The other homes are the command ``frazil ui``.

The page reads the files of the repository itself. So a home only has to give it bytes, and knows as little of
the format as the names of files.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="widget")  # the stub has them
