"""Models that ship with minicc. They count as user code: errors and pictures point at their lines."""
