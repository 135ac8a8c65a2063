"""Controllers, takeovers and clients that follow the guide, in the simulated world.

Source: docs/protocol.md section 15.
"""
