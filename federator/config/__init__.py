"""The daemon's settings: the only package that reads the environment or a configuration file.

Precedence: environment, then the TOML file, then the defaults. ``reading.load`` either returns
complete, valid settings or raises ``ConfigError``: what to mend, and where.
"""
