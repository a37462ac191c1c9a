"""Draw figures and make reports.

In: predictions, evaluations, placements, datasets. Out: matplotlib axes, or one HTML file without links to elsewhere.
Begin at `html`; each kind of result has a file of figures.
"""
