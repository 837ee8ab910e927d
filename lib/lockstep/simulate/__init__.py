"""The policies of the straggler engine in virtual time: the same objects, another clock."""
