"""Lessons that replace one stage of the compiler at a time: imported as `minicc.lessons`.

A page's block says `picture(compiled.graph, "graph")` for the picture below it. Read next: course.py.
"""

from minicc.lessons.pictures import picture

__all__ = ["picture"]
