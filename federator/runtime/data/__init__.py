"""The data plane at work: publications in and out, batches in progress, copies told apart."""
