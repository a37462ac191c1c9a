"""Trained models of network functions (NFs); import the files of this package.

In: numbers that `training` fitted, or folders of them. Out: `NFModel` (sensitivity, own pressure, server response,
intervals, applicability) in a `ModelLibrary`. Begin at `nf_model`; `library` and `storage` read and write the models.
"""
