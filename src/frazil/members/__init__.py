"""Collections: groups with one shape of their own each, and one table that describes them all.

    table        the columns of the table: their types, reads and writes, the repetition of changes on a tip
    extent       the box, the interval of time and the coordinate system of a dataset, and their comparison
    schema       what members must have, as a value in the attributes of the collection
    collection   `frazil.Collection` and `frazil.Members`
    stac         members as items of STAC, and the reverse

design/091 describes the layout.
"""
