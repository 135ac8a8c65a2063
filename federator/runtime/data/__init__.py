"""The data plane at work: publications in and out, batches on their way, copies told apart."""
