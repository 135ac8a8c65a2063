"""Reading the metrics stream from the brokers themselves, by questions and numbered answers.

The agents' spools are the log; the live push only says how far it has come. ``heads`` listens to
that; ``replay`` decides which batches come next, and fetches exactly these.
"""
