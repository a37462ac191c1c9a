"""Controllers: observations in, decisions out; who carries them out is another room."""
