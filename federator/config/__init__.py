"""The daemon's settings: the only package that reads the environment or a configuration file.

Precedence: environment, then the TOML file, then the defaults. ``reading.load`` either returns
settings that can be used as they are or raises one ``ConfigError`` that says what to mend, and
where.
"""
