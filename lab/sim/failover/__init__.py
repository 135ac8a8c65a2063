"""Controllers, takeovers and clients that follow the guide, in the simulated world."""
