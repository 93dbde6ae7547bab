"""The command line: its verbs, a file for each subject, without logic."""
