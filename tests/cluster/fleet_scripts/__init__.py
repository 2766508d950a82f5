"""Scripts as users of Paddle write them, which the launchers start."""
