"""SettingsRepr: objects that are shown by their settings."""

from __future__ import annotations


class SettingsRepr:
    """Shows an object as a call with its settings: ``NormalInitializer(loc=0.0, scale=1.0, seed=0)``."""

    def __repr__(self) -> str:
        settings = [
            f"{name.removeprefix('_')}={value!r}"
            for name, value in vars(self).items()
            if value is not None
        ]
        return f"{type(self).__name__}({', '.join(settings)})"
