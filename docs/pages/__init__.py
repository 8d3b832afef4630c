"""Generated reference pages. Each module here is one page: ``PAGE`` is its file name, ``render()`` its text."""
