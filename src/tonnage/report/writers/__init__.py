"""Writers of a document: terminal, Markdown and HTML."""
