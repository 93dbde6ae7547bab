"""Step times that somebody else measured or predicted, in the place of the fitted step model."""
