"""Where records come from: folders of segment files, and the brokers themselves."""
