"""What every daemon of ours shares as a process: clocks, timers, its HTTP page, systemd."""
