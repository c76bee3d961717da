"""Lessons that replace one stage of the compiler at a time: imported as `minicc.lessons`."""
