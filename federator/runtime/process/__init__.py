"""What all our daemons share as processes: clocks, timers, the HTTP page, systemd."""
