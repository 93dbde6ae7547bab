"""Engines as child processes: started, waited for, restarted, and never left behind."""
