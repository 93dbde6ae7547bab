"""The machine that engines are started on: its GPUs, their driver and how they are joined, detected or described in a file."""
