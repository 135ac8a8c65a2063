"""What verbs share: settings as options; outcomes as lines, JSON and exit codes."""
