"""Decide which runs to measure (plans), and make them (campaigns); import the files of this package.

In: NFs, a machine, a testbed. Out: an `ExperimentPlan` of `Colocation`s, and the `ProfileDataset` of its runs. Begin at
`plans/plan`; `campaign/run` makes and stores the runs, `adaptive/` chooses each by those before.
"""
