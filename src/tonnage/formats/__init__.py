"""Files of other tools, read and written: one module per tool, which :func:`tool_formats` finds by
its ``FORMAT``.
"""
